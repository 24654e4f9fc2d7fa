package task_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task"
	"github.com/gorbit-ml/gorbit/train/task/classify"
)

func ExampleTask() {
	var t task.Task = classify.New(&graphs.Contract{Model: graphs.Model{NumLabels: 2}})
	metrics, err := t.Metrics([]graphs.Arg{{Name: runner.LossSum}, {Name: runner.WeightSum}, {Name: classify.CorrectSum}})
	for _, m := range metrics {
		fmt.Println(m.Name, m.Directed && m.Better == runner.HigherIsBetter)
	}
	fmt.Println(err)
	// Output:
	// accuracy true
	// loss false
	// <nil>
}
