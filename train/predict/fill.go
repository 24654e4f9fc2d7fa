package predict

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/text"
)

// DefaultTopK is how many tokens are proposed for a masked one, unless Config.TopK says otherwise.
const DefaultTopK = 5

// filler is the Renderer of masked language models.
type filler struct {
	output    int // that of the probabilities
	tokenizer *text.Tokenizer
	top       int
}

func newFiller(outputs []OutputSpec) (Renderer, error) {
	i := slices.IndexFunc(outputs, func(o OutputSpec) bool { return o.Kind == Probabilities })
	if i < 0 {
		return nil, errors.New("the model has no output with probabilities; expected one for each masked token")
	}
	return filler{output: i, top: DefaultTopK}, nil
}

func (f filler) with(tokenizer *text.Tokenizer) Renderer {
	f.tokenizer = tokenizer
	return f
}

func (f filler) withTop(k int) Renderer {
	f.top = k
	return f
}

// Render implements Renderer.
func (f filler) Render(e Example, r Result) (Answer, error) {
	if f.output >= len(r) || len(r[f.output].Shape) != 2 {
		return nil, errors.New("unexpected outputs of the model; expected probabilities for each masked token")
	}
	a := Filled{Truncated: e.Encoding.Truncated, mask: text.Mask}
	if f.tokenizer != nil && f.tokenizer.MaskToken() != "" {
		a.mask = f.tokenizer.MaskToken()
	}
	n, vocab := r[f.output].Shape[0], r[f.output].Shape[1]
	for i := range n {
		p := r[f.output].Data[i*vocab : (i+1)*vocab]
		var m Masked
		for _, id := range largest(p, f.top) {
			name := fmt.Sprint(id)
			if f.tokenizer != nil {
				name = f.tokenizer.Show(int32(id))
			}
			m.Tokens, m.Scores = append(m.Tokens, name), append(m.Scores, p[id])
		}
		a.Masks = append(a.Masks, m)
	}
	return a, nil
}

// largest returns the indices of the k largest values, the largest first and of equal ones the first.
func largest(values []float64, k int) []int {
	var out []int
	for i, v := range values {
		at, _ := slices.BinarySearchFunc(out, v, func(j int, v float64) int {
			if values[j] >= v {
				return -1
			}
			return 1
		})
		if at < k {
			out = slices.Insert(out, at, i)
			out = out[:min(len(out), k)]
		}
	}
	return out
}

// Names implements Renderer.
func (f filler) Names() []string { return []string{"masks", "truncated"} }

// Filled is the Answer of a masked language model: what each [MASK] of a text could be.
type Filled struct {
	Masks []Masked
	// Truncated reports that the text was longer than the model's limit and was cut.
	Truncated bool
	mask      string // the token
}

// Masked are the most probable tokens of a [MASK], the best first.
type Masked struct {
	Tokens []string  `json:"tokens"`
	Scores []float64 `json:"scores"`
}

var _ Answer = Filled{}

// Fields implements Answer.
func (a Filled) Fields() []Field {
	masks := a.Masks
	if masks == nil {
		masks = []Masked{}
	}
	f := []Field{{Name: "masks", Value: masks}}
	if a.Truncated {
		f = append(f, Field{Name: "truncated", Value: true})
	}
	return f
}

// MarshalJSON implements json.Marshaler.
func (a Filled) MarshalJSON() ([]byte, error) { return Object(a.Fields()).MarshalJSON() }

// Columns implements Answer.
func (a Filled) Columns() []Field {
	return []Field{{Name: "masks", Value: listed{a.Fields()[0].Value, a.Text()}}, {Name: "truncated", Value: a.Truncated}}
}

// Text implements Answer: the tokens of each mask, with bars between masks.
func (a Filled) Text() string {
	if len(a.Masks) == 0 {
		return "no " + cmp.Or(a.mask, text.Mask)
	}
	parts := make([]string, len(a.Masks))
	for i, m := range a.Masks {
		each := make([]string, len(m.Tokens))
		for j, token := range m.Tokens {
			each[j] = fmt.Sprintf("%s (%.1f %%)", token, 100*m.Scores[j])
		}
		parts[i] = strings.Join(each, ", ")
	}
	return strings.Join(parts, " | ")
}

// Row implements Answer.
func (a Filled) Row() []string { return []string{a.Text()} }

// Cut implements Answer.
func (a Filled) Cut() bool { return a.Truncated }
