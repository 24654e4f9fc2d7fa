package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/version"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of gorbit and TensorFlow",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "gorbit %s\nTensorFlow %s\nexport contract %d\n%s %s/%s\n",
				version.String(), tf.Version(), graphs.ContractVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
