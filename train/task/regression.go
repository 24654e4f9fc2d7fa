package task

import (
	"fmt"
	"math"
	"strconv"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// Regression is the name in contracts of the task of assigning one number to every example.
const Regression = "regression"

// Moments is the sum that the metrics are computed from, of shape [2, 7]. Its columns are the sums of
// w, w y, w p, w y^2, w p^2, w y p and w |p - y|, with labels y, predictions p and weights w. Each is in
// two float32 that add up to it.
const Moments = "moments"

const momentColumns = 7

var regression = Kind{
	Name: Regression,
	Better: map[string]runner.Better{
		"mse":      runner.LowerIsBetter,
		"mae":      runner.LowerIsBetter,
		"r2":       runner.HigherIsBetter,
		"pearson":  runner.HigherIsBetter,
		"spearman": runner.HigherIsBetter,
	},
	Measure:    measureNumbers,
	CheckData:  func(_ *graphs.Contract, m *convert.Manifest) string { return CheckKind(m, convert.Regression) },
	CheckSplit: func(name string, s *convert.Split) string { return CheckAnswered(name, s, "number") },
	OnlyAnswer: onlyNumber,
}

// measureNumbers adds, if there are Moments, mse, mae, r2 and pearson, as scikit-learn's
// mean_squared_error, mean_absolute_error and r2_score and SciPy's pearsonr, all weighted, and spearman
// as SciPy's spearmanr if the predictions were collected. A metric that is not defined is NaN: r2 if all
// labels are equal, pearson and spearman if all labels or all predictions are.
func measureNumbers(_ *graphs.Contract, sums runner.Sums, out runner.Outputs) error {
	flat, ok := sums[Moments]
	if !ok {
		return nil
	}
	if len(flat) != 2*momentColumns {
		return fmt.Errorf("output %q has %d elements; expected %d", Moments, len(flat), 2*momentColumns)
	}
	var m [momentColumns]float64
	for i := range m {
		m[i] = flat[i] + flat[momentColumns+i]
	}
	w, y, p := m[0], m[1]/m[0], m[2]/m[0]
	squares := m[3] + m[4] - 2*m[5] // of p - y
	varY, varP := variance(m[3]/w, y), variance(m[4]/w, p)
	out["mse"] = max(0, squares/w)
	out["mae"] = m[6] / w
	out["r2"] = 1 - out["mse"]/varY
	if varY == 0 {
		out["r2"] = math.NaN()
	}
	// Rounding may exceed the range. 0 / 0 is NaN.
	out["pearson"] = max(-1, min(1, (m[5]/w-y*p)/math.Sqrt(varY*varP)))
	if varY == 0 || varP == 0 {
		out["pearson"] = math.NaN()
	}
	ranked, err := Rankings(sums)
	if err != nil {
		return err
	}
	for _, r := range ranked {
		out["spearman"] = r.Spearman()
	}
	return nil
}

// variance returns the variance from the mean of the squares and the mean. What is not more than the
// rounding of float64 is 0.
func variance(squares, mean float64) float64 {
	v := squares - mean*mean
	if v <= 1e-14*squares {
		return 0
	}
	return v
}

// onlyNumber returns the number of all examples.
func onlyNumber(_ *convert.Manifest, s *convert.Split) (answer string, only bool) {
	if s.Values == nil || s.Values.Min != s.Values.Max {
		return "", false
	}
	return strconv.FormatFloat(s.Values.Min, 'g', -1, 32), true
}
