package mlm_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task/mlm"
)

// Of eight masked tokens, six were predicted.
func ExampleTask_Measure() {
	t := mlm.New(&graphs.Contract{}, nil)
	out, err := t.Measure(runner.Sums{runner.LossSum: {12}, runner.WeightSum: {8}, "accuracy_sum": {6}})
	fmt.Println(out, err)
	// Output: {'accuracy': 0.75, 'loss': 1.5} <nil>
}
