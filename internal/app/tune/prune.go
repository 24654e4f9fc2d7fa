package tune

import (
	"math"
	"slices"
)

// judge reports whether a trial should end, given its last report. It also notes the rungs that the
// trial reached. It looks at other trials after as many evaluations.
func (s *Study) judge(t *Trial) bool {
	switch s.config.Pruner.Name {
	case Median:
		return s.belowMedian(t)
	case ASHA:
		return s.leftBehind(t)
	}
	return false
}

// belowMedian reports whether the best evaluation of a trial so far is worse than the median of what
// complete trials had after as many; MedianPruner in optuna/pruners/_median.py.
func (s *Study) belowMedian(t *Trial) bool {
	p, n := s.config.Pruner, len(t.Reports)
	complete := 0
	var others []float64
	for _, o := range s.trials {
		if o.State != Complete {
			continue
		}
		complete++
		if len(o.Reports) >= n && !math.IsNaN(o.Reports[n-1].Value) {
			others = append(others, o.Reports[n-1].Value)
		}
	}
	if complete == 0 || complete < p.Startup || n <= p.Warmup {
		return false
	}
	best := math.NaN()
	for _, r := range t.Reports {
		if s.config.better(r.Value, best) {
			best = r.Value
		}
	}
	if math.IsNaN(best) {
		return true
	}
	return len(others) > 0 && s.config.better(median(others), best)
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

// leftBehind reports whether a trial has reached a rung and is not among the best 1/Factor of those
// that reached it before; SuccessiveHalvingPruner in optuna/pruners/_successive_halving.py. The
// first Factor-1 trials at a rung continue if they are the best so far.
func (s *Study) leftBehind(t *Trial) bool {
	value := t.Reports[len(t.Reports)-1].Value
	for {
		rung := len(t.rungs)
		if float64(len(t.Reports)) < float64(s.config.Pruner.Min)*math.Pow(float64(s.config.Pruner.Factor), float64(rung)) {
			return false
		}
		if math.IsNaN(value) {
			return true
		}
		t.rungs = append(t.rungs, value)
		var there []float64
		for _, o := range s.trials {
			if len(o.rungs) > rung {
				there = append(there, o.rungs[rung])
			}
		}
		slices.SortFunc(there, s.config.compare)
		if last := there[max(0, len(there)/s.config.Pruner.Factor-1)]; s.config.better(last, value) {
			return true
		}
	}
}
