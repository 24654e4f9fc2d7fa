// Package task says what a task is: what records hold, and what the sums that a graph adds up
// come to. A run knows its task by the interface alone; package classify has the first one.
package task

import (
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// Task is what a model is trained for.
type Task interface {
	// Limit sets what the records may hold.
	Limit(*packed.Config)
	// Measure computes the metrics of training and evaluation from sums: it is a
	// runner.MetricsFunc.
	Measure(runner.Sums) (runner.Outputs, error)
	// Metrics lists the metrics that Measure gives for a function's outputs, sorted by name.
	Metrics(outputs []graphs.Arg) ([]Metric, error)
}

// Metric is a number that Measure gives.
type Metric struct {
	Name string
	// Better says which of two values is the better one, where Directed is set. A graph may
	// give metrics that the task knows nothing of.
	Better   runner.Better
	Directed bool
}
