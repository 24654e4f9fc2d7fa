package train

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task"
)

// What checkpoint.best_mode may be, besides "", which is modeAuto.
const (
	modeAuto = "auto"
	modeMax  = "max"
	modeMin  = "min"
)

// modes are the directions of metrics as params name them.
var modes = map[runner.Better]string{runner.HigherIsBetter: modeMax, runner.LowerIsBetter: modeMin}

// order returns which way checkpoint.best is better. A graph may have metrics of its
// own, whose direction the task does not know and the params have to give.
func (c CheckpointParams) order(t task.Task) (runner.Better, error) {
	metric := t.Metric(c.Best)
	known, ok := metric.Better, metric.Directed
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
