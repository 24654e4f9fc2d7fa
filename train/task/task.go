// Package task defines tasks: what records contain, and which metrics are computed from the sums
// of a graph. Package train uses only the interface; package classify implements the first task.
package task

import (
	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// Task is a task that a model is trained for.
type Task interface {
	// Limit sets the limits on the contents of records.
	Limit(*packed.Config)
	// Measure computes the metrics of training and evaluation from sums. It is a
	// runner.MetricsFunc.
	Measure(runner.Sums) (runner.Outputs, error)
	// Metric returns the metric with the given name. It may be unknown to the task.
	Metric(name string) Metric
	// Best returns the name of the metric that selects the best checkpoint by default.
	Best() string
	// CheckData returns why a graph cannot be trained on converted data and how to fix that, such
	// as "has 3 labels; expected 2, as in the graph; ...", or "".
	CheckData(*convert.Manifest) string
	// CheckSplit returns why a split of converted data cannot be trained or evaluated on, or "".
	CheckSplit(name string, s *convert.Split) string
	// OnlyAnswer returns the answer of all examples of a split, and whether all have the same one.
	// Nothing can be learned from such a split.
	OnlyAnswer(*convert.Manifest, *convert.Split) (answer string, only bool)
	// Metrics lists the metrics that Measure returns for the outputs of a function, sorted by name.
	Metrics(outputs []graphs.Arg) ([]Metric, error)
}

// Metric describes a metric that Measure returns.
type Metric struct {
	Name string
	// Better is the direction of better values. It is valid only if Directed is set; a graph may
	// have metrics that the task does not know.
	Better   runner.Better
	Directed bool
}
