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

// candidates returns the likeliest tokens after any of the beams, the likeliest first: two for each beam,
// or as many as there are end tokens and one more. Scores are those of each beam's tokens, without the
// beam's own. A token that is forbidden is none.
func candidates(c Config, beams []float32, scores [][]float32) []candidate {
	vocab := len(scores[0])
	sums := make([]float32, 0, len(beams)*vocab)
	for b, own := range scores {
		for _, s := range own {
			sums = append(sums, s+beams[b])
		}
	}
	var out []candidate
	for _, i := range largest(sums, max(2, 1+len(c.EOSTokenIDs))*c.NumBeams) {
		if sums[i] == forbidden {
			break
		}
		out = append(out, candidate{i / vocab, int32(i % vocab), sums[i]})
	}
	return out
}
