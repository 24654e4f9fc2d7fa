package task

import "github.com/gorbit-ml/gorbit/graphs"

// newTask returns the task of the given name, of a graph that has no metrics of its own.
func newTask(name string, c *graphs.Contract) Task {
	c.Task = name
	return New(c, nil)
}
