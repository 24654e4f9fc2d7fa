package task

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gorbit-ml/gorbit/runner"
)

// Names of the outputs of evaluations that metrics of ranks are computed from: values of every
// example, which are collected and not added up. Predictions and labels may have several columns, such
// as one for each of several labels; a weight is that of an example.
const (
	EachPrediction = runner.EachPrefix + "prediction"
	EachLabel      = runner.EachPrefix + "label"
	EachWeight     = runner.EachPrefix + "weight"
)

// Ranking is a column of the predictions and labels of all examples, to compare their orders.
type Ranking struct {
	points []point // sorted by prediction
	nan    bool
}

// point is an example.
type point struct{ prediction, label, weight float64 }

// Rankings returns a Ranking for each column of the collected outputs, without examples of weight 0. It
// returns nil if they were not collected.
func Rankings(sums runner.Sums) ([]Ranking, error) {
	p, y, w := sums[EachPrediction], sums[EachLabel], sums[EachWeight]
	switch {
	case p == nil && y == nil:
		return nil, nil
	case len(w) == 0 || len(p) != len(y) || len(p)%len(w) != 0:
		return nil, fmt.Errorf("outputs %q, %q and %q have %d, %d and %d elements; expected as many predictions as labels for each weight", EachPrediction, EachLabel, EachWeight, len(p), len(y), len(w))
	}
	columns := len(p) / len(w)
	out := make([]Ranking, columns)
	for c := range out {
		r := &out[c]
		for i, weight := range w {
			x := point{p[i*columns+c], y[i*columns+c], weight}
			if weight != 0 {
				r.points, r.nan = append(r.points, x), r.nan || math.IsNaN(x.prediction) || math.IsNaN(x.label)
			}
		}
		slices.SortStableFunc(r.points, func(a, b point) int { return cmp.Compare(a.prediction, b.prediction) })
	}
	return out, nil
}

// Spearman returns Spearman's rank correlation: Pearson's of the ranks of predictions and labels,
// where equal values share the mean of their ranks, as SciPy's spearmanr. An example of weight 2 counts
// as two. It is NaN if all predictions or all labels are equal, or one is NaN.
func (r Ranking) Spearman() float64 {
	n := len(r.points)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(r.points[i].label, r.points[j].label) })
	if r.nan || n == 0 || r.points[0].prediction == r.points[n-1].prediction || r.points[order[0]].label == r.points[order[n-1]].label {
		return math.NaN()
	}
	ofPrediction, ofLabel := make([]float64, n), make([]float64, n)
	ranks(n, func(i int) (float64, float64) { return r.points[i].prediction, r.points[i].weight }, func(i int, rank float64) { ofPrediction[i] = rank })
	ranks(n, func(i int) (float64, float64) { return r.points[order[i]].label, r.points[order[i]].weight }, func(i int, rank float64) { ofLabel[order[i]] = rank })
	var w, p, y float64
	for i, x := range r.points {
		w, p, y = w+x.weight, p+x.weight*ofPrediction[i], y+x.weight*ofLabel[i]
	}
	p, y = p/w, y/w
	var both, varP, varY float64
	for i, x := range r.points {
		dp, dy := ofPrediction[i]-p, ofLabel[i]-y
		both, varP, varY = both+x.weight*dp*dy, varP+x.weight*dp*dp, varY+x.weight*dy*dy
	}
	return max(-1, min(1, both/math.Sqrt(varP)/math.Sqrt(varY)))
}

// ranks calls set with the rank of each of n sorted values: the weight before it and half of that of
// the values equal to it.
func ranks(n int, at func(i int) (value, weight float64), set func(i int, rank float64)) {
	before := 0.0
	for i := 0; i < n; {
		value, same := 0.0, 0.0
		j := i
		for ; j < n; j++ {
			v, w := at(j)
			if j > i && v != value {
				break
			}
			value, same = v, same+w
		}
		for ; i < j; i++ {
			set(i, before+same/2)
		}
		before += same
	}
}

// AUC returns the area under the ROC curve: the share of pairs of an example with a label above 0 and
// one without whose predictions are in that order, where equal predictions count half, as
// scikit-learn's roc_auc_score. It is NaN if all examples have a label above 0 or none has, or one
// prediction is NaN.
func (r Ranking) AUC() float64 {
	if r.nan {
		return math.NaN()
	}
	var pairs, with, without float64
	for i := 0; i < len(r.points); {
		var have, lack float64
		value := r.points[i].prediction
		for ; i < len(r.points) && r.points[i].prediction == value; i++ {
			if x := r.points[i]; x.label > 0 {
				have += x.weight
			} else {
				lack += x.weight
			}
		}
		pairs += have * (without + lack/2)
		with, without = with+have, without+lack
	}
	if with == 0 || without == 0 {
		return math.NaN()
	}
	return pairs / (with * without)
}

// MeanAUC returns the mean AUC of the rankings for which it is defined, or NaN if there are none.
func MeanAUC(all []Ranking) float64 {
	sum, n := 0.0, 0.0
	for _, r := range all {
		if r.nan {
			return math.NaN()
		}
		if auc := r.AUC(); !math.IsNaN(auc) {
			sum, n = sum+auc, n+1
		}
	}
	return sum / n
}
