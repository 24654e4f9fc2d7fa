package task_test

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task"
	"github.com/gorbit-ml/gorbit/train/task/classify"
)

func ExampleTask() {
	classes := int64(2)
	var t task.Task = classify.New(&graphs.Contract{Features: []graphs.Feature{{Name: "labels", Role: graphs.RoleLabel, Below: &classes}}})
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
