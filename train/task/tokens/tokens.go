// Package tokens implements the task of assigning a label to every word, such as its part of speech or
// a tag of named entities.
package tokens

import (
	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/task"
	"github.com/gorbit-ml/gorbit/train/task/generic"
)

// Name is the name of the task in contracts.
const Name = "tokens"

// Names of the sums, in addition to those of package runner.
const (
	// TokenCounts has, for each of C labels, the weights of the tokens whose label and prediction it is,
	// whose prediction it is, and whose label it is: [C, 3].
	TokenCounts = "token_counts"
	// EntityCounts has, for each type of entity, the weights of the entities that are predicted and
	// true, that are predicted, and that are true: [types, 3].
	EntityCounts = "entity_counts"
)

// Task is the task of labelling tokens of a graph.
type Task struct{ generic.Task }

var _ task.Task = Task{}

// New returns the task of a graph with the given contract. results may be nil if the contract has no
// metrics of its own.
func New(c *graphs.Contract, results task.Results) Task { return Task{generic.New(c, results)} }

// Measure implements task.Task. Beside the generic metrics, accuracy among them, it returns
//
//   - from EntityCounts, where the labels are tags of entities: precision, recall, f1, macro_f1 and
//     f1_TYPE of each type, as seqeval in its default mode;
//   - otherwise, from TokenCounts: macro_f1 over the labels that occur or are predicted, as
//     scikit-learn with zero_division=0.
func (t Task) Measure(sums runner.Sums) (runner.Outputs, error) {
	out, err := t.Task.Measure(sums)
	if err != nil {
		return nil, err
	}
	if flat, ok := sums[EntityCounts]; ok {
		all, err := task.CountsOf(EntityCounts, flat)
		if err != nil {
			return nil, err
		}
		total := task.Total(all)
		out["precision"], out["recall"], out["f1"] = total.Precision(), total.Recall(), total.F1()
		out["macro_f1"] = task.MacroF1(all)
		task.AddF1(out, all, task.Names(t.Contract, "entities"))
	} else if flat, ok := sums[TokenCounts]; ok {
		all, err := task.CountsOf(TokenCounts, flat)
		if err != nil {
			return nil, err
		}
		out["macro_f1"] = task.MacroF1(all)
	}
	return out, nil
}

// Detail implements task.Task: the table of the types of entities, or else of the tokens' labels.
func (t Task) Detail(sums runner.Sums, labels []string) (d evaluation.Detail, err error) {
	if flat, ok := sums[EntityCounts]; ok {
		all, err := task.CountsOf(EntityCounts, flat)
		d.Classes = task.Table(evaluation.OfEntity, all, task.Names(t.Contract, "entities"))
		return d, err
	}
	if flat, ok := sums[TokenCounts]; ok {
		all, err := task.CountsOf(TokenCounts, flat)
		if labels == nil {
			labels = task.Names(t.Contract, "labels")
		}
		d.Classes = task.Table(evaluation.OfTokenLabel, all, labels)
		return d, err
	}
	return d, nil
}

// better holds the direction of each metric that the task adds.
var better = map[string]runner.Better{
	"accuracy":    runner.HigherIsBetter,
	"precision":   runner.HigherIsBetter,
	"recall":      runner.HigherIsBetter,
	"f1":          runner.HigherIsBetter,
	"macro_f1":    runner.HigherIsBetter,
	task.F1Prefix: runner.HigherIsBetter,
}

// Metric implements task.Task. It knows the metrics of Measure, of which more is better.
func (t Task) Metric(name string) task.Metric { return t.Known(name, better) }

// CheckData implements task.Task: the data has the labels of the graph.
func (t Task) CheckData(m *convert.Manifest) string {
	if reason := task.CheckKind(m, convert.Tokens); reason != "" {
		return reason
	}
	return task.CheckLabels(m, task.Names(t.Contract, "labels"), task.Classes(t.Contract))
}

// CheckSplit implements task.Task: every example has labels.
func (t Task) CheckSplit(name string, s *convert.Split) string {
	return task.CheckAnswered(name, s, "labels")
}

// OnlyAnswer implements task.Task: the label of all words.
func (t Task) OnlyAnswer(m *convert.Manifest, s *convert.Split) (label string, only bool) {
	return task.OnlyLabel(m, s)
}
