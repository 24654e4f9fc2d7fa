package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gorbit-ml/gorbit/internal/app/watch"
	"github.com/gorbit-ml/gorbit/internal/base/shown"
)

func newWatch(*globals) *cobra.Command {
	c := watch.Config{Every: time.Second}
	cmd := &cobra.Command{
		Use:   "watch RUN [flags]",
		Short: "Show the curves of a run in the terminal while it trains",
		Long: `Shows the state of a run and the curves of its loss and its best metric while another process
trains it: training as a line, evaluations as "o". It ends when the run does; Ctrl-C ends it
and leaves the run alone.

A run that does not train, and output that is not a terminal, get one picture. With --follow,
output that is not a terminal gets a line for each line of metrics, until the run ends.`,
		Example: `  gorbit watch runs/mrpc
  gorbit watch runs/mrpc --metric f1
  gorbit watch runs/mrpc --follow | tee log`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("%d run folders are given; expected one; see %s --help", len(args), cmd.CommandPath())
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&c.Metric, "metric", "", "metric of the second curve (default: the one by which the run chooses its best)")
	cmd.Flags().BoolVar(&c.Follow, "follow", false, "without a terminal: print new lines of metrics until the run ends")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.Folder = args[0]
		if err := localFolder(c.Folder, "gorbit report reads buckets"); err != nil {
			return err
		}
		c.Out = cmd.OutOrStdout()
		if out := os.Stdout; term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb" {
			c.Out = shown.Raw(c.Out) // for the sequences that draw
			c.Size = func() (int, int) {
				columns, rows, err := term.GetSize(int(out.Fd()))
				if err != nil || columns <= 0 || rows <= 0 {
					return 80, 24
				}
				return columns, rows
			}
			resized := make(chan os.Signal, 1)
			signal.Notify(resized, syscall.SIGWINCH)
			defer signal.Stop(resized)
			c.Resized = resized
		}
		err := watch.Watch(cmd.Context(), c)
		if wrong := (*watch.MetricError)(nil); errors.As(err, &wrong) {
			return usagef("--metric: %w", err)
		}
		return err
	}
	return cmd
}
