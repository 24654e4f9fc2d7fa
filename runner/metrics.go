package runner

import (
	"fmt"
	"math"
	"strings"
)

// The names of sums that every step gives.
const (
	LossSum   = "loss_sum"   // sum of the weighted losses
	WeightSum = "weight_sum" // sum of the example (or token) weights
)

// A MetricsFunc computes metrics from sums.
type MetricsFunc func(Sums) (Outputs, error)

// Metrics is the MetricsFunc that knows no task: a sum named X_sum gives the mean
// X = X_sum / weight_sum, so that loss_sum gives loss. Where weight_sum is zero nothing was
// measured, and these are NaN. Sums of other names are left to a MetricsFunc of the caller's.
func Metrics(sums Sums) (Outputs, error) {
	weight, err := sums.scalar(WeightSum)
	if err != nil {
		return nil, err
	}
	out := Outputs{}
	for name, v := range sums {
		base, isSum := strings.CutSuffix(name, "_sum")
		switch {
		case name == WeightSum || !isSum || base == "":
			continue
		case len(v) != 1:
			return nil, fmt.Errorf("output %q has %d elements: only a scalar gives a metric", name, len(v))
		}
		if weight == 0 {
			out[base] = math.NaN()
		} else {
			out[base] = v[0] / weight
		}
	}
	return out, nil
}
