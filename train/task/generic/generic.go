// Package generic implements the task of graphs that say all of it in their contract: metrics by
// the graph's function results, means of other sums, and the best metric.
package generic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/task"
)

// Task is the task of a contract. Tasks that add to it embed it.
type Task struct {
	// Contract is that of the graph.
	Contract *graphs.Contract
	results  task.Results
}

var _ task.Task = Task{}

// New returns the task of a contract. results computes the contract's metrics; it may be nil if the
// contract has none.
func New(c *graphs.Contract, results task.Results) Task { return Task{c, results} }

// Measure implements task.Task. It returns the outputs of runner.Metrics, for the sums that the
// function results does not take, and the metrics of that function. If none of its sums is there, as
// in training by graphs that give them only in evaluation, its metrics are left out.
func (t Task) Measure(sums runner.Sums) (runner.Outputs, error) {
	taken := make(runner.Sums)
	for _, name := range t.Contract.Results {
		if v, ok := sums[name]; ok {
			taken[name] = v
		}
	}
	own := maps.Clone(sums)
	maps.DeleteFunc(own, func(name string, _ []float64) bool { return taken[name] != nil })
	out, err := runner.Metrics(own)
	if err != nil || len(taken) == 0 {
		return out, err
	}
	for _, name := range t.Contract.Results {
		if taken[name] == nil {
			return nil, fmt.Errorf("output %q is missing; the metrics of the graph need %s", name, strings.Join(t.Contract.Results, ", "))
		}
	}
	if t.results == nil {
		return nil, fmt.Errorf("the graph's function results is not loaded; its metrics need it")
	}
	values, err := t.results(taken)
	if err != nil {
		return nil, err
	}
	maps.Copy(out, values)
	return out, nil
}

// Detail implements task.Task: the table of the labels and the confusion matrix, of a graph that gives
// one.
func (t Task) Detail(sums runner.Sums, labels []string) (evaluation.Detail, error) {
	m, err := task.ConfusionOf(sums)
	if m == nil || err != nil {
		return evaluation.Detail{}, err
	}
	return m.Detail(labels), nil
}

// Known returns the metric of the given name. better has the direction of the metrics that a task adds,
// that of the F1 of single classes under task.F1Prefix. Others are the contract's.
func (t Task) Known(name string, better map[string]runner.Better) task.Metric {
	b, ok := better[name]
	if !ok && strings.HasPrefix(name, task.F1Prefix) {
		b, ok = better[task.F1Prefix]
	}
	if ok {
		return task.Metric{Name: name, Better: b, Directed: true}
	}
	return t.Metric(name)
}

// loss is the metric that all graphs have.
const loss = "loss"

// Metric implements task.Task. It knows the contract's metrics and the loss.
func (t Task) Metric(name string) task.Metric {
	better := ""
	if i := slices.IndexFunc(t.Contract.Metrics, func(m graphs.Metric) bool { return m.Name == name }); i >= 0 {
		better = t.Contract.Metrics[i].Better
	}
	switch {
	case name == loss:
		better = graphs.Lower
	case better == "" && name == t.Contract.Best.Metric:
		better = t.Contract.Best.Better
	}
	m := task.Metric{Name: name, Directed: better != ""}
	if better == graphs.Lower {
		m.Better = runner.LowerIsBetter
	} else {
		m.Better = runner.HigherIsBetter
	}
	return m
}

// CheckData implements task.Task: nothing beyond the contract is known of the data.
func (t Task) CheckData(*convert.Manifest) string { return "" }

// CheckSplit implements task.Task.
func (t Task) CheckSplit(string, *convert.Split) string { return "" }

// OnlyAnswer implements task.Task.
func (t Task) OnlyAnswer(*convert.Manifest, *convert.Split) (answer string, only bool) {
	return "", false
}
