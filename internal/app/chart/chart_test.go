package chart

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		low, high float64
		want      string
	}{
		{0, 1, "0 0.2 0.4 0.6 0.8 1"},
		{0.5, 0.5, "0.46 0.48 0.5 0.52 0.54"},
		{0, 0, "0 0.2 0.4 0.6 0.8 1"},
		{0.693, 0.71, "0.695 0.7 0.705 0.71"},
		{0, 2e-4, "0 5e-5 1e-4 1.5e-4 2e-4"},
		{-3, 3, "-3 -2 -1 0 1 2 3"},
		{100, 25000, "0 5000 10k 15k 20k 25k"},
	} {
		_, marks := Linear(tt.low, tt.high, 6)
		if got := strings.Join(Labels(marks), " "); got != tt.want {
			t.Errorf("ticks of %v to %v are %s; expected %s", tt.low, tt.high, got, tt.want)
		}
	}
	for _, tt := range []struct {
		low, high float64
		want      string
	}{
		{0.1, 10, "0.1 0.2 0.5 1 2 5 10"},
		{1e-8, 1, "1e-8 1e-7 1e-6 1e-5 1e-4 1e-3 1e-2 1e-1 1"},
		{3, 4, "3 3.5 4"},
		{0.06, 0.7, "0.06 0.07 0.08 0.09 0.1 0.2 0.3 0.4 0.5 0.6 0.7"},
		{2, 8, "2 3 4 5 6 7 8"},
	} {
		_, marks := Logarithmic(tt.low, tt.high)
		if got := strings.Join(Labels(marks), " "); got != tt.want {
			t.Errorf("logarithmic ticks of %v to %v are %s; expected %s", tt.low, tt.high, got, tt.want)
		}
	}
	s, marks := Logarithmic(0.1, 10)
	if got := strings.Join(Labels(s.Between(marks)), " "); got != "0.09 0.3 0.4 0.6 0.7 0.8 0.9 3 4 6 7 8 9" {
		t.Errorf("the lines between the ticks of 0.1 to 10 are %s", got)
	}
	if got := Steps(0, 298, 7); !slices.Equal(got, []float64{0, 50, 100, 150, 200, 250}) {
		t.Errorf("steps are %v", got)
	}
}

// TestTickLaws checks that ticks lie on their scale, rise, and are neither none nor many.
func TestTickLaws(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		low := (random.Float64() - 0.5) * math.Pow10(random.IntN(20)-10)
		high := low + random.Float64()*math.Pow10(random.IntN(20)-10)
		if high-low < math.Abs(low)*1e-9 {
			continue // beyond what floats can divide
		}
		s, marks := Linear(low, high, 6)
		if s.Low > low || s.High < high || len(marks) < 2 || len(marks) > 14 || !slices.IsSorted(marks) || s.At(marks[0]) < -1e-6 || s.At(marks[len(marks)-1]) > 1+1e-6 {
			t.Fatalf("%v to %v: scale %+v, ticks %v", low, high, s, marks)
		}
	}
}

func TestValue(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.123456: "0.1235", 12345.6: "12346", 1e-5: "1e-5", 275.93: "275.9", math.Inf(-1): "−∞", 1e20: "1e20"} {
		if got := Value(v); got != want {
			t.Errorf("Value(%v) = %q; expected %q", v, got, want)
		}
	}
	if Value(math.NaN()) != "NaN" {
		t.Error("NaN")
	}
}

// TestDownsample checks that no extreme value is lost, that every point is in one bucket, and that
// values which are not finite leave gaps only where nothing else is.
func TestDownsample(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		count, n := random.IntN(500), 1+random.IntN(60)
		var steps []int64
		var values []float64
		for i := range count {
			v := random.NormFloat64()
			if random.IntN(5) == 0 {
				v = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[random.IntN(3)]
			}
			steps, values = append(steps, int64(3*i)), append(values, v)
		}
		all := Downsample(steps, values, n)
		if len(all) != min(n, count) {
			t.Fatalf("%d points are %d buckets; expected %d", count, len(all), min(n, count))
		}
		at := 0
		for _, b := range all {
			low, high := math.Inf(1), math.Inf(-1)
			for ; at < count && steps[at] <= b.Last; at++ {
				if v := values[at]; steps[at] >= b.First && !math.IsNaN(v) && !math.IsInf(v, 0) {
					low, high = min(low, v), max(high, v)
				}
			}
			if none := low > high; none != math.IsNaN(b.Mean) || !none && (b.Min != low || b.Max != high || b.Mean < low-1e-9 || b.Mean > high+1e-9) {
				t.Fatalf("bucket %+v; expected %v to %v", b, low, high)
			}
		}
		if at != count {
			t.Fatalf("%d of %d points are in no bucket", count-at, count)
		}
	}
}
