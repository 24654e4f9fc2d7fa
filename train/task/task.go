// Package task says what is particular to a kind of answers: metrics beyond those that a graph
// computes itself, their directions, and checks of data. Package train takes everything else from
// the contract of the graph. Package generic is the task of contracts that name no other; the
// packages of other tasks embed it.
package task

import (
	"maps"
	"slices"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// Task is a task that a model is trained for.
type Task interface {
	// Measure computes the metrics of training and evaluation from sums. It is a
	// runner.MetricsFunc.
	Measure(runner.Sums) (runner.Outputs, error)
	// Detail returns what an evaluation shows beside metrics. labels are the names of the classes of
	// the first label, or nil where the data do not name them.
	Detail(sums runner.Sums, labels []string) (evaluation.Detail, error)
	// Metric returns the metric with the given name. Its Directed is false if neither the task nor
	// the contract knows it.
	Metric(name string) Metric
	// CheckData returns why a graph cannot be trained on converted data and how to fix that, such
	// as "has 3 labels; expected 2, as in the graph; ...", or "".
	CheckData(*convert.Manifest) string
	// CheckSplit returns why a split of converted data cannot be trained or evaluated on, or "".
	CheckSplit(name string, s *convert.Split) string
	// OnlyAnswer returns the answer of all examples of a split, and whether all have the same one.
	// Nothing can be learned from such a split.
	OnlyAnswer(*convert.Manifest, *convert.Split) (answer string, only bool)
}

// Reducer is a Task that condenses the values of a batch's examples before an evaluation collects them.
type Reducer interface {
	// Reduce replaces outputs under runner.EachPrefix, given the features of the batch. Several
	// goroutines may call it at once.
	Reduce(features []dataset.Feature, out runner.Sums) error
}

// Feature returns the feature of the given name, or nil.
func Feature(features []dataset.Feature, name string) *dataset.Feature {
	i := slices.IndexFunc(features, func(f dataset.Feature) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return &features[i]
}

// Metric describes a metric that Measure returns.
type Metric struct {
	Name string
	// Better is the direction of better values. It is valid only if Directed is set; a graph may
	// have metrics without a direction.
	Better   runner.Better
	Directed bool
}

// Results computes the metrics that the contract of a graph lists from its sums, by the graph's
// function results. It is nil where no graph is loaded.
type Results func(runner.Sums) (runner.Outputs, error)

// AnyResults stands for the Results of a graph that is not loaded: each metric of the contract is 1.
// It is for those who want only the names.
func AnyResults(c *graphs.Contract) Results {
	return func(runner.Sums) (runner.Outputs, error) {
		out := make(runner.Outputs)
		for _, m := range c.Metrics {
			out[m.Name] = 1
		}
		return out, nil
	}
}

// Metrics lists the metrics that a task returns for the outputs of a function, sorted by name. It
// calls Measure with sums of ones. The task needs Results such as AnyResults. classes is the number
// of elements of an axis whose length the function leaves open.
func Metrics(t Task, outputs []graphs.Arg, classes int) ([]Metric, error) {
	sums := make(runner.Sums)
	for _, a := range outputs {
		n := int64(1)
		for _, d := range a.Shape {
			if d < 0 {
				d = int64(classes)
			}
			n *= max(d, 1)
		}
		sums[a.Name] = slices.Repeat([]float64{1}, int(n))
	}
	out, err := t.Measure(sums)
	if err != nil {
		return nil, err
	}
	var metrics []Metric
	for _, name := range slices.Sorted(maps.Keys(out)) {
		metrics = append(metrics, t.Metric(name))
	}
	return metrics, nil
}

// Classes returns the number of classes of a graph's first label, or 0 if it has no limit.
func Classes(c *graphs.Contract) int {
	if label := c.Label(); label != nil {
		return label.Classes()
	}
	return 0
}
