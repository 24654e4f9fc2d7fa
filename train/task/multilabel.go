package task

import (
	"fmt"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// MultiLabel is the name in contracts of the task of assigning any number of labels to every example.
const MultiLabel = "multilabel"

// Names of the sums, in addition to those of package runner.
const (
	// LabelCounts has, for each of C labels, the weights of the examples that have the label and are
	// predicted to, that are predicted to, and that have it: [C, 3].
	LabelCounts = "label_counts"
	// LabelBins has, for each label, the weights of the examples without and with it by their
	// probability: [C, 2, bins].
	LabelBins = "label_bins"
)

var multiLabel = Kind{
	Name: MultiLabel,
	Better: map[string]runner.Better{
		"micro_precision": runner.HigherIsBetter,
		"micro_recall":    runner.HigherIsBetter,
		"micro_f1":        runner.HigherIsBetter,
		"macro_f1":        runner.HigherIsBetter,
		"auc":             runner.HigherIsBetter,
		"exact_match":     runner.HigherIsBetter,
		F1Prefix:          runner.HigherIsBetter,
	},
	Measure:    measureLabels,
	Detail:     detailLabels,
	CheckData:  checkLabels,
	CheckSplit: func(name string, s *convert.Split) string { return CheckAnswered(name, s, "labels") },
	OnlyAnswer: onlyLabels,
}

// measureLabels adds
//
//   - from LabelCounts: micro_precision, micro_recall, micro_f1, macro_f1 (over the labels that occur or
//     are predicted) and f1_LABEL of each label, as scikit-learn with zero_division=0;
//   - from the collected logits: auc, the mean over the labels of the area under the ROC curve, as
//     scikit-learn's roc_auc_score. Labels that all or no examples have are left out.
//   - instead, from LabelBins, where there are many labels: auc of probabilities in bins. Examples in
//     one bin count as equal, so it differs from scikit-learn's by what lies in one bin.
func measureLabels(c *graphs.Contract, sums runner.Sums, out runner.Outputs) error {
	flat, ok := sums[LabelCounts]
	if !ok {
		return nil
	}
	all, err := CountsOf(LabelCounts, flat)
	if err != nil {
		return err
	}
	total := Total(all)
	out["micro_precision"], out["micro_recall"], out["micro_f1"] = total.Precision(), total.Recall(), total.F1()
	out["macro_f1"] = MacroF1(all)
	AddF1(out, all, Names(c, "labels"))
	ranked, err := Rankings(sums)
	if err != nil {
		return err
	}
	if ranked != nil {
		out["auc"] = MeanAUC(ranked)
	}
	bins, ok := sums[LabelBins]
	if !ok {
		return nil
	}
	if len(all) == 0 || len(bins)%(2*len(all)) != 0 {
		return fmt.Errorf("output %q has %d elements; expected two of as many bins for each of %d labels", LabelBins, len(bins), len(all))
	}
	out["auc"] = meanBinnedAUC(bins, len(all))
	return nil
}

// detailLabels returns the table of the labels, from LabelCounts.
func detailLabels(c *graphs.Contract, sums runner.Sums, labels []string) (d evaluation.Detail, err error) {
	flat, ok := sums[LabelCounts]
	if !ok {
		return d, nil
	}
	all, err := CountsOf(LabelCounts, flat)
	if labels == nil {
		labels = Names(c, "labels")
	}
	d.Classes = Table(evaluation.OfLabel, all, labels)
	return d, err
}

// meanBinnedAUC returns the mean area under the curve of the labels for which it is defined, or 0.
func meanBinnedAUC(bins []float64, labels int) float64 {
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
	return Ratio(sum, defined)
}

// checkLabels checks that the data has the labels of the graph.
func checkLabels(c *graphs.Contract, m *convert.Manifest) string {
	if reason := CheckKind(m, convert.MultiLabel); reason != "" {
		return reason
	}
	classes := 0
	if l := c.Label(); l != nil && len(l.Shape) == 2 {
		classes = int(max(0, l.Shape[1]))
	}
	return CheckLabels(m, Names(c, "labels"), classes)
}

// onlyLabels returns the labels of all examples.
func onlyLabels(m *convert.Manifest, s *convert.Split) (answer string, only bool) {
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
