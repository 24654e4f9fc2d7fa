package params

import (
	"math"
	"strconv"
)

// Interval is a number of steps or, between 0 and 1, a share of all steps of a run. 0 and numbers below
// have a meaning of their own in each param.
type Interval float64

// Of returns the interval in a run of so many steps: a share becomes a number of steps, rounded up as
// in transformers.
func (i Interval) Of(steps int64) Interval {
	if i > 0 && i < 1 {
		return max(1, Interval(math.Ceil(float64(i)*float64(steps))))
	}
	return i
}

// Steps returns the number of steps of an interval that is no share; 0 for numbers below 0.
func (i Interval) Steps() int64 { return int64(max(i, 0)) }

// String returns the number.
func (i Interval) String() string { return strconv.FormatFloat(float64(i), 'f', -1, 64) }

// MarshalYAML implements yaml.Marshaler. Numbers of steps are whole numbers.
func (i Interval) MarshalYAML() (any, error) {
	if whole := int64(i); Interval(whole) == i {
		return whole, nil
	}
	return float64(i), nil
}

// mostSteps is the largest number of steps of an interval, within which every whole number is exact.
const mostSteps = 1 << 53

// interval is the rule of an interval of low or more.
func interval(low Interval, expected string) rule {
	return rule{expected + ", or a share of all steps, such as 0.1", func(v float64) bool {
		return v > 0 && v < 1 || v >= float64(low) && v == math.Trunc(v) && v <= mostSteps
	}}
}
