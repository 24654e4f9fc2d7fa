package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/vfs"
)

func newInspect(*globals) *cobra.Command {
	var dot string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect GRAPH [flags]",
		Short: "Show what an export contains",
		Long: `Checks an export against the training contract and shows its functions, variables,
number of parameters, floating-point operations per token, hyperparameters and the
operations that it uses, with those that reach files, processes or Python listed
separately. Nothing in the graph is run.`,
		Example: `  gorbit inspect exports/mrpc
  gorbit inspect exports/mrpc --dot model.dot && dot -Tsvg model.dot > model.svg`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("%d graphs given; expected one; see %s --help", len(args), cmd.CommandPath())
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dot, "dot", "", "write a Graphviz drawing of the model to this file; - is standard output")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		local, err := vfs.Localize(cmd.Context(), args[0], nil)
		if err != nil {
			return err
		}
		export, err := graphs.Open(local)
		if err != nil {
			return err
		}
		if dot == "-" {
			return export.Dot(cmd.OutOrStdout())
		}
		if dot != "" {
			f, err := os.Create(dot)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := export.Dot(f); err != nil {
				return err
			}
			return f.Close()
		}
		report := graphs.Inspect(export)
		if asJSON {
			return writeJSON(cmd.OutOrStdout(), report)
		}
		return report.Write(cmd.OutOrStdout())
	}
	return cmd
}
