package multilabel_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task/multilabel"
)

// Two labels: the first is predicted for one of the two examples that have it, the second for none.
func ExampleTask_Measure() {
	t := multilabel.New(&graphs.Contract{}, nil)
	out, err := t.Measure(runner.Sums{runner.WeightSum: {3}, multilabel.LabelCounts: {1, 1, 2, 0, 0, 1}})
	fmt.Println(out["micro_precision"], out["micro_recall"], out["micro_f1"], err)
	// Output: 1 0.3333333333333333 0.5 <nil>
}
