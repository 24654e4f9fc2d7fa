package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
)

// listed is a run as gorbit runs shows it.
type listed struct {
	Run    string            `json:"run"`
	State  runfolder.Outcome `json:"state"`
	Reason string            `json:"reason,omitempty"`
	Step   int64             `json:"step"`
	Steps  int64             `json:"steps,omitempty"`
	Metric string            `json:"metric,omitempty"`
	// Value is that of Metric in the evaluation at BestStep; nil if there was none.
	Value    *runner.Number `json:"value,omitempty"`
	BestStep int64          `json:"best_step,omitempty"`
	Seconds  float64        `json:"seconds,omitempty"`
	Model    string         `json:"model"`
	Data     string         `json:"data"`
	Written  time.Time      `json:"written,omitzero"`
	Problems []string       `json:"problems,omitempty"`
}

func newRuns(*globals) *cobra.Command {
	var order string
	var reverse, asJSON bool
	cmd := &cobra.Command{
		Use:   "runs [FOLDER] [flags]",
		Short: "List the runs in a folder",
		Long: `Lists the runs in a folder and below it (default: the current folder): their state, steps,
best evaluation, the time that they trained, their model and their data.

The states are running, finished, stopped (by a signal or killed: the same gorbit train
command continues the run) and failed. --sort orders by name, state, steps, time, written
(when it last wrote metrics), best (the best evaluation first), or a metric of the
evaluations: the runs are then compared by its value at their best evaluation, or else at
their last one, the highest first, the lowest of a loss.`,
		Example: `  gorbit runs runs
  gorbit runs runs --sort best
  gorbit runs runs --sort loss --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%d folders are given; expected one; see %s --help", len(args), cmd.CommandPath())
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&order, "sort", "name", "`ORDER`: name, state, steps, time, written, best, or a metric of the evaluations")
	f.BoolVar(&reverse, "reverse", false, "the other way round")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := "."
		if len(args) > 0 {
			dir = args[0]
		}
		if err := localFolder(dir, "gorbit report reads a run in a bucket"); err != nil {
			return err
		}
		folders, unread := runfolder.Find(dir)
		if unread != nil && folders == nil {
			return unread
		}
		if len(folders) == 0 {
			return fmt.Errorf("%s has no run in it or below it; gorbit train --run FOLDER makes one", dir)
		}
		var runs []*runfolder.Run
		for _, folder := range folders {
			r, err := runfolder.Read(folder, false, time.Now())
			if err != nil {
				unread = errors.Join(unread, fmt.Errorf("run %s: %w", folder, err))
				continue
			}
			runs = append(runs, r)
		}
		list, err := sortRuns(runs, order, reverse)
		if err != nil {
			return err
		}
		if asJSON {
			err = writeJSON(cmd.OutOrStdout(), list)
		} else {
			err = printRuns(cmd.OutOrStdout(), list)
		}
		return cmp.Or(err, unread)
	}
	return cmd
}

// listRun returns a run as it is listed, with its best evaluation, or the given metric of it.
func listRun(r *runfolder.Run, metric string) listed {
	l := listed{Run: r.Folder, State: r.State, Reason: r.Reason, Step: r.Step, Steps: r.Steps, Seconds: math.Round(r.Seconds*10) / 10,
		Metric: r.Best.Metric, BestStep: r.Best.Step, Model: r.Params["graph"], Data: r.Params["data.dir"], Written: r.Written, Problems: r.Problems}
	value, known := r.Best.Value, r.Best.Known
	if metric != "" && metric != l.Metric {
		l.Metric = metric
		if value, known = r.Log.Eval[metric].At(r.Best.Step); !known {
			value, l.BestStep, known = r.Log.Eval[metric].End()
		}
	}
	if known {
		n := runner.Number(value)
		l.Value = &n
	}
	return l
}

// sortRuns returns the runs in an order.
func sortRuns(runs []*runfolder.Run, order string, reverse bool) ([]listed, error) {
	orders := map[string]func(a, b listed) int{
		"name":    func(a, b listed) int { return cmp.Compare(a.Run, b.Run) },
		"state":   func(a, b listed) int { return cmp.Compare(a.State, b.State) },
		"steps":   func(a, b listed) int { return cmp.Compare(b.Step, a.Step) },
		"time":    func(a, b listed) int { return cmp.Compare(b.Seconds, a.Seconds) },
		"written": func(a, b listed) int { return b.Written.Compare(a.Written) },
	}
	lower := map[string]bool{"loss": true}
	metric, names := "", map[string]bool{}
	for _, r := range runs {
		lower[r.Best.Metric] = r.Best.Mode == "min"
		for name := range r.Log.Eval {
			names[name] = true
		}
	}
	compare, known := orders[order]
	if !known {
		if metric = order; order == "best" {
			metric = ""
		} else if !names[order] {
			return nil, usagef("--sort is %q; expected name, state, steps, time, written, best, or a metric of the evaluations: %s%s", order, strings.Join(slices.Sorted(maps.Keys(names)), ", "),
				words.DidYouMean(order, slices.Concat(slices.Collect(maps.Keys(orders)), slices.Collect(maps.Keys(names)), []string{"best"})))
		}
		compare = func(a, b listed) int {
			if a.Value == nil || b.Value == nil { // those without come last
				return cmp.Compare(btoi(a.Value == nil), btoi(b.Value == nil))
			}
			by := cmp.Compare(float64(*b.Value), float64(*a.Value))
			if lower[a.Metric] {
				by = -by
			}
			return cmp.Or(cmp.Compare(a.Metric, b.Metric), by)
		}
	}
	list := make([]listed, len(runs))
	for i, r := range runs {
		list[i] = listRun(r, metric)
	}
	slices.SortStableFunc(list, func(a, b listed) int { return cmp.Or(compare(a, b), cmp.Compare(a.Run, b.Run)) })
	if reverse {
		slices.Reverse(list)
	}
	return list, nil
}

// printRuns prints a table of runs, and what is wrong with them.
func printRuns(out io.Writer, list []listed) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "run\tstate\tsteps\tbest\tat step\ttime\tmodel\tdata")
	for _, l := range list {
		steps, best, at := fmt.Sprint(l.Step), "-", "-"
		if l.Steps > 0 {
			steps = fmt.Sprintf("%d/%d", l.Step, l.Steps)
		}
		if l.Value != nil {
			best, at = fmt.Sprintf("%s %.4g", l.Metric, float64(*l.Value)), fmt.Sprint(l.BestStep)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Run, l.State, steps, best, at, runfolder.Duration(l.Seconds),
			filepath.Base(l.Model), filepath.Base(l.Data))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, l := range list {
		if l.State == runfolder.Failed || l.State == runfolder.Stopped && l.Reason != "" {
			if _, err := fmt.Fprintf(out, "%s %s: %s\n", l.Run, l.State, cut(oneLine(l.Reason))); err != nil {
				return err
			}
		}
		for _, p := range l.Problems {
			if _, err := fmt.Fprintf(out, "%s: %s\n", l.Run, oneLine(p)); err != nil {
				return err
			}
		}
	}
	return nil
}

// cut shortens the reason of a run's end. The whole of it is in the run's journal.
func cut(reason string) string {
	if most := []rune(reason); len(most) > 160 {
		return string(most[:160]) + "..."
	}
	return reason
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
