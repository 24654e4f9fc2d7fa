package evaluation_test

import (
	"fmt"
	"os"

	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// What a report reads of a run.
func ExampleList() {
	run, err := os.MkdirTemp("", "run")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(run)
	e := &evaluation.Evaluation{By: evaluation.ByTrain, Split: "dev", Step: 40, Metrics: runner.Outputs{"accuracy": 0.75}}
	e.Confusion = evaluation.NewConfusion([]float64{3, 1, 0, 0}, 2, []string{"no", "yes"})
	if _, err := evaluation.Write(run, e); err != nil {
		panic(err)
	}
	all, err := evaluation.List(run)
	for _, e := range all {
		fmt.Println(e.Split, e.Step, e.Metrics, e.Confusion.Confused)
	}
	fmt.Println(err)
	// Output:
	// dev 40 {'accuracy': 0.75} [{no yes 1}]
	// <nil>
}
