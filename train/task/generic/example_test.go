package generic_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task/generic"
)

// A graph without metrics of its own has the means of its sums.
func ExampleTask_Measure() {
	t := generic.New(&graphs.Contract{Best: graphs.Best{Metric: "loss", Better: graphs.Lower}}, nil)
	out, err := t.Measure(runner.Sums{runner.LossSum: {6}, runner.WeightSum: {4}, "distance_sum": {10}})
	fmt.Println(out, err)
	// Output: {'distance': 2.5, 'loss': 1.5} <nil>
}
