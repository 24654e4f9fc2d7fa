package scores

import (
	"math"
	"strings"
)

// bleuOrder is the greatest length of the n-grams of BLEU.
const bleuOrder = 4

// ngrams counts the runs of n tokens. No token has the byte that joins them.
func ngrams(tokens []string, n int) map[string]int {
	out := make(map[string]int, max(0, len(tokens)-n+1))
	for i := 0; i+n <= len(tokens); i++ {
		out[strings.Join(tokens[i:i+n], "\xff")]++
	}
	return out
}

// common counts what two bags share.
func common(a, b map[string]int) (n int) {
	for key, count := range a {
		n += min(count, b[key])
	}
	return n
}

// bleuOf counts for BLEU: the tokens of text and reference, then of each length the n-grams that both have,
// then those of the text.
func bleuOf(tokenize func(string) []string) func(text, reference string) Counts {
	return func(text, reference string) Counts {
		got, want := tokenize(text), tokenize(reference)
		c := make(Counts, 2+2*bleuOrder)
		c[0], c[1] = float64(len(got)), float64(len(want))
		for n := range bleuOrder {
			c[2+n] = float64(common(ngrams(got, n+1), ngrams(want, n+1)))
			c[2+bleuOrder+n] = float64(max(0, len(got)-n))
		}
		return c
	}
}

// bleu returns the score of counts, with the smoothing "exp". effective leaves out the lengths of n-grams
// that the text has none of.
func bleu(effective bool) func(Counts) float64 {
	return func(c Counts) float64 {
		length, want := c[0], c[1]
		correct, total := c[2:2+bleuOrder], c[2+bleuOrder:]
		if correct[0] == 0 {
			return 0
		}
		brevity := 1.0
		if length < want {
			brevity = math.Exp(1 - want/length)
		}
		sum, orders, smooth := 0.0, 0, 1.0
		for n := range bleuOrder {
			if total[n] == 0 {
				break
			}
			precision := 100 * correct[n] / total[n]
			if correct[n] == 0 {
				smooth *= 2
				precision = 100 / (smooth * total[n])
			}
			sum, orders = sum+math.Log(precision), n+1
		}
		if !effective && orders < bleuOrder {
			return 0
		}
		return brevity * math.Exp(sum/float64(orders))
	}
}
