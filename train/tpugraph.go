package train

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/graphs"
)

// checkTPUGraph returns a *ParamsError for a graph that runs do not use on a TPU, before that is started:
// a start ends whatever runs on it.
func checkTPUGraph(c *graphs.Contract) error {
	switch {
	case c.Precision == graphs.FP16:
		return &ParamsError{fmt.Errorf("the graph computes in %s, and strategy is tpu; export the graph with --precision bf16 or float32", graphs.FP16)}
	case !takesTokens(c):
		return &ParamsError{fmt.Errorf("the graph takes no tokens of texts, and strategy is tpu, which needs batches of fixed rows of tokens; use CPUs or GPUs")}
	}
	for _, f := range c.Features {
		for i, axis := range f.Axes {
			if f.Shape[i] < 0 && axis != axisRows && axis != axisLength && axis != axisExamples {
				return &ParamsError{fmt.Errorf("feature %s of the graph has an axis %s, and strategy is tpu, for which only the axes %s, %s and %s have fixed sizes; use CPUs or GPUs", f.Name, axis, axisRows, axisLength, axisExamples)}
			}
		}
	}
	return nil
}
