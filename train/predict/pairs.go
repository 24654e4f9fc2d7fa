package predict

import "github.com/gorbit-ml/gorbit/text"

// CheckPairs returns a Source of the same texts. It calls warn once, for the first example that is
// a pair although the model was trained on single texts, or the other way round: number counts
// examples from 1, and message says what is wrong. pairs reports whether the model was trained on
// pairs; then a row of a Table with a column of second texts is refused if it has none.
func CheckPairs(in Source, pairs bool, warn func(number int, message string)) Source {
	return &checked{Source: in, pairs: pairs, warn: warn}
}

type checked struct {
	Source
	pairs  bool
	warn   func(number int, message string) // nil once it was called
	number int
}

// Next implements Source.
func (c *checked) Next() (text.Pair, error) {
	e, err := c.Source.Next()
	if err != nil {
		return e, err
	}
	if t, ok := c.Source.(*Table); ok && c.pairs && t.from.Pair != "" && e.B == "" {
		return e, t.Refuse(EmptySecond)
	}
	if c.warn == nil {
		return e, nil
	}
	if c.number++; c.pairs == (e.B != "") {
		return e, nil
	}
	c.warn(c.number, PairsMessage(c.pairs))
	c.warn = nil
	return e, nil
}

// PairsMessage says what is wrong with an example that is a pair although the model was trained on
// single texts, or, if pairs is set, the other way round.
func PairsMessage(pairs bool) string {
	if pairs {
		return "the model was trained on pairs of texts; its answers for single texts are unreliable"
	}
	return "the model was trained on single texts; its answers for pairs are unreliable"
}
