// Package classify implements the task of assigning one label to every example.
package classify

import (
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task"
	"github.com/gorbit-ml/gorbit/train/task/generic"
)

// Name is the name of the task in contracts.
const Name = "classification"

// CorrectSum is a classifier's sum, in addition to those of package runner and task.ConfusionSum: the
// weight of the correct predictions, for accuracy.
const CorrectSum = "correct_sum"

// Task is the classification task of a graph.
type Task struct{ generic.Task }

var _ task.Task = Task{}

// New returns the task of a graph with the given contract. results may be nil if the contract has no
// metrics of its own.
func New(c *graphs.Contract, results task.Results) Task { return Task{generic.New(c, results)} }

// better holds the direction of each metric that Measure adds.
var better = map[string]runner.Better{
	"accuracy":        runner.HigherIsBetter,
	"auc":             runner.HigherIsBetter,
	"f1":              runner.HigherIsBetter,
	"macro_f1":        runner.HigherIsBetter,
	"macro_precision": runner.HigherIsBetter,
	"macro_recall":    runner.HigherIsBetter,
	"mcc":             runner.HigherIsBetter,
	"precision":       runner.HigherIsBetter,
	"recall":          runner.HigherIsBetter,
	"top_5_accuracy":  runner.HigherIsBetter,
}

// Metric implements task.Task. It knows the metrics of Measure.
func (t Task) Metric(name string) task.Metric { return t.Known(name, better) }
