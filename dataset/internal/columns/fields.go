package columns

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/tfrecord"
)

// Fields are the names of a feature in records, and their place among a decoder's names.
type Fields struct {
	Names []string
	First int
}

// Find returns the first of the names that the record has, with its values: a feature of the context,
// or a list. Both are nil if the record has none of the names.
func (f Fields) Find(values *tfrecord.Values) (name string, v *tfrecord.Value, list *tfrecord.List, reason string) {
	for i, name := range f.Names {
		v, list := values.At(f.First+i), values.List(f.First+i)
		switch {
		case v.Kind != tfrecord.KindNone && list.Found:
			return name, nil, nil, "is in the context and among the lists of the record; expected it once"
		case v.Kind != tfrecord.KindNone:
			return name, v, nil, ""
		case list.Found:
			return name, v, list, ""
		}
	}
	return f.Names[0], nil, nil, ""
}

// CheckWeights returns what is wrong with weights.
func CheckWeights(v *tfrecord.Value) string {
	i := slices.IndexFunc(v.Floats, func(w float32) bool { return !(w >= 0 && w <= math.MaxFloat32) })
	if i >= 0 {
		return fmt.Sprintf("has weight %v; expected a finite number of 0 or more", v.Floats[i])
	}
	if i := slices.IndexFunc(v.Int64s, func(w int64) bool { return w < 0 }); i >= 0 {
		return fmt.Sprintf("has weight %d; expected a finite number of 0 or more", v.Int64s[i])
	}
	return ""
}

// mostListed is the maximum number of features that an error lists.
const mostListed = 20

// Missing describes a record that has none of a feature's names, and lists its features.
func Missing(names []string, record []byte) string {
	var b strings.Builder
	b.WriteString("is missing")
	if len(names) > 1 {
		fmt.Fprintf(&b, " (also tried %s)", strings.Join(names[1:], ", "))
	}
	context, lists, err := tfrecord.ParseSequenceExample(record)
	var all []string
	for _, f := range context {
		all = append(all, f.Name)
	}
	for _, l := range lists {
		all = append(all, l.Name)
	}
	slices.Sort(all)
	switch {
	case err != nil || len(all) == 0:
		b.WriteString("; the record has no features")
	default:
		b.WriteString("; the record has ")
		for i, name := range all[:min(len(all), mostListed)] {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%q", name)
		}
		if n := len(all) - mostListed; n > 0 {
			fmt.Fprintf(&b, " and %d more", n)
		}
	}
	return b.String()
}
