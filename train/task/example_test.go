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
	contract := &graphs.Contract{Features: []graphs.Feature{{Name: "labels", Role: graphs.RoleLabel, Below: &classes}}}
	var t task.Task = classify.New(contract, nil)
	metrics, err := task.Metrics(t, []graphs.Arg{{Name: runner.LossSum}, {Name: runner.WeightSum}, {Name: classify.CorrectSum}}, task.Classes(contract))
	for _, m := range metrics {
		fmt.Println(m.Name, m.Directed && m.Better == runner.HigherIsBetter)
	}
	fmt.Println(err)
	// Output:
	// accuracy true
	// loss false
	// <nil>
}
