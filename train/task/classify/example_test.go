package classify_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task"
	"github.com/gorbit-ml/gorbit/train/task/classify"
)

// The sums of ten examples with two labels, of which three with label 0 were taken for 1.
func ExampleTask_Measure() {
	classes := int64(2)
	t := classify.New(&graphs.Contract{Features: []graphs.Feature{{Name: "labels", Role: graphs.RoleLabel, Below: &classes}}}, nil)
	out, err := t.Measure(runner.Sums{runner.LossSum: {5}, runner.WeightSum: {10}, task.ConfusionSum: {0, 3, 0, 7}})
	fmt.Println(out, err)
	// Output: {'accuracy': 0.7, 'f1': 0.8235294, 'loss': 0.5, 'mcc': 0.0, 'precision': 0.7, 'recall': 1.0} <nil>
}
