// Package chart prepares series of numbers to be drawn: round ticks, scales, and as few points as a
// picture has room for. It also draws them on a terminal, with Braille characters.
package chart

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Scale maps values to positions from 0, at the lowest, to 1.
type Scale struct {
	// Low and High are the values at 0 and 1. On a logarithmic scale both are positive.
	Low, High float64
	Log       bool
}

// At returns the position of a value. Values beyond the ends are beyond 0 and 1.
func (s Scale) At(v float64) float64 {
	low, high := s.Low, s.High
	if s.Log {
		v, low, high = math.Log10(v), math.Log10(low), math.Log10(high)
	}
	if high == low {
		return 0.5
	}
	return (v - low) / (high - low)
}

// Linear returns a scale for values from low to high, with some room at both ends, and about n round
// ticks on it. The ends are those of the values, or of a range around them if they are equal.
func Linear(low, high float64, n int) (Scale, []float64) {
	switch room := math.Abs(low) / 10; {
	case low == high && room == 0:
		high = 1
	case low == high:
		low, high = low-room, high+room
	}
	room := (high - low) / 25
	s := Scale{Low: low - room, High: high + room}
	if low >= 0 && s.Low < 0 {
		s.Low = 0
	}
	return s, ticks(s.Low, s.High, n)
}

// ticks returns the multiples of a round number between low and high, about n of them.
func ticks(low, high float64, n int) []float64 {
	step := roundStep((high - low) / float64(max(n, 1)))
	var out []float64
	for i := math.Ceil(low/step - 1e-9); i*step <= high+step*1e-9; i++ {
		// Dividing by a whole number keeps 0.3 from being 0.30000000000000004.
		if inverse := math.Round(1 / step); step < 1 && math.Abs(inverse*step-1) < 1e-9 {
			out = append(out, i/inverse)
		} else {
			out = append(out, i*step)
		}
	}
	return out
}

// roundStep returns the least of 1, 2, 5 times a power of ten that is not much below v.
func roundStep(v float64) float64 {
	if !(v > 0) || math.IsInf(v, 0) {
		return 1
	}
	power := math.Pow10(int(math.Floor(math.Log10(v))))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*0.85 {
			return m * power
		}
	}
	return 10 * power
}

// Steps returns about n round ticks for whole numbers from low to high.
func Steps(low, high float64, n int) []float64 {
	step := max(1, roundStep((high-low)/float64(max(n, 1))))
	var out []float64
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		out = append(out, v)
	}
	return out
}

// Logarithmic returns a scale for positive values from low to high, and ticks on it: powers of ten,
// with 2 and 5 times these, or 2 to 9 times, if there are few.
func Logarithmic(low, high float64) (Scale, []float64) {
	if low == high {
		low, high = low/2, high*2
	}
	room := math.Pow(high/low, 1.0/25)
	s := Scale{Low: low / room, High: high * room, Log: true}
	first, last := int(math.Floor(math.Log10(s.Low))), int(math.Ceil(math.Log10(s.High)))
	factors := []float64{1}
	if last-first <= 4 {
		factors = []float64{1, 2, 5}
	}
	every := max(1, (last-first)/6)
	out := s.multiples(factors, every)
	if len(out) < fewTicks {
		out = s.multiples(digits, 1)
	}
	if len(out) < 3 { // less than a factor of two or so
		out = ticks(s.Low, s.High, 4)
	}
	return s, out
}

// digits are the factors of the powers of ten that have a line on a logarithmic scale.
var digits = []float64{1, 2, 3, 4, 5, 6, 7, 8, 9}

// fewTicks is the number of ticks below which a logarithmic scale has one for every digit, and mostDecades the
// number of powers of ten up to which it has a line for every digit.
const fewTicks, mostDecades = 4, 6

// multiples returns the multiples of powers of ten on the scale, of every n-th power.
func (s Scale) multiples(factors []float64, every int) []float64 {
	var out []float64
	for e := int(math.Floor(math.Log10(s.Low))); e <= int(math.Ceil(math.Log10(s.High))); e++ {
		if e%every != 0 {
			continue
		}
		for _, f := range factors {
			// Dividing keeps 3e-1 from being 0.30000000000000004.
			v := f * math.Pow10(e)
			if e < 0 {
				v = f / math.Pow10(-e)
			}
			if v >= s.Low && v <= s.High {
				out = append(out, v)
			}
		}
	}
	return out
}

// Between returns the values of further lines of the grid of a logarithmic scale: the multiples of powers of
// ten that have no tick. A linear scale has none.
func (s Scale) Between(marks []float64) []float64 {
	if !s.Log || math.Log10(s.High/s.Low) > mostDecades {
		return nil
	}
	var out []float64
	for _, v := range s.multiples(digits, 1) {
		if !slices.Contains(marks, v) {
			out = append(out, v)
		}
	}
	return out
}

// Label writes a tick, in few characters: 0.25, 1500, 20k, 1.5M, 2e-05.
func Label(v float64) string {
	a := math.Abs(v)
	switch {
	case v == 0:
		return "0"
	case a < 1e-3 || a >= 1e12:
		return trimExponent(strconv.FormatFloat(v, 'g', 3, 64))
	case a >= 1e9:
		return strconv.FormatFloat(v/1e9, 'g', 4, 64) + "G"
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 4, 64) + "M"
	case a >= 1e4:
		return strconv.FormatFloat(v/1e3, 'f', -1, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// Labels writes ticks, all in one form.
func Labels(ticks []float64) []string {
	small := false
	for _, v := range ticks {
		small = small || v != 0 && math.Abs(v) < 1e-3
	}
	out := make([]string, len(ticks))
	for i, v := range ticks {
		if out[i] = Label(v); small && v != 0 && math.Abs(v) < 1 {
			out[i] = trimExponent(strconv.FormatFloat(v, 'e', -1, 64))
		}
	}
	return out
}

// Value writes a value with four significant digits.
func Value(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "∞"
	case math.IsInf(v, -1):
		return "−∞"
	case a >= 1e4 && a < 1e15:
		return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	}
	return trimExponent(strconv.FormatFloat(v, 'g', 4, 64))
}

// trimExponent writes 1e-05 as 1e-5.
func trimExponent(s string) string {
	for _, sign := range []string{"e-", "e+"} {
		if head, tail, ok := strings.Cut(s, sign+"0"); ok {
			s = head + sign + tail
		}
	}
	return strings.Replace(s, "e+", "e", 1)
}

// Bucket is what is drawn in the place of neighbouring points.
type Bucket struct {
	// First and Last are the steps of the points.
	First, Last int64
	// Min, Max and Mean are those of their finite values. If none is finite, all three are NaN.
	Min, Max, Mean float64
}

// Middle returns the step at which a bucket is drawn.
func (b Bucket) Middle() float64 { return (float64(b.First) + float64(b.Last)) / 2 }

// Downsample divides points, whose steps rise, into at most n buckets of about equally many. No
// extreme value is lost: it is the Min or Max of its bucket. With at most n points each is a bucket.
func Downsample(steps []int64, values []float64, n int) []Bucket {
	count := len(steps)
	n = min(max(n, 1), count)
	out := make([]Bucket, 0, n)
	for i := range n {
		from, to := i*count/n, (i+1)*count/n
		b := Bucket{First: steps[from], Last: steps[to-1], Min: math.Inf(1), Max: math.Inf(-1)}
		finite, sum := 0, 0.0
		for _, v := range values[from:to] {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				continue
			}
			b.Min, b.Max = min(b.Min, v), max(b.Max, v)
			finite++
			sum += v
		}
		if b.Mean = sum / float64(finite); finite == 0 {
			b.Min, b.Max, b.Mean = math.NaN(), math.NaN(), math.NaN()
		}
		if finite == 1 {
			b.Mean = b.Min // not rounded
		}
		out = append(out, b)
	}
	return out
}
