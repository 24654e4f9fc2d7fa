package tokens_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task/tokens"
)

// Of five true entities, three are among the four that were predicted.
func ExampleTask_Measure() {
	t := tokens.New(&graphs.Contract{}, nil)
	out, err := t.Measure(runner.Sums{runner.WeightSum: {20}, "accuracy_sum": {18}, tokens.EntityCounts: {3, 4, 5}})
	fmt.Println(out["accuracy"], out["precision"], out["recall"], err)
	// Output: 0.9 0.75 0.6 <nil>
}
