package task

import (
	"fmt"
	"math"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// ConfusionSum is the name of the sum of an evaluation that is a confusion matrix: C x C weighted
// counts, row = label, column = prediction.
const ConfusionSum = "confusion"

// Confusion is a confusion matrix.
type Confusion struct {
	Flat           []float64 // the weighted counts, row by row
	Each           []Counts  // of each class
	Correct, Total float64   // the weights on the diagonal, and of all
}

// ConfusionOf takes the confusion matrix out of the sums of an evaluation. It is nil if there is none.
func ConfusionOf(sums runner.Sums) (*Confusion, error) {
	flat, ok := sums[ConfusionSum]
	if !ok {
		return nil, nil
	}
	n := int(math.Sqrt(float64(len(flat))) + 0.5)
	if n*n != len(flat) || n == 0 {
		return nil, fmt.Errorf("output %q has %d elements; expected a square matrix", ConfusionSum, len(flat))
	}
	m := &Confusion{Flat: flat, Each: make([]Counts, n)}
	for i, v := range flat {
		row, column := i/n, i%n
		m.Each[row].True += v
		m.Each[column].Predicted += v
		m.Total += v
		if row == column {
			m.Each[row].Right = v
			m.Correct += v
		}
	}
	return m, nil
}

// confusionDetail returns the table of the labels and the confusion matrix, of a graph that gives one.
func confusionDetail(_ *graphs.Contract, sums runner.Sums, labels []string) (evaluation.Detail, error) {
	m, err := ConfusionOf(sums)
	if m == nil || err != nil {
		return evaluation.Detail{}, err
	}
	return m.Detail(labels), nil
}

// Detail returns the table of the classes and the matrix. names may be nil.
func (m *Confusion) Detail(names []string) evaluation.Detail {
	return evaluation.Detail{Classes: Table(evaluation.OfLabel, m.Each, names), Confusion: evaluation.NewConfusion(m.Flat, len(m.Each), names)}
}
