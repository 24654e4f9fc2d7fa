package scores

import (
	"strings"
	"unicode/utf8"
)

const (
	// chrfOrder is the greatest length of the n-grams of characters of chrF.
	chrfOrder = 6
	// chrfRecall is how much recall counts for, by precision: the square of beta, which is 2.
	chrfRecall = 4
)

// chrfOf counts for chrF, with n-grams of words up to a length: of each length the n-grams of the text, of the
// reference, and of both.
func chrfOf(words int) func(text, reference string) Counts {
	return func(text, reference string) Counts {
		c := make(Counts, 0, 3*(chrfOrder+words))
		c = appendMatches(c, characters(text), characters(reference), chrfOrder)
		return appendMatches(c, chrfWords(text), chrfWords(reference), words)
	}
}

func appendMatches(c Counts, got, want []string, orders int) Counts {
	for n := range orders {
		had, expected := max(0, len(got)-n), max(0, len(want)-n)
		if expected == 0 {
			had = 0 // what no reference could have does not count
		}
		c = append(c, float64(had), float64(expected), float64(common(ngrams(got, n+1), ngrams(want, n+1))))
	}
	return c
}

// chrfWords returns the words of a text. A mark of punctuation at the end of a word, or else at its
// beginning, is one of its own.
func chrfWords(text string) []string {
	const marks = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
	var out []string
	for _, w := range fields(text) {
		switch last := len(w) - 1; {
		case utf8.RuneCountInString(w) == 1:
			out = append(out, w)
		case strings.IndexByte(marks, w[last]) >= 0:
			out = append(out, w[:last], w[last:])
		case strings.IndexByte(marks, w[0]) >= 0:
			out = append(out, w[:1], w[1:])
		default:
			out = append(out, w)
		}
	}
	return out
}

func chrf(c Counts) float64 {
	precision, recall, orders := 0.0, 0.0, 0.0
	for i := 0; i < len(c); i += 3 {
		if had, expected, both := c[i], c[i+1], c[i+2]; had > 0 && expected > 0 {
			precision, recall, orders = precision+both/had, recall+both/expected, orders+1
		}
	}
	if precision+recall == 0 {
		return 0
	}
	precision, recall = precision/orders, recall/orders
	return 100 * (1 + chrfRecall) * precision * recall / (chrfRecall*precision + recall)
}
