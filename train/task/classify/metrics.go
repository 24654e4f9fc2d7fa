package classify

import (
	"math"

	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/task"
)

// Measure implements task.Task. It returns the outputs of generic.Task, and in addition:
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
func (t Task) Measure(sums runner.Sums) (runner.Outputs, error) {
	out, err := t.Task.Measure(sums)
	if err != nil {
		return nil, err
	}
	if _, ok := sums[CorrectSum]; ok {
		out["accuracy"] = out["correct"]
		delete(out, "correct")
	}
	m, err := task.ConfusionOf(sums)
	if err != nil {
		return nil, err
	}
	if m != nil {
		addTo(out, m)
	}
	ranked, err := task.Rankings(sums)
	if err != nil {
		return nil, err
	}
	for _, r := range ranked {
		out["auc"] = r.AUC()
	}
	return out, nil
}

// Detail implements task.Task: the table of the labels and the confusion matrix.
func (t Task) Detail(sums runner.Sums, labels []string) (evaluation.Detail, error) {
	if labels == nil {
		labels = task.Names(t.Contract, "labels")
	}
	return t.Task.Detail(sums, labels)
}

// addTo adds the metrics of a confusion matrix.
func addTo(out runner.Outputs, m *task.Confusion) {
	out["accuracy"] = task.Ratio(m.Correct, m.Total)
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
	out["macro_precision"] = task.Ratio(precision, present)
	out["macro_recall"] = task.Ratio(recall, present)
	out["macro_f1"] = task.Ratio(f1, present)
}

// mcc returns Gorodkin's R_K (Comput. Biol. Chem. 28, 2004), which for two classes is Matthews'
// correlation coefficient:
//
//	(c s - sum_k p_k t_k) / sqrt((s^2 - sum p_k^2) (s^2 - sum t_k^2))
//
// with c correct, s all, p_k predicted as k and t_k labelled k. It is 0 if all labels, or all
// predictions, are of one class.
func mcc(m *task.Confusion) float64 {
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
	return max(-1, min(1, task.Ratio(cov, math.Sqrt(varP)*math.Sqrt(varT))))
}
