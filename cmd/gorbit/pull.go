package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs"
)

func newPull(_ *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "pull hub:OWNER/NAME[@REVISION][/FILE] [flags]",
		Short: "Download a model or file of a model hub, and print its path",
		Long: `Downloads what a model is read from of a repository of a model hub, or one file of it, into the
cache that Hugging Face's programs share, and prints the path. Commands that take hub: paths do
so by themselves; this is for other programs, such as the exporter.

Of a repository it takes safetensors, configs and tokenizers; pickles are refused, because they
are programs. A download that was interrupted goes on where it ended.

HF_ENDPOINT names another hub, HF_TOKEN is the token, HF_HOME or HF_HUB_CACHE the cache, and
HF_HUB_OFFLINE=1 means --offline.`,
		Example: `  gorbit pull hub:acme/encoder
  config=$(gorbit pull hub:acme/encoder/config.json)
  python -m gorbit_export bert --task classification --config $config --out exports/mrpc`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || vfs.Scheme(args[0]) != hubfs.Scheme {
				return usagef("pull is given %q; expected one path of a hub, such as hub:acme/encoder", args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			// A name that files only begin with is that of a checkpoint, or a mistake.
			if _, err := vfs.Stat(args[0]); errors.Is(err, fs.ErrNotExist) {
				if _, none := vfs.Stat(args[0] + ".index"); none != nil {
					return err
				}
			}
			local, err := vfs.Localize(cmd.Context(), args[0], nil)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), local)
			return err
		},
	}
}
