// Package classify implements the task of assigning one label to every example.
package classify

import (
	"maps"
	"slices"

	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task"
)

// Names of a classifier's sums, in addition to those of package runner.
const (
	CorrectSum = "correct_sum" // weight of the correct predictions, for accuracy
	Confusion  = "confusion"   // C x C weighted counts, row = label, column = prediction
)

// Task is the classification task of a graph.
type Task struct {
	model  graphs.Model
	labels int // number of labels
}

var _ task.Task = Task{}

// New returns the task of a graph with the given contract.
func New(c *graphs.Contract) Task {
	t := Task{model: c.Model}
	if label := c.Label(); label != nil {
		t.labels = label.Classes()
	}
	return t
}

// Limit implements task.Task. It limits labels, token ids, token types and positions to those of
// the graph.
func (t Task) Limit(c *packed.Config) {
	c.VocabSize = t.model.ConfigInt("vocab_size")
	c.NumTypes = t.model.ConfigInt("type_vocab_size")
	c.MaxTokens = t.model.ConfigInt("max_position_embeddings")
	c.NumLabels = t.labels
}

// better holds the direction of each known metric.
var better = map[string]runner.Better{
	"accuracy":        runner.HigherIsBetter,
	"f1":              runner.HigherIsBetter,
	"loss":            runner.LowerIsBetter,
	"macro_f1":        runner.HigherIsBetter,
	"macro_precision": runner.HigherIsBetter,
	"macro_recall":    runner.HigherIsBetter,
	"mcc":             runner.HigherIsBetter,
	"precision":       runner.HigherIsBetter,
	"recall":          runner.HigherIsBetter,
}

// Best implements task.Task.
func (t Task) Best() string { return "accuracy" }

// Metric implements task.Task. Directed is false if the metric is unknown.
func (t Task) Metric(name string) task.Metric {
	b, ok := better[name]
	return task.Metric{Name: name, Better: b, Directed: ok}
}

// Metrics implements task.Task. It calls Measure with placeholder sums.
func (t Task) Metrics(outputs []graphs.Arg) ([]task.Metric, error) {
	sums := make(runner.Sums)
	for _, a := range outputs {
		n := int64(1)
		for _, d := range a.Shape {
			n *= max(d, 1)
		}
		// Unknown dimensions of the matrix are the number of labels.
		if a.Name == Confusion && len(a.Shape) == 2 && a.Shape[0] < 1 {
			n = int64(t.labels) * int64(t.labels)
		}
		sums[a.Name] = slices.Repeat([]float64{1}, int(n))
	}
	out, err := t.Measure(sums)
	if err != nil {
		return nil, err
	}
	var metrics []task.Metric
	for _, name := range slices.Sorted(maps.Keys(out)) {
		metrics = append(metrics, t.Metric(name))
	}
	return metrics, nil
}
