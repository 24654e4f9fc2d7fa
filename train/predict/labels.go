package predict

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// multilabel is the Renderer of models with a probability for each of any number of labels.
type multilabel struct {
	output int // that of the probabilities
	names  []string
}

func newMultilabel(outputs []OutputSpec) (Renderer, error) {
	i := slices.IndexFunc(outputs, func(o OutputSpec) bool { return o.Kind == Probabilities })
	if i < 0 {
		return nil, errors.New("the model has no output with probabilities; expected one for each label")
	}
	return multilabel{i, outputs[i].Classes}, nil
}

// Render implements Renderer.
func (m multilabel) Render(e Example, r Result) (Answer, error) {
	if m.output >= len(r) {
		return nil, fmt.Errorf("the model returned %d outputs; expected %d or more", len(r), m.output+1)
	}
	return Labels{Probabilities: r[m.output].Data, Truncated: e.Encoding.Truncated, names: m.names}, nil
}

// Names implements Renderer.
func (m multilabel) Names() []string {
	return []string{"labels", "probabilities", "probability_*", "truncated"}
}

// Labels is the Answer of a model that gives a probability for each of any number of labels.
type Labels struct {
	// Probabilities holds one of each label, which do not sum to 1.
	Probabilities []float64
	// Truncated reports that the text was longer than the model's limit and was cut.
	Truncated bool

	names []string
}

var _ Answer = Labels{}

// Chosen returns the names of the labels with a probability of 0.5 or more, in their order.
func (a Labels) Chosen() []string {
	chosen := []string{}
	for i, p := range a.Probabilities {
		if p >= 0.5 {
			chosen = append(chosen, nameOf(a.names, i))
		}
	}
	return chosen
}

// Fields implements Answer.
func (a Labels) Fields() []Field {
	each := make(Object, len(a.Probabilities))
	for i, p := range a.Probabilities {
		each[i] = Field{Name: nameOf(a.names, i), Value: p}
	}
	f := []Field{{Name: "labels", Value: a.Chosen()}, {Name: "probabilities", Value: each}}
	if a.Truncated {
		f = append(f, Field{Name: "truncated", Value: true})
	}
	return f
}

// MarshalJSON implements json.Marshaler.
func (a Labels) MarshalJSON() ([]byte, error) { return Object(a.Fields()).MarshalJSON() }

// Columns implements Answer.
func (a Labels) Columns() []Field {
	each := make(Object, len(a.Probabilities))
	for i, p := range a.Probabilities {
		each[i] = Field{Name: nameOf(a.names, i), Value: share(p)}
	}
	return []Field{{Name: "labels", Value: listed{a.Chosen(), strings.Join(a.Chosen(), ",")}}, {Name: "probabilities", Value: each, Each: "probability_"}, {Name: "truncated", Value: a.Truncated}}
}

// Text implements Answer.
func (a Labels) Text() string {
	var parts []string
	for i, p := range a.Probabilities {
		if p >= 0.5 {
			parts = append(parts, fmt.Sprintf("%s (%.1f %%)", nameOf(a.names, i), 100*p))
		}
	}
	if parts == nil {
		return "no label"
	}
	return strings.Join(parts, ", ")
}

// Row implements Answer.
func (a Labels) Row() []string { return []string{strings.Join(a.Chosen(), ",")} }

// Cut implements Answer.
func (a Labels) Cut() bool { return a.Truncated }
