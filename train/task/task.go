// Package task says what a task is: what records hold, and what the sums that a graph adds up
// come to. A run knows its task by the interface alone; package classify has the first one.
package task

import (
	"github.com/gorbit-ml/gorbit/convert"
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
	// Metric returns what is known of a metric by its name.
	Metric(name string) Metric
	// Best is the name of the metric by which a run keeps its best checkpoint by default.
	Best() string
	// CheckData returns why a graph cannot be trained on converted data and what mends that, such
	// as "has 3 labels, the graph 2: ...", or "".
	CheckData(*convert.Manifest) string
	// CheckSplit returns why a split of converted data cannot be trained or evaluated on, or "".
	CheckSplit(name string, s *convert.Split) string
	// OnlyAnswer returns the answer that all examples of a split have, and whether there is only
	// one: from such a split nothing can be learned.
	OnlyAnswer(*convert.Manifest, *convert.Split) (answer string, only bool)
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
