package predict

import (
	"errors"
	"strings"
	"unicode"

	"github.com/gorbit-ml/gorbit/text"
)

// Empty says which text of an example has no tokens, so that a model would answer nothing but its own
// habits, or returns "".
func Empty(t *text.Tokenizer, e text.Pair) string {
	switch {
	case blank(t, e.A) && e.B != "":
		return "the first text is empty, or only white space; expected two texts"
	case blank(t, e.A):
		return "the text is empty, or only white space; expected a text"
	case e.B != "" && blank(t, e.B):
		return EmptySecond
	}
	return ""
}

// Refused says why a model with a Renderer does not answer an example, or returns "".
func Refused(r Renderer, t *text.Tokenizer, e text.Pair) string {
	switch r.(type) {
	case spanner:
		if e.B == "" {
			return single
		}
	case embedder:
		if e.B != "" {
			return "a pair is given, and the model makes a vector of one text; expected single texts"
		}
	}
	if c, ok := r.(chooser); ok {
		if _, err := c.choices(e); err != nil {
			return err.Error()
		}
		e.B = ""
	}
	return Empty(t, e)
}

// refused is Refused of the Predictor.
func (p *Predictor) refused(e text.Pair) string { return Refused(p.Renderer, p.Tokenizer, e) }

// blank reports whether a text has no tokens.
func blank(t *text.Tokenizer, s string) bool {
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) {
		return false
	}
	ids, _ := t.AppendFirst(nil, s, 1)
	return len(ids) == 0
}

// EmptySecond says that a second text was given and is empty.
const EmptySecond = "the second text is empty, or only white space; expected two texts"

// skip reports whether reading continues after an error, which is then passed on to the function.
func skip(to func(error), err error) bool {
	if to == nil || !errors.As(err, new(*LineError)) {
		return false
	}
	to(err)
	return true
}
