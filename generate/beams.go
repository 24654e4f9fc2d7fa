package generate

import (
	"cmp"
	"math"
	"slices"
)

// hypotheses are the finished sequences of a beam search, at most as many as it has beams.
type hypotheses struct {
	config Config
	prompt int // tokens
	most   int // the greatest length, with the prompt
	kept   []hypothesis
	worst  float64
}

type hypothesis struct {
	score float64
	ids   []int32 // new tokens
	ended bool    // by an end token
}

func newHypotheses(c Config, prompt, most int) *hypotheses {
	return &hypotheses{config: c, prompt: prompt, most: most, worst: 1e9}
}

// penalized returns the score of a sequence of so many new tokens, of which the sum of the logarithms of
// probabilities is given.
func (h *hypotheses) penalized(sum float64, tokens int) float64 {
	return sum / math.Pow(float64(tokens), h.config.LengthPenalty)
}

// add adds a sequence, unless there are enough that are better. Tokens is its length for the penalty.
func (h *hypotheses) add(sum float64, tokens int, ids []int32, ended bool) {
	score := h.penalized(sum, tokens)
	if len(h.kept) >= h.config.NumBeams && !(score > h.worst) {
		return
	}
	h.kept = append(h.kept, hypothesis{score, ids, ended})
	if len(h.kept) <= h.config.NumBeams {
		h.worst = min(score, h.worst)
		return
	}
	least := 0
	for i, k := range h.kept {
		if k.score < h.kept[least].score {
			least = i
		}
	}
	h.kept = slices.Delete(h.kept, least, least+1)
	h.worst = h.kept[0].score
	for _, k := range h.kept {
		h.worst = min(h.worst, k.score)
	}
}

// done reports whether the search is over, if the best sum of beams of a length is given, the next token
// included.
func (h *hypotheses) done(best float64, length int) bool {
	if len(h.kept) < h.config.NumBeams {
		return false
	}
	switch {
	case h.config.EarlyStopping == StopTrue:
		return true
	case h.config.EarlyStopping == StopNever && h.config.LengthPenalty > 0:
		length = h.most
	}
	return h.worst >= h.penalized(best, length-h.prompt)
}

// best returns so many of the best sequences, the best first, and of equal ones the last found first.
func (h *hypotheses) best(n int) []hypothesis {
	out := slices.Clone(h.kept)
	slices.SortStableFunc(out, func(a, b hypothesis) int { return cmp.Compare(a.score, b.score) })
	slices.Reverse(out)
	return out[:min(n, len(out))]
}

// candidate is a token that may follow a beam.
type candidate struct {
	beam  int
	id    int32
	score float32 // the sum
}

// wanted returns how many of the likeliest tokens a search looks at: two for each beam, or as many as there are
// end tokens and one more.
func (c Config) wanted() int { return max(2, 1+len(c.EOSTokenIDs)) * c.NumBeams }

// candidates returns the likeliest tokens after a beam of the sum, the likeliest first, of the scores of its
// tokens, to which it adds the sum. A token that is forbidden is none.
func (a *active) candidates(beam int, sum float32, scores []float32) []candidate {
	for i := range scores {
		scores[i] += sum
	}
	var out []candidate
	for _, i := range largest(scores, a.Config.wanted()) {
		if scores[i] == forbidden {
			break
		}
		out = append(out, candidate{beam, int32(i), scores[i]})
	}
	return out
}

// likeliest returns the n likeliest candidates of all beams, the likeliest first, and of equal ones those of the
// first beam first.
func likeliest(choices []choice, n int) []candidate {
	var out []candidate
	for _, c := range choices {
		out = append(out, c.from...)
	}
	slices.SortStableFunc(out, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	return out[:min(n, len(out))]
}
