package regression_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task/regression"
)

// Labels 1, 2 and 3, of which 1, 2 and 4 were predicted.
func ExampleTask_Measure() {
	t := regression.New(&graphs.Contract{}, nil)
	moments := []float64{3, 6, 7, 14, 21, 17, 1, 0, 0, 0, 0, 0, 0, 0}
	out, err := t.Measure(runner.Sums{runner.WeightSum: {3}, regression.Moments: moments})
	fmt.Println(out, err)
	// Output: {'mae': 0.33333334, 'mse': 0.33333334, 'pearson': 0.9819805, 'r2': 0.5} <nil>
}
