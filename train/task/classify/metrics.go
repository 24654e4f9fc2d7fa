package classify

import (
	"fmt"
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
	if flat, ok := sums[Confusion]; ok {
		m, err := newConfusion(flat)
		if err != nil {
			return nil, err
		}
		m.addTo(out)
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

// Detail implements task.Task: the table of the labels and the confusion matrix, from Confusion.
func (t Task) Detail(sums runner.Sums, labels []string) (d evaluation.Detail, err error) {
	flat, ok := sums[Confusion]
	if !ok {
		return d, nil
	}
	m, err := newConfusion(flat)
	if err != nil {
		return d, err
	}
	if labels == nil {
		labels = task.Names(t.Contract, "labels")
	}
	all := make([]task.Counts, m.classes)
	for i := range all {
		all[i] = task.Counts{Right: m.diagonal[i], Predicted: m.predicted[i], True: m.labels[i]}
	}
	d.Classes, d.Confusion = task.Table(evaluation.OfLabel, all, labels), evaluation.NewConfusion(flat, m.classes, labels)
	return d, nil
}

// confusion holds the diagonal and the margins of a confusion matrix of weighted counts.
type confusion struct {
	classes   int
	diagonal  []float64 // weight of class i predicted as i
	labels    []float64 // weight of label i (row sums)
	predicted []float64 // weight of prediction i (column sums)
	correct   float64
	total     float64
}

func newConfusion(flat []float64) (*confusion, error) {
	n := int(math.Sqrt(float64(len(flat))) + 0.5)
	if n*n != len(flat) || n == 0 {
		return nil, fmt.Errorf("output %q has %d elements; expected a square matrix", Confusion, len(flat))
	}
	m := &confusion{
		classes:   n,
		diagonal:  make([]float64, n),
		labels:    make([]float64, n),
		predicted: make([]float64, n),
	}
	for i, v := range flat {
		row, col := i/n, i%n
		m.labels[row] += v
		m.predicted[col] += v
		m.total += v
		if row == col {
			m.diagonal[row] = v
			m.correct += v
		}
	}
	return m, nil
}

func (m *confusion) addTo(out runner.Outputs) {
	out["accuracy"] = ratio(m.correct, m.total)
	out["mcc"] = m.mcc()
	if m.classes == 2 {
		out["precision"], out["recall"], out["f1"] = m.class(1)
		return
	}
	var precision, recall, f1, present float64
	for i := range m.classes {
		if m.labels[i] == 0 && m.predicted[i] == 0 {
			continue
		}
		p, r, f := m.class(i)
		precision, recall, f1, present = precision+p, recall+r, f1+f, present+1
	}
	out["macro_precision"] = ratio(precision, present)
	out["macro_recall"] = ratio(recall, present)
	out["macro_f1"] = ratio(f1, present)
}

// class returns precision, recall and F1 = 2 TP / (2 TP + FP + FN) of one class against the rest.
func (m *confusion) class(i int) (precision, recall, f1 float64) {
	tp := m.diagonal[i]
	return ratio(tp, m.predicted[i]), ratio(tp, m.labels[i]), ratio(2*tp, m.labels[i]+m.predicted[i])
}

// mcc returns Gorodkin's R_K (Comput. Biol. Chem. 28, 2004), which for two classes is Matthews'
// correlation coefficient:
//
//	(c s - sum_k p_k t_k) / sqrt((s^2 - sum p_k^2) (s^2 - sum t_k^2))
//
// with c correct, s all, p_k predicted as k and t_k labelled k. It is 0 if all labels, or all
// predictions, are of one class.
func (m *confusion) mcc() float64 {
	if occurring(m.labels) < 2 || occurring(m.predicted) < 2 {
		return 0 // tested on the counts because fractional weights cause rounding errors below
	}
	s := m.total
	cov, varP, varT := m.correct*s, s*s, s*s
	for k := range m.classes {
		cov -= m.predicted[k] * m.labels[k]
		varP -= m.predicted[k] * m.predicted[k]
		varT -= m.labels[k] * m.labels[k]
	}
	// Rounding may exceed the range.
	return max(-1, min(1, ratio(cov, math.Sqrt(varP)*math.Sqrt(varT))))
}

// occurring counts the classes that have weight.
func occurring(weights []float64) int {
	n := 0
	for _, w := range weights {
		if w != 0 {
			n++
		}
	}
	return n
}

// ratio returns a/b, or 0 if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
