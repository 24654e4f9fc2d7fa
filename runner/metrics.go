package runner

import (
	"fmt"
	"math"
	"strings"
)

// Names of the sums that every step returns.
const (
	LossSum   = "loss_sum"   // sum of the weighted losses
	WeightSum = "weight_sum" // sum of the example (or token) weights
)

// A MetricsFunc computes metrics from sums.
type MetricsFunc func(Sums) (Outputs, error)

// Metrics is the default MetricsFunc, for any task: from a sum named X_sum it computes the mean
// X = X_sum / weight_sum, such as loss from loss_sum. If weight_sum is zero, nothing was measured
// and the means are NaN. Where there is P/weight_sum, the sums P/X_sum are divided by that: they are those
// of a part of a step. It ignores sums with other names; a MetricsFunc of the caller may use them.
func Metrics(sums Sums) (Outputs, error) {
	weight, err := sums.scalar(WeightSum)
	if err != nil {
		return nil, err
	}
	out := Outputs{}
	for name, v := range sums {
		base, isSum := strings.CutSuffix(name, "_sum")
		of := weight
		if part, ok := sums[name[:strings.LastIndex(name, "/")+1]+WeightSum]; ok && len(part) == 1 {
			of = part[0]
		}
		switch {
		case name == WeightSum || strings.HasSuffix(name, "/"+WeightSum) || !isSum || base == "":
			continue
		case len(v) != 1:
			return nil, fmt.Errorf("output %q has %d elements; expected 1", name, len(v))
		}
		if of == 0 {
			out[base] = math.NaN()
		} else {
			out[base] = v[0] / of
		}
	}
	return out, nil
}
