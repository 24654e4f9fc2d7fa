package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/app/report"
	"github.com/gorbit-ml/gorbit/internal/base/made"
	"github.com/gorbit-ml/gorbit/internal/base/shown"
	"github.com/gorbit-ml/gorbit/internal/base/version"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	results "github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/params"
)

func newReport(*globals) *cobra.Command {
	var out string
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "report RUN [RUN...] [flags]",
		Short: "Write a page about runs, to look at in a browser",
		Long: `Writes one HTML file about a run, or about several to compare them: the best evaluation, the
curves of training and evaluation, speed and memory, the classes and the confusion matrix, the
examples of the highest loss, the data, the params, the machine, and what initial weights filled.

The file needs no server and no network, and everything in it comes from the folders of the runs.
What a run lacks is left out, with the command that makes it. The run may be training.`,
		Example: `  gorbit report runs/mrpc
  gorbit report runs/a runs/b runs/c --out compare.html`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := len(args); n < 1 || n > report.MaxRuns {
				return usagef("%d run folders are given; expected 1 to %d; see %s --help", n, report.MaxRuns, cmd.CommandPath())
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "report.html", "`FILE` to write, or - for standard output")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace the file even if it is no page of gorbit report")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if out != "-" { // before the runs are read, which may take long
			if _, err := made.Replaceable(out, isPage, overwrite); err != nil {
				return err
			}
		}
		page, err := readPage(cmd.Context(), args)
		if err != nil {
			return err
		}
		if out == "-" {
			return page.Write(shown.Data(cmd.OutOrStdout()))
		}
		if err := writePage(cmd.Context(), page, out, overwrite); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "wrote %s; open it in a browser\n", out)
		return err
	}
	return cmd
}

// readPage reads runs for a page.
func readPage(ctx context.Context, folders []string) (report.Page, error) {
	page := report.Page{Made: time.Now(), Version: version.String()}
	defaults, err := params.Defaults().YAML()
	if err == nil {
		page.Defaults, err = runfolder.FlatParams(defaults)
	}
	if err != nil {
		return page, err
	}
	for _, folder := range folders {
		local, err := runfolder.LocalRun(ctx, folder, params.Latest)
		if err != nil {
			return page, err
		}
		r, err := runfolder.Read(local, true, page.Made)
		if err != nil {
			return page, fmt.Errorf("run %s: %w", folder, err)
		}
		evaluations, err := results.List(local)
		if err != nil {
			r.Problems = append(r.Problems, err.Error())
		}
		r.Folder = folder
		page.Runs = append(page.Runs, report.Run{Run: r, Evaluations: evaluations})
	}
	return page, nil
}

// isPage reports whether a file with this beginning is a page of gorbit report.
func isPage(head []byte) bool { return bytes.Contains(head, []byte(made.Generator)) }

// writePage writes a page to a file, which has the old or the new content after a crash. Without overwrite
// it replaces only a page.
func writePage(ctx context.Context, page report.Page, path string, overwrite bool) error {
	if info, err := vfs.Stat(path); err == nil && info.IsDir() {
		return usagef("--out is %s, which is a folder; expected a file, such as %s", path, vfs.Join(path, "report.html"))
	}
	f, err := made.Create(path, isPage, overwrite)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := page.Write(f); err != nil {
		return err
	}
	return f.End(ctx)
}
