package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/app/help"
	"github.com/gorbit-ml/gorbit/internal/exec/launch"
	"github.com/gorbit-ml/gorbit/train"
)

func newAverage(g *globals) *cobra.Command {
	var a train.Average
	var steps, out string
	cmd := &cobra.Command{
		Use:   "average --run FOLDER --out FOLDER [flags]",
		Short: "Average checkpoints of a run, or of several",
		Long: `Writes the mean of a run's checkpoints, or of those of several runs of the same export,
as the checkpoint of a new folder that gorbit evaluate, predict, export, serve and push
take with --run, and gorbit train with --init.

Variables, and states such as moving statistics, are the mean in float64, rounded to
float32. Numbers of other types are those of the last checkpoint. Of checkpoints with
averages of their own (optimizer.ema, optimizer.swa), these are averaged. The folder has
no slots of an optimizer: training does not continue there.

A training keeps as many checkpoints as checkpoint.max_to_keep says, 3 unless told
otherwise.`,
		Example: `  gorbit average --run runs/mrpc --last 3 --out runs/mrpc-mean
  gorbit average --run runs/mrpc --checkpoints 230,345 --out runs/mrpc-mean
  gorbit average --run runs/seed1 --run runs/seed2 --last 1 --out runs/soup`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.StringArrayVar(&a.Runs, "run", nil, "`FOLDER` of the run (required); more than once for several runs")
	f.IntVar(&a.Last, "last", 3, "average the newest `N` checkpoints of each run")
	f.StringVar(&steps, "checkpoints", "", "average the checkpoints of these `STEPS` of each run, such as 10,20,30")
	f.StringVar(&out, "out", "", "`FOLDER` to write, a new one (required)")
	help.Group(f, "Checkpoints", "run", "last", "checkpoints")
	help.Group(f, "Output", "out")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		switch {
		case len(a.Runs) == 0:
			return usagef("--run is missing; expected the folder of a run")
		case out == "":
			return usagef("--out is missing; expected the folder to write")
		case f.Changed("last") && f.Changed("checkpoints"):
			return usagef("--last and --checkpoints are given; expected one of them")
		case a.Last < 1:
			return usagef("--last is %d; expected 1 or more", a.Last)
		}
		if f.Changed("checkpoints") {
			if a.Steps, err = stepsOf(steps); err != nil {
				return err
			}
		}
		if err := localFolder(out, "copy it there afterwards"); err != nil {
			return err
		}
		env, err := g.env(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		taken, step, err := a.Write(cmd.Context(), out, env)
		if err != nil {
			return err
		}
		for _, c := range taken {
			fmt.Fprintln(cmd.OutOrStdout(), c)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "averaged %d checkpoints as step %d of %s\nnext: gorbit evaluate --run %s\n", len(taken), step, out, launch.Quote(out))
		return err
	}
	return cmd
}

// stepsOf reads the steps of --checkpoints.
func stepsOf(list string) (out []int64, err error) {
	seen := map[int64]bool{}
	for word := range strings.SplitSeq(list, ",") {
		step, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimSpace(word), "ckpt-"), 10, 64)
		if err != nil || step < 0 {
			return nil, usagef("--checkpoints has %q; expected steps, such as 10,20,30", word)
		}
		if seen[step] {
			return nil, usagef("--checkpoints has step %d twice; expected each once", step)
		}
		seen[step] = true
		out = append(out, step)
	}
	return out, nil
}
