// Package task says what is particular to a kind of answers: metrics beyond those that a graph
// computes itself, their directions, and checks of data. Everything else is in the contract of the
// graph. A table has the tasks that are known, a row ([Kind]) and a file each; a program can add rows
// of its own with [Register]. A contract that names none of them has the task of what it says itself.
package task

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	textscores "github.com/gorbit-ml/gorbit/text/scores"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// Kind is what a task adds to what every contract has. Fields that are nil add nothing.
type Kind struct {
	// Name is the name of the task in contracts.
	Name string
	// Better holds the direction of each metric that Measure adds, that of the F1 of single classes
	// under F1Prefix.
	Better map[string]runner.Better
	// Measure adds metrics of sums to out, which has the contract's own and the means of other sums.
	Measure func(c *graphs.Contract, sums runner.Sums, out runner.Outputs) error
	// Reduce replaces outputs of an evaluation under runner.EachPrefix before they are collected, given
	// the features of the batch. Several goroutines may call it at once.
	Reduce func(features []dataset.Feature, out runner.Sums) error
	// Detail returns what an evaluation shows in addition to metrics. labels are the names of the
	// classes of the first label, or nil where the data do not name them. Without it, the confusion
	// matrix of a graph that gives one is shown.
	Detail func(c *graphs.Contract, sums runner.Sums, labels []string) (evaluation.Detail, error)
	// CheckData returns why a graph cannot be trained on converted data and how to fix that, such as
	// "has 3 labels; expected 2, as in the graph; ...", or "".
	CheckData func(c *graphs.Contract, m *convert.Manifest) string
	// CheckSplit returns why a split of converted data cannot be trained or evaluated on, or "".
	CheckSplit func(name string, s *convert.Split) string
	// OnlyAnswer returns the answer of all examples of a split, and whether all have the same one.
	// Nothing can be learned from such a split.
	OnlyAnswer func(m *convert.Manifest, s *convert.Split) (answer string, only bool)
}

// kinds are the tasks that are known.
var kinds = struct {
	sync.RWMutex
	table []Kind
}{table: []Kind{classification, regression, multiLabel, tokens, questionAnswering, maskedLM, languageModel, seq2seq, embed, choices}}

// Register adds a task, for the contracts that name it. It panics if k has no name or one that is known.
func Register(k Kind) {
	kinds.Lock()
	defer kinds.Unlock()
	if k.Name == "" || slices.ContainsFunc(kinds.table, func(other Kind) bool { return other.Name == k.Name }) {
		panic(fmt.Sprintf("task: %q has no name or is registered twice", k.Name))
	}
	kinds.table = append(kinds.table, k)
}

// kindOf returns the row of the table with the given name, or one that has only a name.
func kindOf(name string) Kind {
	kinds.RLock()
	defer kinds.RUnlock()
	if i := slices.IndexFunc(kinds.table, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return kinds.table[i]
	}
	return Kind{Name: name}
}

// Task is the task of a graph.
type Task struct {
	kind     Kind
	contract *graphs.Contract
	results  Results
}

// New returns the task that a contract names. results computes the contract's metrics; it may be nil if
// the contract has none.
func New(c *graphs.Contract, results Results) Task { return Task{kindOf(c.Task), c, results} }

// Name returns the name of the task in contracts.
func (t Task) Name() string { return t.kind.Name }

// Measure computes the metrics of training and evaluation from sums: those of the function results of
// the graph, means of the other sums as runner.Metrics, and what the task adds. If none of the sums of
// results is there, as in training by graphs that give them only in evaluation, its metrics are left
// out. It is a runner.MetricsFunc.
func (t Task) Measure(sums runner.Sums) (runner.Outputs, error) {
	out, err := t.own(sums)
	if err != nil || t.kind.Measure == nil {
		return out, err
	}
	if err := t.kind.Measure(t.contract, sums, out); err != nil {
		return nil, err
	}
	return out, nil
}

// own returns the metrics that every contract has.
func (t Task) own(sums runner.Sums) (runner.Outputs, error) {
	taken := make(runner.Sums)
	for _, name := range t.contract.Results {
		if v, ok := sums[name]; ok {
			taken[name] = v
		}
	}
	others := maps.Clone(sums)
	maps.DeleteFunc(others, func(name string, _ []float64) bool { return taken[name] != nil })
	out, err := runner.Metrics(others)
	if err != nil || len(taken) == 0 {
		return out, err
	}
	for _, name := range t.contract.Results {
		if taken[name] == nil {
			return nil, fmt.Errorf("output %q is missing; the metrics of the graph need %s", name, strings.Join(t.contract.Results, ", "))
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

// Reduce condenses the values of a batch's examples before an evaluation collects them; see Kind.
func (t Task) Reduce(features []dataset.Feature, out runner.Sums) error {
	if t.kind.Reduce == nil {
		return nil
	}
	return t.kind.Reduce(features, out)
}

// Reduces returns whether Reduce does anything.
func (t Task) Reduces() bool { return t.kind.Reduce != nil }

// Detail returns what an evaluation shows in addition to metrics. labels are the names of the classes
// of the first label, or nil where the data do not name them.
func (t Task) Detail(sums runner.Sums, labels []string) (evaluation.Detail, error) {
	if t.kind.Detail != nil {
		return t.kind.Detail(t.contract, sums, labels)
	}
	return confusionDetail(t.contract, sums, labels)
}

// loss is the metric that all graphs have.
const loss = "loss"

// Metric returns the metric with the given name. Its Directed is false if neither the task nor the
// contract knows it.
func (t Task) Metric(name string) Metric {
	b, ok := t.kind.Better[name]
	if !ok && strings.HasPrefix(name, F1Prefix) {
		b, ok = t.kind.Better[F1Prefix]
	}
	if ok {
		return Metric{Name: name, Better: b, Directed: true}
	}
	better := ""
	if i := slices.IndexFunc(t.contract.Metrics, func(m graphs.Metric) bool { return m.Name == name }); i >= 0 {
		better = t.contract.Metrics[i].Better
	}
	switch {
	case name == loss:
		better = graphs.Lower
	case better == "" && name == t.contract.Best.Metric:
		better = t.contract.Best.Better
	}
	if s, err := textscores.Named(name); better == "" && err == nil { // of generated texts
		if better = graphs.Higher; s.LowerIsBetter {
			better = graphs.Lower
		}
	}
	m := Metric{Name: name, Directed: better != "", Better: runner.HigherIsBetter}
	if better == graphs.Lower {
		m.Better = runner.LowerIsBetter
	}
	return m
}

// CheckData returns why the graph cannot be trained on converted data and how to fix that, or "".
func (t Task) CheckData(m *convert.Manifest) string {
	if t.kind.CheckData == nil {
		return ""
	}
	return t.kind.CheckData(t.contract, m)
}

// CheckSplit returns why a split of converted data cannot be trained or evaluated on, or "".
func (t Task) CheckSplit(name string, s *convert.Split) string {
	if t.kind.CheckSplit == nil {
		return ""
	}
	return t.kind.CheckSplit(name, s)
}

// OnlyAnswer returns the answer of all examples of a split, and whether all have the same one.
func (t Task) OnlyAnswer(m *convert.Manifest, s *convert.Split) (answer string, only bool) {
	if t.kind.OnlyAnswer == nil {
		return "", false
	}
	return t.kind.OnlyAnswer(m, s)
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
