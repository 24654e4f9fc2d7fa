package tune

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Kind is what the values of a param are.
type Kind string

// The kinds of params, with the names of Optuna's distributions.
const (
	Float       Kind = "FloatDistribution"
	Int         Kind = "IntDistribution"
	Categorical Kind = "CategoricalDistribution"
)

// Distribution is where the values of a param come from. Inside of this package and in the journal
// a value is a float64, as Optuna has it: the number itself, or the position of a choice.
type Distribution struct {
	Kind Kind
	// Low and High are the least and the largest value of numbers.
	Low, High float64
	// Step is the distance between values, from Low on; 0 for numbers without steps.
	Step float64
	// Log says that values are even on a logarithmic scale.
	Log bool
	// Choices are the values of a Categorical: texts, numbers, true or false.
	Choices []any
}

// Validate returns an error that says what is wrong.
func (d Distribution) Validate() error {
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	switch d.Kind {
	case Categorical:
		return d.validateChoices()
	case Float, Int:
	default:
		return fmt.Errorf("kind is %q; expected %s, %s or %s", d.Kind, Float, Int, Categorical)
	}
	whole := func(v float64) bool { return v == math.Trunc(v) && math.Abs(v) < 1<<53 }
	switch {
	case !finite(d.Low) || !finite(d.High) || !finite(d.Step):
		return errors.New("has a bound that is not a finite number")
	case d.Low > d.High:
		return fmt.Errorf("low is %v and high is %v; expected low to be at most high", d.Low, d.High)
	case d.Step < 0:
		return fmt.Errorf("step is %v; expected more than 0", d.Step)
	case d.Log && d.Low <= 0:
		return fmt.Errorf("low is %v; expected more than 0 on a logarithmic scale", d.Low)
	case d.Kind == Int && !(whole(d.Low) && whole(d.High) && whole(d.Step)):
		return fmt.Errorf("low, high and step are %v, %v and %v; expected whole numbers", d.Low, d.High, d.Step)
	case d.Kind == Int && d.Step < 1:
		return fmt.Errorf("step is %v; expected 1 or more", d.Step)
	case d.Log && d.Step != 0 && !(d.Kind == Int && d.Step == 1):
		return fmt.Errorf("has both log and step %v; expected one of them", d.Step)
	}
	if d.Step > 0 {
		n := (d.High - d.Low) / d.Step
		if n >= maxValues {
			return fmt.Errorf("has %.0f steps; expected less than %d", n, maxValues)
		}
		if math.Abs(n-math.Round(n)) > 1e-9 {
			return fmt.Errorf("high is %v; expected low, %v, and a multiple of step, %v, such as %v", d.High, d.Low, d.Step, d.Low+math.Floor(n)*d.Step)
		}
	}
	return nil
}

func (d Distribution) validateChoices() error {
	if len(d.Choices) == 0 {
		return errors.New("has no choices; expected one or more")
	}
	for i, c := range d.Choices {
		switch v := c.(type) {
		case string, bool, int64:
		case float64:
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("choice %v; expected a text, a finite number, true or false", c)
			}
		default:
			return fmt.Errorf("choice %v; expected a text, a number, true or false", c)
		}
		if slices.Contains(d.Choices[:i], c) {
			return fmt.Errorf("choice %v is given twice; expected it once", c)
		}
	}
	return nil
}

// maxValues is the most values of a param with steps, and the most combinations of a grid.
const maxValues = 1 << 20

// count returns the number of values that a param can have; 0 if there is no limit.
func (d Distribution) count() int {
	switch {
	case d.Kind == Categorical:
		return len(d.Choices)
	case d.Step > 0:
		return int(math.Round((d.High-d.Low)/d.Step)) + 1
	case d.Low == d.High:
		return 1
	}
	return 0
}

// at returns the value at a position of those that a param with steps or choices can have.
func (d Distribution) at(i int) float64 {
	if d.Kind == Categorical {
		return float64(i)
	}
	return d.onStep(d.Low + float64(i)*d.Step)
}

// onStep returns the nearest value that a param can have.
func (d Distribution) onStep(v float64) float64 {
	if d.Step > 0 {
		// As many digits as the step has, or else 0.1 + 2 x 0.1 would be 0.30000000000000004.
		n := math.Round((v - d.Low) / d.Step)
		v, _ = strconv.ParseFloat(strconv.FormatFloat(d.Low+n*d.Step, 'g', 15, 64), 64)
	}
	return min(max(v, d.Low), d.High)
}

// has reports whether a param can have a value. Optuna may have given it one that it cannot.
func (d Distribution) has(v float64) bool {
	if d.Kind == Categorical {
		return v >= 0 && v < float64(len(d.Choices)) && v == math.Trunc(v)
	}
	return v >= d.Low && v <= d.High
}

// Text returns a value as a person would write it: 0.0001, 32, linear. A text stays as it is.
func (d Distribution) Text(v float64) string {
	switch {
	case d.Kind == Categorical && d.has(v):
		return ChoiceText(d.Choices[int(v)])
	case d.Kind == Int:
		return strconv.FormatInt(int64(v), 10)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// ChoiceText returns a choice as a person would write it.
func ChoiceText(c any) string {
	if v, ok := c.(float64); ok {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprint(c)
}

// same reports whether two distributions are of one kind, as Optuna's
// check_distribution_compatibility has it: the bounds of numbers may differ.
func (d Distribution) same(o Distribution) bool {
	return d.Kind == o.Kind && d.Log == o.Log && slices.Equal(d.Choices, o.Choices)
}

// MarshalJSON writes what Optuna's distribution_to_json writes.
func (d Distribution) MarshalJSON() ([]byte, error) {
	var attributes any
	switch d.Kind {
	case Categorical:
		choices := slices.Clone(d.Choices)
		for i, c := range choices {
			// A number of type float stays one, as in Python's json.
			if v, ok := c.(float64); ok && v == math.Trunc(v) && math.Abs(v) < 1e15 {
				choices[i] = json.RawMessage(strconv.FormatFloat(v, 'f', 1, 64))
			}
		}
		attributes = map[string]any{"choices": choices}
	case Int:
		attributes = map[string]any{"log": d.Log, "step": int64(d.Step), "low": int64(d.Low), "high": int64(d.High)}
	default:
		step := any(nil)
		if d.Step > 0 {
			step = d.Step
		}
		attributes = map[string]any{"step": step, "low": d.Low, "high": d.High, "log": d.Log}
	}
	return json.Marshal(map[string]any{"name": d.Kind, "attributes": attributes})
}

// UnmarshalJSON reads what Optuna's distribution_to_json writes.
func (d *Distribution) UnmarshalJSON(b []byte) error {
	var raw struct {
		Name       Kind `json:"name"`
		Attributes struct {
			Low, High float64
			Step      *float64
			Log       bool
			Choices   []json.RawMessage
		} `json:"attributes"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	a := raw.Attributes
	*d = Distribution{Kind: raw.Name, Low: a.Low, High: a.High, Log: a.Log}
	if a.Step != nil {
		d.Step = *a.Step
	}
	for _, text := range a.Choices {
		c, err := choice(text)
		if err != nil {
			return err
		}
		d.Choices = append(d.Choices, c)
	}
	return nil
}

// choice reads a choice. Whole numbers stay whole. What is no text, number, true or false, such as
// null, becomes its JSON, which equals no choice of ours.
func choice(text json.RawMessage) (any, error) {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	switch v.(type) {
	case string, bool:
		return v, nil
	case float64:
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			return n, nil
		}
		return v, nil
	}
	return "\x00" + string(text), nil
}

// Param is a param that is searched over.
type Param struct {
	// Name is the param's, section.name.
	Name         string       `json:"name"`
	Distribution Distribution `json:"distribution"`
	// Points is the number of values of a grid for numbers without steps; 0 for others.
	Points int `json:"points,omitempty"`
}

// grid returns the values of a param in a grid; nil if it has no limit and no points.
func (p Param) grid() []float64 {
	d := p.Distribution
	n := d.count()
	out := make([]float64, 0, max(n, p.Points))
	if p.Points > 1 && (n == 0 || p.Points < n) {
		low, high := d.Low, d.High
		if d.Log {
			low, high = math.Log(low), math.Log(high)
		}
		for i := range p.Points {
			v := low + (high-low)*float64(i)/float64(p.Points-1)
			if d.Log {
				v = math.Exp(v)
			}
			switch i { // not rounded
			case 0:
				v = d.Low
			case p.Points - 1:
				v = d.High
			}
			if v = d.onStep(v); len(out) == 0 || v != out[len(out)-1] {
				out = append(out, v)
			}
		}
		return out
	}
	for i := range n {
		out = append(out, d.at(i))
	}
	return out
}
