package task_test

import (
	"fmt"
	"math"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task"
)

func ExampleTask() {
	classes := int64(2)
	contract := &graphs.Contract{Task: task.Classification, Features: []graphs.Feature{{Name: "labels", Role: graphs.RoleLabel, Below: &classes}}}
	t := task.New(contract, nil)
	metrics, err := task.Metrics(t, []graphs.Arg{{Name: runner.LossSum}, {Name: runner.WeightSum}, {Name: task.CorrectSum}}, task.Classes(contract))
	for _, m := range metrics {
		fmt.Println(m.Name, m.Directed && m.Better == runner.HigherIsBetter)
	}
	fmt.Println(err)
	// Output:
	// accuracy true
	// loss false
	// <nil>
}

func ExampleRegister() {
	task.Register(task.Kind{
		Name:   "forecasting",
		Better: map[string]runner.Better{"rmse": runner.LowerIsBetter},
		Measure: func(_ *graphs.Contract, sums runner.Sums, out runner.Outputs) error {
			out["rmse"] = math.Sqrt(out["loss"])
			return nil
		},
	})
	t := task.New(&graphs.Contract{Task: "forecasting"}, nil)
	metrics, err := t.Measure(runner.Sums{runner.LossSum: {8}, runner.WeightSum: {2}})
	fmt.Println(metrics, err, t.Metric("rmse").Better == runner.LowerIsBetter)
	// Output:
	// {'loss': 4.0, 'rmse': 2.0} <nil> true
}
