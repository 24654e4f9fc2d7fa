package runner

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Sums holds the sums of one or more steps by output name: "loss_sum", "weight_sum", "confusion"
// and so on. They are always sums and never means, so that steps, replicas and short batches add up
// exactly. Each is a flat row-major slice; a scalar has one element. Names that begin with EachPrefix
// are no sums.
type Sums map[string][]float64

// EachPrefix is the prefix of the names of outputs that an evaluation collects instead of adding them
// up: values of every example, for metrics such as rank correlations.
const EachPrefix = "each/"

// Add adds other to s, element by element, and copies names that s lacks. Values under EachPrefix are
// appended. If the length of another output differs, it returns an error and leaves s unchanged.
func (s Sums) Add(other Sums) error {
	for name, v := range other {
		if have, ok := s[name]; ok && len(have) != len(v) && !strings.HasPrefix(name, EachPrefix) {
			return fmt.Errorf("output %q has %d elements; expected %d, as before", name, len(v), len(have))
		}
	}
	for name, v := range other {
		have, ok := s[name]
		if !ok {
			s[name] = slices.Clone(v)
			continue
		}
		if strings.HasPrefix(name, EachPrefix) {
			s[name] = append(have, v...)
			continue
		}
		for i := range v {
			have[i] += v[i]
		}
	}
	return nil
}

// scalar returns the only element of a named output.
func (s Sums) scalar(name string) (float64, error) {
	v, ok := s[name]
	if !ok {
		return 0, fmt.Errorf("output %q is missing; the outputs are %s", name, nameList(s))
	}
	if len(v) != 1 {
		return 0, fmt.Errorf("output %q has %d elements; expected 1", name, len(v))
	}
	return v[0], nil
}

// MarshalJSON encodes the sums so that UnmarshalJSON restores the same bits. Infinities and NaN,
// which JSON cannot represent as numbers, are the strings "inf", "-inf" and "nan".
func (s Sums) MarshalJSON() ([]byte, error) {
	m := make(map[string][]Number, len(s))
	for name, v := range s {
		n := make([]Number, len(v))
		for i := range v {
			n[i] = Number(v[i])
		}
		m[name] = n
	}
	return json.Marshal(m)
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (s *Sums) UnmarshalJSON(b []byte) error {
	var m map[string][]Number
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*s = make(Sums, len(m))
	for name, n := range m {
		v := make([]float64, len(n))
		for i := range n {
			v[i] = float64(n[i])
		}
		(*s)[name] = v
	}
	return nil
}

// Outputs holds, by name, the metrics computed from Sums (loss, accuracy, f1, ...) and the scalars
// of a step (learning_rate, gradient_norm).
type Outputs map[string]float64

// String formats the outputs as Orbit does, as a Python dict with sorted keys: {'accuracy': 0.75,
// 'loss': 0.6931472}. Values have the fewest digits that give the same float32. Orbit breaks a long
// dict into several lines; String always returns one line, so that a log can be searched line by
// line.
func (o Outputs) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(o)) {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(pythonString(name))
		b.WriteString(": ")
		b.WriteString(pythonFloat(o[name]))
	}
	b.WriteByte('}')
	return b.String()
}

// MarshalJSON encodes the outputs as a JSON object. Values that are not finite are the strings
// "inf", "-inf" and "nan".
func (o Outputs) MarshalJSON() ([]byte, error) {
	m := make(map[string]Number, len(o))
	for name, v := range o {
		m[name] = Number(v)
	}
	return json.Marshal(m)
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (o *Outputs) UnmarshalJSON(b []byte) error {
	var m map[string]Number
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*o = make(Outputs, len(m))
	for name, n := range m {
		(*o)[name] = float64(n)
	}
	return nil
}

// get returns a named output, or an error that lists the existing names.
func (o Outputs) get(name string) (float64, error) {
	v, ok := o[name]
	if !ok {
		return 0, fmt.Errorf("metric %q is missing; the metrics are %s", name, nameList(o))
	}
	return v, nil
}

// Number is a float64 that can be encoded as JSON even if it is not finite.
type Number float64

// MarshalJSON encodes infinities and NaN as the strings "inf", "-inf" and "nan".
func (n Number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	switch {
	case math.IsNaN(f):
		return []byte(`"nan"`), nil
	case math.IsInf(f, 1):
		return []byte(`"inf"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-inf"`), nil
	}
	return strconv.AppendFloat(nil, f, 'g', -1, 64), nil
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (n *Number) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case `"nan"`:
		*n = Number(math.NaN())
	case `"inf"`:
		*n = Number(math.Inf(1))
	case `"-inf"`:
		*n = Number(math.Inf(-1))
	default:
		var f float64
		if err := json.Unmarshal(b, &f); err != nil {
			return err
		}
		*n = Number(f)
	}
	return nil
}

// pythonFloat formats v like Python's repr of a NumPy float32: with the fewest digits, an exponent
// below 1e-4 and from 1e16 on, and ".0" for whole numbers.
func pythonFloat(v float64) string {
	switch {
	case math.IsNaN(v):
		return "nan"
	case math.IsInf(v, 1):
		return "inf"
	case math.IsInf(v, -1):
		return "-inf"
	}
	bits := 32
	if f := float64(float32(v)); math.IsInf(f, 0) || f == 0 && v != 0 {
		bits = 64 // outside the range of float32
	}
	if a := math.Abs(v); v != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(v, 'e', -1, bits)
	}
	s := strconv.FormatFloat(v, 'f', -1, bits)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// pythonString quotes s as a Python string literal in single quotes.
func pythonString(s string) string {
	q := strconv.Quote(s)
	q = strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
	return "'" + strings.ReplaceAll(q, "'", `\'`) + "'"
}

// nameList returns the names in a map for an error message.
func nameList[V any](m map[string]V) string {
	return "[" + strings.Join(slices.Sorted(maps.Keys(m)), " ") + "]"
}
