package tune

import (
	"math"
	"testing"
)

// curve makes losses that fall around the rate 1e-3 and rise beyond 1e-1.
func curve(n int) (rates, losses []float64) {
	for i := range n {
		rate := 1e-6 * math.Pow(1e6, float64(i)/float64(n))
		rates = append(rates, rate)
		loss := 2 - 1/(1+math.Exp(-4*math.Log10(rate/1e-3))) + math.Pow(rate/0.3, 4)
		losses = append(losses, loss+0.02*math.Sin(float64(3*i)))
	}
	return rates, losses
}

func TestFindRate(t *testing.T) {
	rates, losses := curve(200)
	r := FindRate(rates, losses)
	if r.Steepest < 5e-4 || r.Steepest > 5e-3 || r.Lowest < 2*r.Steepest || r.Lowest > 0.3 {
		t.Errorf("steepest at %v and lowest at %v; expected about 1e-3 and 1e-1", r.Steepest, r.Lowest)
	}
	if n := len(r.Rates); n >= 200 || n < 100 || len(r.Losses) != n || len(r.Smoothed) != n {
		t.Errorf("%d of 200 points are kept; expected those before the loss is %d times its lowest", n, diverged)
	}
	losses[120] = math.NaN()
	if r := FindRate(rates, losses); len(r.Rates) != 120 {
		t.Errorf("%d points before the first that is no number; expected 120", len(r.Rates))
	}
	for name, loss := range map[string]func(int) float64{
		"flat":   func(int) float64 { return 0.7 },
		"rising": func(i int) float64 { return 0.7 + float64(i)/100 },
		"NaN":    func(int) float64 { return math.NaN() },
	} {
		for i := range losses {
			losses[i] = loss(i)
		}
		if r := FindRate(rates, losses); r.Steepest != 0 || r.Lowest != 0 {
			t.Errorf("%s: suggests %v; expected nothing", name, r.Steepest)
		}
	}
	FindRate(nil, nil)
}
