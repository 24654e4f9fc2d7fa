package predict

import (
	"fmt"
	"strconv"
)

// Label is the Answer of a model that gives one distribution over classes.
type Label struct {
	// Label is the name of the most probable class, or its index if it has no name. Index is its
	// index.
	Label string `json:"label"`
	Index int    `json:"index"`
	// Choice is the text that was chosen of those of the example; "" for classes of all examples.
	Choice string `json:"choice,omitempty"`
	// Score is the probability of Label; Probabilities holds those of all classes.
	Score         float64   `json:"score"`
	Probabilities []float64 `json:"probabilities"`
	// Logits is nil if the model gives none.
	Logits []float64 `json:"logits,omitempty"`
	// Truncated reports that the text was longer than the model's limit and was cut, so that the
	// answer uses only its beginning.
	Truncated bool `json:"truncated,omitempty"`

	names []string
	text  bool // whether the example was a text, which can be cut
}

var _ Answer = Label{}

// newLabel picks the most probable class, or the first of several with equal probability.
func newLabel(probabilities, logits []float64, names []string, e Example) Label {
	a := Label{Probabilities: probabilities, Logits: logits, Truncated: e.Encoding.Truncated, names: names, text: e.Encoding.IDs != nil}
	for i, p := range a.Probabilities {
		if p > a.Probabilities[a.Index] {
			a.Index = i
		}
	}
	a.Score, a.Label = a.Probabilities[a.Index], nameOf(names, a.Index)
	return a
}

// share is a probability, which columns have with six digits after the point.
type share float64

// nameOf returns the name of a class.
func nameOf(names []string, class int) string {
	if class < len(names) {
		return names[class]
	}
	return strconv.Itoa(class)
}

// Fields implements Answer.
func (a Label) Fields() []Field {
	f := []Field{{Name: "label", Value: a.Label}, {Name: "index", Value: a.Index}}
	if a.Choice != "" {
		f = append(f, Field{Name: "choice", Value: a.Choice})
	}
	f = append(f, Field{Name: "score", Value: a.Score}, Field{Name: "probabilities", Value: a.Probabilities})
	if a.Logits != nil {
		f = append(f, Field{Name: "logits", Value: a.Logits})
	}
	if a.Truncated {
		f = append(f, Field{Name: "truncated", Value: true})
	}
	return f
}

// Columns implements Answer.
func (a Label) Columns() []Field {
	each := make(Object, len(a.Probabilities))
	for i, p := range a.Probabilities {
		each[i] = Field{Name: nameOf(a.names, i), Value: share(p)}
	}
	columns := []Field{{Name: "label", Value: a.Label}, {Name: "score", Value: share(a.Score)}, {Name: "probabilities", Value: each, Each: "probability_"}}
	if a.text {
		columns = append(columns, Field{Name: "truncated", Value: a.Truncated})
	}
	if a.Choice != "" {
		columns = append(columns, Field{Name: "choice", Value: a.Choice})
	}
	return columns
}

// Text implements Answer.
func (a Label) Text() string { return fmt.Sprintf("%s (%.1f %%)", a.Label, 100*a.Score) }

// Row implements Answer.
func (a Label) Row() []string { return []string{a.Label, strconv.FormatFloat(a.Score, 'f', 6, 64)} }

// Cut implements Answer.
func (a Label) Cut() bool { return a.Truncated }
