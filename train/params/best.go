package params

import (
	"cmp"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task"
)

// ResolveBest sets checkpoint.best to the metric of the graph if it is BestAuto.
func (c *Checkpoint) ResolveBest(contract *graphs.Contract) {
	if c.Best == BestAuto {
		c.Best = contract.Best.Metric
	}
}

// BestModes maps the direction of a metric to the value of checkpoint.best_mode.
var BestModes = map[runner.Better]string{runner.HigherIsBetter: ModeMax, runner.LowerIsBetter: ModeMin}

// BestOrder returns the direction in which checkpoint.best gets better. For a graph's own metrics, whose
// direction the task does not know, the params must set it.
func (p Params) BestOrder(t task.Task) (runner.Better, error) {
	c := p.Checkpoint
	_, plain := p.Data.Eval.Cut(c.Best)
	metric := t.Metric(plain)
	known, ok := metric.Better, metric.Directed
	switch {
	case c.BestMode == "" || c.BestMode == ModeAuto:
		if !ok {
			return 0, Errorf("checkpoint.best", "is %q, whose direction is unknown; "+
				"add checkpoint.best_mode=max if higher is better, or min if lower is better", c.Best)
		}
		return known, nil
	case ok && c.BestMode != BestModes[known]:
		return 0, Errorf("checkpoint.best_mode", "is %s; for %s expected %s; leave it out, or use checkpoint.best_mode=%[3]s",
			c.BestMode, c.Best, BestModes[known])
	case c.BestMode == ModeMin:
		return runner.LowerIsBetter, nil
	}
	return runner.HigherIsBetter, nil
}

// PlateauMetric returns the metric that the schedule plateau watches.
func (p Params) PlateauMetric() string { return cmp.Or(p.Optimizer.Plateau.Metric, p.Checkpoint.Best) }

// PlateauOrder returns the direction in which that metric gets better. It is that of checkpoint.best
// if it is the same metric.
func (p Params) PlateauOrder(t task.Task) (runner.Better, error) {
	if p.PlateauMetric() == p.Checkpoint.Best {
		return p.BestOrder(t)
	}
	_, plain := p.Data.Eval.Cut(p.Optimizer.Plateau.Metric)
	metric := t.Metric(plain)
	if !metric.Directed {
		return 0, Errorf("optimizer.plateau.metric", "is %q, whose direction is unknown; set checkpoint.best to it and "+
			"checkpoint.best_mode to max if higher is better, or min if lower is better", p.Optimizer.Plateau.Metric)
	}
	return metric.Better, nil
}
