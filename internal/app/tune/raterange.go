package tune

import "math"

// RateRange is what a training tells whose learning rate rises from step to step, from far too low to
// far too high; Smith, Cyclical Learning Rates for Training Neural Networks, 2017, section 3.3.
type RateRange struct {
	// Rates and Losses are those of each step, up to where the training diverged.
	Rates  []float64 `json:"learning_rates"`
	Losses []float64 `json:"losses"`
	// Smoothed are averages of the losses, of which older ones count less.
	Smoothed []float64 `json:"smoothed"`
	// Lowest is the rate at the lowest smoothed loss, and Steepest the one below it at which the
	// smoothed loss falls fastest, which is a rate to train with. Both are 0 if the loss does not fall.
	Lowest   float64 `json:"lowest"`
	Steepest float64 `json:"suggested"`
}

const (
	// smoothing is the share that an average of losses keeps of the one before.
	smoothing = 0.9
	// diverged is how many times its lowest a loss is when training has diverged.
	diverged = 4
	// settle is the number of first steps whose averages say little.
	settle = 10
)

// FindRate analyses the losses of a training by the learning rates of its steps, which rise
// exponentially. Both have the same length.
func FindRate(rates, losses []float64) RateRange {
	var r RateRange
	average, lowest := 0.0, math.Inf(1)
	at := 0
	for i, loss := range losses {
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			break
		}
		average = smoothing*average + (1-smoothing)*loss
		smoothed := average / (1 - math.Pow(smoothing, float64(i+1))) // as if there were no zeros before
		if i >= settle && smoothed > diverged*lowest && lowest > 0 {
			break
		}
		if smoothed < lowest {
			lowest, at = smoothed, i
		}
		r.Rates, r.Losses, r.Smoothed = append(r.Rates, rates[i]), append(r.Losses, loss), append(r.Smoothed, smoothed)
	}
	fall := 0.0
	if at > 0 {
		fall = 1e-6 * math.Abs(r.Smoothed[at]) // less is rounding
	}
	for i := settle; i < at; i++ {
		// The rates are even on a logarithmic scale, so that a difference is a slope.
		if by := (r.Smoothed[i-1] - r.Smoothed[i+1]) / 2; by > fall {
			fall, r.Steepest = by, r.Rates[i]
		}
	}
	if r.Steepest > 0 {
		r.Lowest = r.Rates[at]
	}
	return r
}
