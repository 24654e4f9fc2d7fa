package train

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// What checkpoint.best_mode may be, besides "", which is modeAuto.
const (
	modeAuto = "auto"
	modeMax  = "max"
	modeMin  = "min"
)

// modes are the directions of metrics as params name them.
var modes = map[runner.Better]string{runner.HigherIsBetter: modeMax, runner.LowerIsBetter: modeMin}

// directions says which way the metrics that evaluations give are better.
var directions = map[string]runner.Better{
	"accuracy":        runner.HigherIsBetter,
	"f1":              runner.HigherIsBetter,
	"loss":            runner.LowerIsBetter,
	"macro_f1":        runner.HigherIsBetter,
	"macro_precision": runner.HigherIsBetter,
	"macro_recall":    runner.HigherIsBetter,
	"mcc":             runner.HigherIsBetter,
	"precision":       runner.HigherIsBetter,
	"recall":          runner.HigherIsBetter,
}

// order returns which way checkpoint.best is better. A graph may have metrics of its
// own, whose direction the params have to give.
func (c CheckpointParams) order() (runner.Better, error) {
	known, ok := directions[c.Best]
	switch {
	case c.BestMode == "" || c.BestMode == modeAuto:
		if !ok {
			return 0, &ParamsError{fmt.Errorf("checkpoint.best is %q, and whether more or less of it is better is not known: "+
				"give --set checkpoint.best_mode=max or --set checkpoint.best_mode=min", c.Best)}
		}
		return known, nil
	case ok && c.BestMode != modes[known]:
		return 0, &ParamsError{fmt.Errorf("checkpoint.best_mode is %s, and for %s expected %s: leave it out, or give --set checkpoint.best_mode=%[3]s",
			c.BestMode, c.Best, modes[known])}
	case c.BestMode == modeMin:
		return runner.LowerIsBetter, nil
	}
	return runner.HigherIsBetter, nil
}

// checkBest returns an error unless evaluations of a graph give the metric by which the
// best checkpoint is kept, and its direction is known.
func checkBest(p Params, export *graphs.Export) error {
	if p.Checkpoint.Best == "" || p.Train.EvalInterval == noEval {
		return nil
	}
	metrics, err := metricsOf(export)
	if err != nil {
		return err
	}
	if _, ok := metrics[p.Checkpoint.Best]; !ok {
		return &ParamsError{fmt.Errorf("checkpoint.best is %q; evaluations of this graph give %s: give one with --set checkpoint.best=NAME",
			p.Checkpoint.Best, strings.Join(slices.Sorted(maps.Keys(metrics)), ", "))}
	}
	_, err = p.Checkpoint.order()
	return err
}
