package train

import (
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/train/task"
	"github.com/gorbit-ml/gorbit/train/task/classify"
)

// taskOf returns the task of a graph.
func taskOf(c *graphs.Contract) task.Task { return classify.New(c) }

// taskOfParams returns the task where no graph is at hand, as for the defaults of params. There is
// only one.
func taskOfParams() task.Task { return classify.Task{} }
