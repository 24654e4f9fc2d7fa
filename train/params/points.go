package params

import (
	"math"
	"strconv"
	"strings"

	"github.com/gorbit-ml/gorbit/runner"
)

// points returns the points of optimizer.points for a number of steps.
func (o Optimizer) points(steps int64) ([]runner.Point, error) {
	switch {
	case o.Schedule != runner.Points && o.Points != "":
		return nil, Errorf("optimizer.points", "is %q, and optimizer.schedule is %s; expected the schedule points, or no points", o.Points, o.Schedule)
	case o.Schedule != runner.Points:
		return nil, nil
	case o.WarmupSteps > 0:
		return nil, Errorf("optimizer.warmup_steps", "is %d, and optimizer.schedule is points, which begins as its points say; expected 0", o.WarmupSteps)
	case o.Points == "":
		return nil, Errorf("optimizer.points", "is empty, and optimizer.schedule is points; expected steps and factors, such as 0:0, 5%%:1, 100%%:0")
	}
	var out []runner.Point
	byStep, byShare := false, false
	for word := range strings.SplitSeq(o.Points, ",") {
		word = strings.TrimSpace(word)
		at, factor, _ := strings.Cut(word, ":")
		at = strings.TrimSpace(at)
		step, ok := stepOf(at, steps)
		f, err := strconv.ParseFloat(strings.TrimSpace(factor), 64)
		if !ok || err != nil || !(f >= 0) || math.IsInf(f, 0) {
			return nil, Errorf("optimizer.points", "has %q; expected STEP:FACTOR or SHARE%%:FACTOR, such as 1000:0.5 or 5%%:1", word)
		}
		share := strings.HasSuffix(at, "%")
		byStep, byShare = byStep || !share && step > 0, byShare || share && step > 0 // 0 is the same either way
		if byStep && byShare {
			return nil, Errorf("optimizer.points", "is %q; expected steps or shares of all steps, not both", o.Points)
		}
		if n := len(out); n > 0 && out[n-1].Step >= step {
			return nil, Errorf("optimizer.points", "has %q at step %d of %d; expected one after that of the point before, %d", word, step, steps, out[n-1].Step)
		}
		out = append(out, runner.Point{Step: step, Factor: f})
	}
	return out, nil
}

// stepOf returns the step of a number, or of a share of all steps.
func stepOf(at string, steps int64) (int64, bool) {
	if share, is := strings.CutSuffix(at, "%"); is {
		v, err := strconv.ParseFloat(share, 64)
		return int64(math.Round(v / 100 * float64(steps))), err == nil && v >= 0 && v <= 100
	}
	n, err := strconv.ParseInt(at, 10, 64)
	return n, err == nil && n >= 0
}
