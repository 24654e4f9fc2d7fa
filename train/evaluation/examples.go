package evaluation

import (
	"cmp"
	"math"
	"slices"

	"github.com/gorbit-ml/gorbit/runner"
)

// quantilesOf are the shares of which Errors has quantiles.
var quantilesOf = []float64{0, 0.05, 0.25, 0.5, 0.75, 0.95, 1}

// Examples gathers what is kept of single examples. The zero value keeps no rows.
type Examples struct {
	// Worst is the number of rows of the highest loss to keep.
	Worst  int
	rows   []Row
	errors []float64
}

// Add takes the next example.
func (x *Examples) Add(r Row) {
	if p, ok := r.Prediction.(runner.Number); ok {
		if y, ok := r.Label.(runner.Number); ok {
			x.errors = append(x.errors, float64(p-y))
		}
	}
	if x.Worst <= 0 {
		return
	}
	if x.rows = append(x.rows, r); len(x.rows) >= 2*x.Worst+1024 {
		x.cut()
	}
}

// cut sorts the rows and drops those that are not among the worst. A loss that is no number is the
// worst of all, and equal ones stay in their order.
func (x *Examples) cut() {
	slices.SortStableFunc(x.rows, func(a, b Row) int {
		if n := cmp.Compare(isNaN(b), isNaN(a)); n != 0 {
			return n
		}
		return cmp.Compare(b.Loss, a.Loss)
	})
	x.rows = x.rows[:min(len(x.rows), x.Worst)]
}

func isNaN(r Row) int {
	if math.IsNaN(float64(r.Loss)) {
		return 1
	}
	return 0
}

// End adds what was gathered to an evaluation.
func (x *Examples) End(e *Evaluation) {
	x.cut()
	e.Worst = x.rows
	if len(x.errors) == 0 {
		return
	}
	e.Errors = &Errors{Quantiles: quantiles(x.errors)}
	var sum float64
	absolute := make([]float64, len(x.errors))
	for i, v := range x.errors {
		sum += v
		absolute[i] = math.Abs(v)
	}
	e.Errors.Mean = runner.Number(sum / float64(len(x.errors)))
	e.Errors.AbsoluteQuantiles = quantiles(absolute)
}

// quantiles returns the quantiles of values as numpy.quantile does in its default way: between the
// two nearest values in a straight line.
func quantiles(values []float64) []Quantile {
	sorted := slices.Sorted(slices.Values(values))
	var out []Quantile
	for _, at := range quantilesOf {
		place := at * float64(len(sorted)-1)
		below := int(place)
		above := min(below+1, len(sorted)-1)
		v := sorted[below] + (place-float64(below))*(sorted[above]-sorted[below])
		out = append(out, Quantile{at, runner.Number(v)})
	}
	return out
}
