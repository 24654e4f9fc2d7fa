// Package multilabel implements the task of assigning any number of labels to every example.
package multilabel

import (
	"fmt"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/task"
	"github.com/gorbit-ml/gorbit/train/task/generic"
)

// Name is the name of the task in contracts.
const Name = "multilabel"

// Names of the sums, in addition to those of package runner.
const (
	// LabelCounts has, for each of C labels, the weights of the examples that have the label and are
	// predicted to, that are predicted to, and that have it: [C, 3].
	LabelCounts = "label_counts"
	// LabelBins has, for each label, the weights of the examples without and with it by their
	// probability: [C, 2, bins].
	LabelBins = "label_bins"
)

// Task is the multi-label task of a graph.
type Task struct{ generic.Task }

var _ task.Task = Task{}

// New returns the task of a graph with the given contract. results may be nil if the contract has no
// metrics of its own.
func New(c *graphs.Contract, results task.Results) Task { return Task{generic.New(c, results)} }

// Measure implements task.Task. Beside the generic metrics it returns
//
//   - from LabelCounts: micro_precision, micro_recall, micro_f1, macro_f1 (over the labels that occur or
//     are predicted) and f1_LABEL of each label, as scikit-learn with zero_division=0;
//   - from the collected logits: auc, the mean over the labels of the area under the ROC curve, as
//     scikit-learn's roc_auc_score. Labels that all or no examples have are left out.
//   - instead, from LabelBins, where there are many labels: auc of probabilities in bins. Examples in
//     one bin count as equal, so it differs from scikit-learn's by what lies in one bin.
func (t Task) Measure(sums runner.Sums) (runner.Outputs, error) {
	out, err := t.Task.Measure(sums)
	if err != nil {
		return nil, err
	}
	flat, ok := sums[LabelCounts]
	if !ok {
		return out, nil
	}
	all, err := task.CountsOf(LabelCounts, flat)
	if err != nil {
		return nil, err
	}
	total := task.Total(all)
	out["micro_precision"], out["micro_recall"], out["micro_f1"] = total.Precision(), total.Recall(), total.F1()
	out["macro_f1"] = task.MacroF1(all)
	task.AddF1(out, all, task.Names(t.Contract, "labels"))
	ranked, err := task.Rankings(sums)
	if err != nil {
		return nil, err
	}
	if ranked != nil {
		out["auc"] = task.MeanAUC(ranked)
	}
	bins, ok := sums[LabelBins]
	if !ok {
		return out, nil
	}
	if len(all) == 0 || len(bins)%(2*len(all)) != 0 {
		return nil, fmt.Errorf("output %q has %d elements; expected two of as many bins for each of %d labels", LabelBins, len(bins), len(all))
	}
	out["auc"] = meanAUC(bins, len(all))
	return out, nil
}

// Detail implements task.Task: the table of the labels, from LabelCounts.
func (t Task) Detail(sums runner.Sums, labels []string) (d evaluation.Detail, err error) {
	flat, ok := sums[LabelCounts]
	if !ok {
		return d, nil
	}
	all, err := task.CountsOf(LabelCounts, flat)
	if labels == nil {
		labels = task.Names(t.Contract, "labels")
	}
	d.Classes = task.Table(evaluation.OfLabel, all, labels)
	return d, err
}

// meanAUC returns the mean area under the curve of the labels for which it is defined, or 0.
func meanAUC(bins []float64, labels int) float64 {
	n := len(bins) / labels / 2
	var sum, defined float64
	for i := range labels {
		without, with := bins[2*i*n:(2*i+1)*n], bins[(2*i+1)*n:2*(i+1)*n]
		var below, pairs, have float64
		for b := range n {
			pairs += with[b] * (below + without[b]/2)
			below += without[b]
			have += with[b]
		}
		if below > 0 && have > 0 {
			sum, defined = sum+pairs/(below*have), defined+1
		}
	}
	return task.Ratio(sum, defined)
}

// better holds the direction of each metric that the task adds.
var better = map[string]runner.Better{
	"micro_precision": runner.HigherIsBetter,
	"micro_recall":    runner.HigherIsBetter,
	"micro_f1":        runner.HigherIsBetter,
	"macro_f1":        runner.HigherIsBetter,
	"auc":             runner.HigherIsBetter,
	"exact_match":     runner.HigherIsBetter,
	task.F1Prefix:     runner.HigherIsBetter,
}

// Metric implements task.Task. It knows the metrics of Measure, of which more is better.
func (t Task) Metric(name string) task.Metric { return t.Known(name, better) }

// CheckData implements task.Task: the data has the labels of the graph.
func (t Task) CheckData(m *convert.Manifest) string {
	if reason := task.CheckKind(m, convert.MultiLabel); reason != "" {
		return reason
	}
	classes := 0
	if l := t.Contract.Label(); l != nil && len(l.Shape) == 2 {
		classes = int(max(0, l.Shape[1]))
	}
	return task.CheckLabels(m, task.Names(t.Contract, "labels"), classes)
}

// CheckSplit implements task.Task: it is known of every example which labels it has.
func (t Task) CheckSplit(name string, s *convert.Split) string {
	return task.CheckAnswered(name, s, "labels")
}

// OnlyAnswer implements task.Task: the labels of all examples.
func (t Task) OnlyAnswer(m *convert.Manifest, s *convert.Split) (answer string, only bool) {
	if s.Records == 0 || s.Answered != s.Records {
		return "", false
	}
	var all []string
	for i, n := range s.LabelCounts {
		switch n {
		case 0:
		case s.Records:
			all = append(all, m.Labels[i])
		default:
			return "", false
		}
	}
	if len(all) == 0 {
		return "no label", true
	}
	return strings.Join(all, ", "), true
}
