package generate

import (
	"cmp"
	"math"
	"slices"
)

// processor changes the scores of all tokens, in place, for a sequence of the given tokens, prompt included.
type processor func(ids []int32, scores []float32)

var forbidden = float32(math.Inf(-1))

// processors returns those of a request, in the order of transformers. Most is the greatest length.
func processors(c Config, prompt, most int) []processor {
	var out []processor
	if c.RepetitionPenalty != 1 {
		out = append(out, repetitionPenalty(float32(c.RepetitionPenalty)))
	}
	if c.NoRepeatNgramSize > 0 {
		out = append(out, noRepeatNgram(c.NoRepeatNgramSize))
	}
	if len(c.BadWordsIDs) > 0 {
		out = append(out, noBadWords(c.BadWordsIDs))
	}
	if least := max(c.MinLength, prompt+c.MinNewTokens); len(c.EOSTokenIDs) > 0 && least > prompt {
		out = append(out, minLength(least, c.EOSTokenIDs))
	}
	if c.ForcedBOSTokenID != None {
		out = append(out, forcedAt(1, c.ForcedBOSTokenID))
	}
	if c.ForcedEOSTokenID != None {
		out = append(out, forcedAt(most-1, c.ForcedEOSTokenID))
	}
	if !c.DoSample {
		return out
	}
	if c.Temperature != 1 {
		out = append(out, temperature(float32(c.Temperature)))
	}
	if c.TopK > 0 {
		out = append(out, topK(c.TopK))
	}
	if c.TopP < 1 {
		out = append(out, topP(c.TopP))
	}
	if c.MinP > 0 {
		out = append(out, minP(float32(c.MinP)))
	}
	if c.TypicalP < 1 {
		out = append(out, typicalP(c.TypicalP))
	}
	return out
}

// repetitionPenalty makes every token less likely that the sequence has.
func repetitionPenalty(penalty float32) processor {
	return func(ids []int32, scores []float32) {
		seen := make(map[int32]bool, len(ids))
		for _, id := range ids {
			if seen[id] {
				continue
			}
			seen[id] = true
			if scores[id] < 0 {
				scores[id] *= penalty
			} else {
				scores[id] /= penalty
			}
		}
	}
}

// noRepeatNgram forbids tokens that would end n tokens that the sequence already has in a row.
func noRepeatNgram(n int) processor {
	return func(ids []int32, scores []float32) {
		if len(ids) < n {
			return
		}
		begun := ids[len(ids)-n+1:]
		for i := range len(ids) - n + 1 {
			if slices.Equal(ids[i:i+n-1], begun) {
				scores[ids[i+n-1]] = forbidden
			}
		}
	}
}

// noBadWords forbids tokens that would end a word. A word longer than the sequence is left out, as in
// transformers.
func noBadWords(words [][]int32) processor {
	return func(ids []int32, scores []float32) {
		for _, word := range words {
			begin := len(word) - 1
			if begin == 0 || len(word) <= len(ids) && slices.Equal(ids[len(ids)-begin:], word[:begin]) {
				scores[word[begin]] = forbidden
			}
		}
	}
}

// minLength forbids the end tokens until a sequence has so many tokens.
func minLength(least int, eos []int32) processor {
	return func(ids []int32, scores []float32) {
		if len(ids) < least {
			for _, id := range eos {
				scores[id] = forbidden
			}
		}
	}
}

// forcedAt allows one token only in sequences of a length.
func forcedAt(length int, token int32) processor {
	return func(ids []int32, scores []float32) {
		if len(ids) == length {
			for i := range scores {
				scores[i] = forbidden
			}
			scores[token] = 0
		}
	}
}

// temperature divides the scores. If the greatest is then beyond float32, they are first made to be 0 at most,
// which changes no probability. If it is so before, only its tokens stay.
func temperature(t float32) processor {
	return func(_ []int32, scores []float32) {
		switch top := slices.Max(scores); {
		case top > math.MaxFloat32:
			for i, s := range scores {
				if scores[i] = forbidden; s == top {
					scores[i] = 0
				}
			}
		case top != forbidden && math.Abs(float64(top/t)) > math.MaxFloat32:
			for i := range scores {
				scores[i] -= top
			}
		}
		for i := range scores {
			scores[i] /= t
		}
	}
}

// topK forbids the tokens that are less likely than the k-th one.
func topK(k int) processor {
	return func(_ []int32, scores []float32) {
		if k >= len(scores) {
			return
		}
		best := largest(scores, k)
		limit := scores[best[k-1]]
		for i, s := range scores {
			if s < limit {
				scores[i] = forbidden
			}
		}
	}
}

// topP forbids the least likely tokens, which together have at most 1 - p of the probability.
func topP(p float64) processor {
	return func(_ []int32, scores []float32) {
		order := possible(scores)
		if len(order) == 0 {
			return
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })
		norm := logSumExp(scores)
		sum := 0.0
		for _, i := range order[:len(order)-1] {
			if sum += math.Exp(float64(scores[i]) - norm); sum > 1-p {
				return
			}
			scores[i] = forbidden
		}
	}
}

// minP forbids the tokens that have less than p times the probability of the likeliest one.
func minP(p float32) processor {
	return func(_ []int32, scores []float32) {
		norm := logSumExp(scores)
		probability := func(score float32) float32 { return float32(math.Exp(float64(score) - norm)) }
		top := slices.Max(scores)
		limit := p * probability(top)
		for i, s := range scores {
			if s < top && probability(s) < limit {
				scores[i] = forbidden
			}
		}
	}
}

// typicalP keeps the tokens whose information is nearest to the entropy, the nearest first, until they have so
// much of the probability.
func typicalP(mass float64) processor {
	return func(_ []int32, scores []float32) {
		order := possible(scores)
		if len(order) == 0 {
			return
		}
		norm, entropy := logSumExp(scores), 0.0
		for _, i := range order {
			entropy += (norm - float64(scores[i])) * math.Exp(float64(scores[i])-norm)
		}
		away := func(i int) float64 { return math.Abs(norm - float64(scores[i]) - entropy) }
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(away(a), away(b)) })
		last, sum := 0, math.Exp(float64(scores[order[0]])-norm)
		for last < len(order)-1 && sum < mass {
			last++
			sum += math.Exp(float64(scores[order[last]]) - norm)
		}
		limit := away(order[last])
		for _, i := range order[last:] {
			if away(i) > limit {
				scores[i] = forbidden
			}
		}
	}
}

// possible returns the tokens that are not forbidden.
func possible(scores []float32) []int {
	var out []int
	for i, s := range scores {
		if s > forbidden {
			out = append(out, i)
		}
	}
	return out
}

// logSumExp returns the logarithm of the sum of the exponentials, in float64; it is that of the divisor of
// a softmax.
func logSumExp(scores []float32) float64 {
	top := float64(slices.Max(scores))
	if math.IsInf(top, -1) {
		return top
	}
	sum := 0.0
	for _, s := range scores {
		sum += exp(float64(s) - top)
	}
	return top + math.Log(sum)
}

// powers are the powers of 2 at 0/64 to 63/64.
var powers = func() (out [64]float64) {
	for i := range out {
		out[i] = math.Exp2(float64(i) / 64)
	}
	return out
}()

// exp returns the exponential of x, at most 0, with an error of about 1e-15 of it; 0 below -700. Most of
// a search's time outside of the model goes to exponentials, and math.Exp takes longer.
func exp(x float64) float64 {
	if !(x > -700) {
		return 0
	}
	const shift = 3 << 51 // what is added to it is rounded to an integer
	z := x*(64/math.Ln2) + shift
	k := int64(math.Float64bits(z)) - int64(math.Float64bits(shift))
	n := z - shift
	// ln 2 / 64 in two parts, of which the first has few bits.
	r := x - n*0x1.62e42fep-7 - n*(math.Ln2/64-0x1.62e42fep-7)
	p := 1 + r*(1+r*(1.0/2+r*(1.0/6+r*(1.0/24+r*(1.0/120)))))
	return p * math.Float64frombits(math.Float64bits(powers[k&63])+uint64(k>>6)<<52)
}

// checkedLogSumExp is logSumExp, and NaN if a score is none.
func checkedLogSumExp(scores []float32) float64 {
	if checkLogits(scores) != nil {
		return math.NaN()
	}
	return logSumExp(scores)
}

// largest returns the places of the k largest scores, the largest first, and of equal ones the first
// first. It keeps a heap of k places whose root is the least of them.
func largest(scores []float32, k int) []int {
	k = min(k, len(scores))
	if k == 0 {
		return nil
	}
	heap := make([]int, 0, k)
	worse := func(a, b int) bool { return scores[a] < scores[b] || scores[a] == scores[b] && a > b }
	down := func(i int) {
		for {
			least := i
			for _, child := range [2]int{2*i + 1, 2*i + 2} {
				if child < len(heap) && worse(heap[child], heap[least]) {
					least = child
				}
			}
			if least == i {
				return
			}
			heap[i], heap[least] = heap[least], heap[i]
			i = least
		}
	}
	for i := range scores {
		switch {
		case len(heap) < k:
			heap = append(heap, i)
			if len(heap) == k {
				for j := k/2 - 1; j >= 0; j-- {
					down(j)
				}
			}
		case worse(heap[0], i):
			heap[0] = i
			down(0)
		}
	}
	slices.SortFunc(heap, func(a, b int) int {
		if worse(b, a) {
			return -1
		}
		return 1
	})
	return heap
}
