package task

import (
	"fmt"
	"math"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// Classification is the name in contracts of the task of assigning one label to every example.
const Classification = "classification"

// CorrectSum is a classifier's sum, in addition to those of package runner and ConfusionSum: the weight
// of the correct predictions, for accuracy.
const CorrectSum = "correct_sum"

var classification = Kind{
	Name: Classification,
	Better: map[string]runner.Better{
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
	},
	Measure: measureClasses,
	Detail: func(c *graphs.Contract, sums runner.Sums, labels []string) (evaluation.Detail, error) {
		if labels == nil {
			labels = Names(c, "labels")
		}
		return confusionDetail(c, sums, labels)
	},
	CheckData:  checkClasses,
	CheckSplit: checkLabeled,
	OnlyAnswer: OnlyLabel,
}

// measureClasses adds:
//
//   - From correct_sum: accuracy, instead of correct.
//   - From confusion: accuracy, mcc and, for two classes, precision, recall and f1 of class 1 (as
//     GLUE reports MRPC and QQP); for any other number of classes macro_precision, macro_recall and
//     macro_f1, the unweighted means over the classes that occur as label or prediction. Each is 0
//     if its denominator is 0. Definitions and zero cases are those of scikit-learn
//     (accuracy_score, precision_recall_fscore_support with zero_division=0, matthews_corrcoef);
//     mcc for more than two classes is Gorodkin's R_K.
//   - From the collected differences of the two logits of two classes: auc, as scikit-learn's
//     roc_auc_score of class 1.
func measureClasses(_ *graphs.Contract, sums runner.Sums, out runner.Outputs) error {
	if _, ok := sums[CorrectSum]; ok {
		out["accuracy"] = out["correct"]
		delete(out, "correct")
	}
	m, err := ConfusionOf(sums)
	if err != nil {
		return err
	}
	if m != nil {
		addTo(out, m)
	}
	ranked, err := Rankings(sums)
	for _, r := range ranked {
		out["auc"] = r.AUC()
	}
	return err
}

// checkClasses checks that the data has one label for each example, and the labels of the graph, or as many
// if it does not name them.
func checkClasses(c *graphs.Contract, m *convert.Manifest) string {
	if reason := CheckKind(m, convert.Classification); reason != "" {
		return reason
	}
	got, want := len(m.Labels), Classes(c)
	switch {
	case got == 0:
		return ""
	case want == 0 || got == want:
		return CheckLabels(m, Names(c, "labels"), 0)
	case got == 1:
		return fmt.Sprintf("has only the label %q; expected %d, as in the graph; convert rows that have all labels", m.Labels[0], want)
	default:
		return fmt.Sprintf("has %d labels; expected %d, as in the graph; export with --num-labels %[1]d", got, want)
	}
}

// checkLabeled checks that every example has a label.
func checkLabeled(name string, s *convert.Split) string {
	var labeled int64
	for _, n := range s.LabelCounts {
		labeled += n
	}
	if labeled > s.Records { // a list of categories by a schema
		return fmt.Sprintf("the %d examples of split %s have %d labels; expected one each, as in the graph", s.Records, name, labeled)
	}
	if labeled < s.Records {
		return fmt.Sprintf("%d of the %d examples of split %s have no label", s.Records-labeled, s.Records, name)
	}
	return ""
}

// addTo adds the metrics of a confusion matrix.
func addTo(out runner.Outputs, m *Confusion) {
	out["accuracy"] = Ratio(m.Correct, m.Total)
	out["mcc"] = mcc(m)
	if len(m.Each) == 2 {
		c := m.Each[1]
		out["precision"], out["recall"], out["f1"] = c.Precision(), c.Recall(), c.F1()
		return
	}
	var precision, recall, f1, present float64
	for _, c := range m.Each {
		if c.True == 0 && c.Predicted == 0 {
			continue
		}
		precision, recall, f1, present = precision+c.Precision(), recall+c.Recall(), f1+c.F1(), present+1
	}
	out["macro_precision"] = Ratio(precision, present)
	out["macro_recall"] = Ratio(recall, present)
	out["macro_f1"] = Ratio(f1, present)
}

// mcc returns Gorodkin's R_K (Comput. Biol. Chem. 28, 2004), which for two classes is Matthews'
// correlation coefficient:
//
//	(c s - sum_k p_k t_k) / sqrt((s^2 - sum p_k^2) (s^2 - sum t_k^2))
//
// with c correct, s all, p_k predicted as k and t_k labelled k. It is 0 if all labels, or all
// predictions, are of one class.
func mcc(m *Confusion) float64 {
	var labels, predictions int // classes that occur
	s := m.Total
	cov, varP, varT := m.Correct*s, s*s, s*s
	for _, c := range m.Each {
		if c.True != 0 {
			labels++
		}
		if c.Predicted != 0 {
			predictions++
		}
		cov -= c.Predicted * c.True
		varP -= c.Predicted * c.Predicted
		varT -= c.True * c.True
	}
	if labels < 2 || predictions < 2 {
		return 0 // known by the counts: fractional weights cause rounding errors above
	}
	// Rounding may exceed the range.
	return max(-1, min(1, Ratio(cov, math.Sqrt(varP)*math.Sqrt(varT))))
}
