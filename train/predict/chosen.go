package predict

import (
	"fmt"
	"math"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/text"
)

// chooser is the Renderer of models that choose one of several texts: the first text of a pair is what
// they go with, the second a JSON array of the choices. The model gets the text with each of them, and
// its first logit is the choice's score. The answer is a Label.
type chooser struct {
	byKind
	tokenizer *text.Tokenizer
	max       int
}

func newChooser(outputs []OutputSpec) (Renderer, error) {
	c := chooser{byKind: newByKind(outputs)}
	if c.logits < 0 {
		return nil, fmt.Errorf("the model lacks outputs of logits and probabilities; expected one of each, for choices")
	}
	return c, nil
}

func (c chooser) with(tokenizer *text.Tokenizer) Renderer {
	c.tokenizer = tokenizer
	return c
}

// Names implements Renderer.
func (c chooser) Names() []string { return append(c.byKind.Names(), "choice") }

func (c chooser) empty(isText bool) Answer {
	a := c.byKind.empty(isText)
	if l, ok := a.(Label); ok && isText {
		l.Choice = "one" // for its column
		return l
	}
	return a
}

// lacking is the logit below which an example does not have a choice.
const lacking = -1e8

// Render implements Renderer, for an example of a split, whose choices are in the outputs.
func (c chooser) Render(e Example, r Result) (Answer, error) {
	if len(r) != len(c.outputs) {
		return nil, fmt.Errorf("the model returned %d outputs; expected %d", len(r), len(c.outputs))
	}
	logits := r[c.logits].Data
	n := len(logits)
	for n > 1 && logits[n-1] < lacking {
		n--
	}
	return newLabel(softmax(logits[:n]), logits[:n], c.outputs[c.logits].Classes, e), nil
}

// Divide implements Divider.
func (c chooser) Divide(p text.Pair, most int) (d Division, err error) {
	if c.tokenizer == nil {
		return d, fault.Usagef("the example is not given as texts; expected a text and its choices")
	}
	choices, err := c.choices(p)
	if err != nil {
		return d, err
	}
	if len(choices) > most {
		return d, fault.Usagef("the text has %d choices; expected at most %d", len(choices), most)
	}
	pairs := make([]text.Pair, len(choices))
	for i, choice := range choices {
		pairs[i] = text.Pair{A: p.A, B: choice}
	}
	d.Parts = c.tokenizer.EncodeBatch(pairs, c.max)
	for _, e := range d.Parts {
		d.Cut = d.Cut || e.Truncated
	}
	d.Unite = func(results []Result) (Answer, error) {
		logits := make([]float64, len(results))
		for i, r := range results {
			if c.logits >= len(r) || len(r[c.logits].Data) == 0 {
				return nil, fmt.Errorf("unexpected outputs of the model; expected a logit for each choice")
			}
			logits[i] = r[c.logits].Data[0]
		}
		a := newLabel(softmax(logits), logits, c.outputs[c.logits].Classes, Example{Encoding: text.Encoding{IDs: d.Parts[0].IDs, Truncated: d.Cut}})
		a.Choice = choices[a.Index]
		return a, nil
	}
	return d, nil
}

// choices returns the choices of a text. One that has none, or empty ones, is an error of class fault.Usage.
func (c chooser) choices(p text.Pair) ([]string, error) {
	all, err := convert.ParseChoices(p.B)
	if err != nil {
		return nil, err
	}
	for i, choice := range all {
		if blank(c.tokenizer, choice) {
			return nil, fault.Usagef("choice %d of %d is empty, or only white space; expected a text", i+1, len(all))
		}
	}
	return all, nil
}

// Chooses reports whether a Renderer's answers are choices, which are the second text as a JSON array.
func Chooses(r Renderer) bool {
	_, ok := r.(chooser)
	return ok
}

// softmax returns the probabilities of logits.
func softmax(logits []float64) []float64 {
	most, sum := math.Inf(-1), 0.0
	for _, l := range logits {
		most = max(most, l)
	}
	out := make([]float64, len(logits))
	for i, l := range logits {
		out[i] = math.Exp(l - most)
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}
