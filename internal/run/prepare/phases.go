package prepare

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/train/params"
)

// checkPhases returns a *params.Error if the params ask for what training in phases does not have.
func checkPhases(p params.Params, c *graphs.Contract) error {
	if len(c.Phases) == 0 {
		return nil
	}
	why := fmt.Sprintf("a step of the graph has %d phases", len(c.Phases))
	switch {
	case p.Strategy.TPU != "":
		return params.Errorf("strategy.tpu", "is %s, and %s, which a TPU cannot make; expected a CPU or GPU; leave out --tpu", p.Strategy.TPU, why)
	case p.Strategy.Input == params.InputLocal:
		return params.Errorf("strategy.input", "is %s, and %s, each of which reads the batch; leave it out", params.InputLocal, why)
	case p.Train.StepsPerCall > 1:
		return params.Errorf("train.steps_per_call", "is %d, and %s, each of which is a call; expected 1", p.Train.StepsPerCall, why)
	case p.Optimizer.EMA > 0:
		return params.Errorf("optimizer.ema", "is %v, and %s, for which no averages are kept; expected 0", p.Optimizer.EMA, why)
	case p.Optimizer.SWA > 0:
		return params.Errorf("optimizer.swa", "is %v, and %s, for which no averages are kept; expected 0", p.Optimizer.SWA, why)
	case p.Train.DebugNumerics:
		return params.Errorf("train.debug_numerics", "is true, and %s, each with gradients of its own; leave it out", why)
	case p.Summary.HistogramInterval > 0:
		return params.Errorf("summary.histogram_interval", "is %d, and %s, each with gradients of its own; leave it out, or take summary.histograms, for those of the variables alone", p.Summary.HistogramInterval, why)
	}
	return nil
}
