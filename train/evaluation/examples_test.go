package evaluation

import (
	"fmt"
	"math"
	"testing"

	"github.com/gorbit-ml/gorbit/runner"
)

func TestExamples(t *testing.T) {
	gather := func(worst, n int) *Evaluation {
		x, e := Examples{Worst: worst}, &Evaluation{}
		for i := range n {
			x.Add(Row{Record: fmt.Sprint(i), Loss: runner.Number(i % 1000)})
		}
		x.Add(Row{Record: "nan", Loss: runner.Number(math.NaN())})
		x.End(e)
		return e
	}
	// More than the split has, none, and so many that they are cut in between.
	if e := gather(50, 3); fmt.Sprint(records(e)) != "[nan 2 1 0]" || e.Errors != nil {
		t.Errorf("%v, %v", records(e), e.Errors)
	}
	if e := gather(0, 3); e.Worst != nil {
		t.Errorf("%v", records(e))
	}
	if e := gather(4, 5000); fmt.Sprint(records(e)) != "[nan 999 1999 2999]" {
		t.Errorf("%v", records(e))
	}
	// numpy.quantile([-2, 1, 4, 3], [0, .05, .25, .5, .75, .95, 1]), and of their absolute values.
	var x Examples
	e := &Evaluation{}
	for _, v := range []float64{-2, 1, 4, 3} {
		x.Add(Row{Label: runner.Number(1), Prediction: runner.Number(1 + v)})
	}
	x.End(e)
	got := fmt.Sprintf("%.4g %.4g %.4g", e.Errors.Mean, e.Errors.Quantiles, e.Errors.AbsoluteQuantiles)
	const want = "1.5 [{0 -2} {0.05 -1.55} {0.25 0.25} {0.5 2} {0.75 3.25} {0.95 3.85} {1 4}] [{0 1} {0.05 1.15} {0.25 1.75} {0.5 2.5} {0.75 3.25} {0.95 3.85} {1 4}]"
	if got != want {
		t.Errorf("%s\nexpected %s", got, want)
	}
}

func records(e *Evaluation) (names []string) {
	for _, r := range e.Worst {
		names = append(names, r.Record)
	}
	return names
}
