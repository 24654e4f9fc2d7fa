package train

import (
	"math"
	"slices"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// integers returns the values of a feature of integers.
func integers(f *dataset.Feature) []int64 {
	out := slices.Clone(f.Int64)
	for _, v := range f.Int32 {
		out = append(out, int64(v))
	}
	for _, v := range f.Uint8 {
		out = append(out, int64(v))
	}
	return out
}

// oneLoss is answer for one label of several.
func oneLoss(row *evaluation.Row, y int64, p, logits []float64, name func(int) string) (float64, bool) {
	if len(p) == 1 { // of the second of two
		p, logits = []float64{1 - p[0], p[0]}, nil
	}
	row.Label, row.Prediction = name(int(y)), name(largest(p))
	row.Probabilities = make(runner.Outputs, len(p))
	for i, v := range p {
		row.Probabilities[name(i)] = v
	}
	if y < 0 || y >= int64(len(p)) {
		return math.NaN(), true
	}
	return crossEntropy(int(y), p, logits), true
}

// severalLoss is answer for any number of labels: the mean of the labels' cross entropies.
func severalLoss(row *evaluation.Row, y []float32, p []float64, name func(int) string) (float64, bool) {
	labels, predicted := []string{}, []string{}
	row.Probabilities = make(runner.Outputs, len(p))
	var sum float64
	for i, v := range p {
		row.Probabilities[name(i)] = v
		if y[i] != 0 {
			labels = append(labels, name(i))
			sum -= math.Log(v)
		} else {
			sum -= math.Log1p(-v)
		}
		if v >= 0.5 {
			predicted = append(predicted, name(i))
		}
	}
	row.Label, row.Prediction = labels, predicted
	return sum / float64(len(p)), true
}

// tagLoss is answer for a label of each token, less than 0 for tokens that do not count: the mean of
// the tokens' cross entropies.
func tagLoss(row *evaluation.Row, y []int32, p, logits []float64, name func(int) string) (float64, bool) {
	labels, predicted := []string{}, []string{}
	var sum float64
	n := 0
	for _, v := range [][]float64{p, logits} {
		if n == 0 && len(v) > 0 {
			n = len(p) / max(1, len(y))
		}
	}
	if n == 0 || len(p) < n*len(y) {
		return 0, false
	}
	for i, label := range y {
		if label < 0 || int(label) >= n {
			continue
		}
		mine := p[i*n : (i+1)*n]
		var l []float64
		if len(logits) == len(p) {
			l = logits[i*n : (i+1)*n]
		}
		labels, predicted = append(labels, name(int(label))), append(predicted, name(largest(mine)))
		sum += crossEntropy(int(label), mine, l)
	}
	row.Label, row.Prediction = labels, predicted
	return sum / float64(len(labels)), len(labels) > 0
}

// crossEntropy returns -log of the probability of a class, of logits if they are given, which do not
// round it to 0.
func crossEntropy(y int, p, logits []float64) float64 {
	if len(logits) != len(p) {
		return -math.Log(p[y])
	}
	most, sum := slices.Max(logits), 0.0
	for _, l := range logits {
		sum += math.Exp(l - most)
	}
	return most + math.Log(sum) - logits[y]
}

// largest returns the index of the largest value, the first of several.
func largest(p []float64) int {
	best := 0
	for i, v := range p {
		if v > p[best] {
			best = i
		}
	}
	return best
}
