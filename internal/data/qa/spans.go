package qa

import "slices"

// Span is a possible answer: the characters of a context from Start to End, and the sum of the logits of
// its first and last token.
type Span struct {
	Start, End int
	Score      float64
}

// Best is a list of spans, the best first, without two of the same characters.
type Best []Span

// Add adds a span, and returns the n best. Of equal scores the first that was added comes first.
func (b Best) Add(s Span, n int) Best {
	if len(b) == n && b[n-1].Score >= s.Score {
		return b
	}
	same := slices.IndexFunc(b, func(o Span) bool { return o.Start == s.Start && o.End == s.End })
	if same >= 0 {
		if b[same].Score >= s.Score {
			return b
		}
		b = slices.Delete(b, same, same+1)
	}
	at := slices.IndexFunc(b, func(o Span) bool { return o.Score < s.Score })
	if at < 0 {
		at = len(b)
	}
	b = slices.Insert(b, at, s)
	return b[:min(len(b), n)]
}

// Candidates are what a model says about a window, or about all windows of a question.
type Candidates struct {
	// Null is the score that there is no answer: the sum of the logits of [CLS]. That of a question is
	// the lowest of its windows.
	Null float64
	Best Best
}

// Judge returns the n best spans of a window of at most maxTokens tokens, given the logits and the
// characters of its tokens. The first token is [CLS].
func Judge(start, end []float64, starts, ends []int32, n, maxTokens int) Candidates {
	c := Candidates{Null: start[0] + end[0]}
	for first := range start {
		if ends[first] == 0 {
			continue
		}
		for last := first; last < min(len(end), first+maxTokens) && ends[last] > 0; last++ {
			score := start[first] + end[last]
			if len(c.Best) == n && c.Best[n-1].Score >= score {
				continue
			}
			c.Best = c.Best.Add(Span{int(starts[first]), int(ends[last]), score}, n)
		}
	}
	return c
}

// Join returns the candidates of two windows of a question together.
func (c Candidates) Join(o Candidates, n int) Candidates {
	c.Null = min(c.Null, o.Null)
	c.Best = slices.Clone(c.Best)
	for _, s := range o.Best {
		c.Best = c.Best.Add(s, n)
	}
	return c
}

// NoAnswer reports whether there is no span, or no answer scores higher than the best span by more than
// a threshold.
func (c Candidates) NoAnswer(threshold float64) bool {
	return len(c.Best) == 0 || c.Null-c.Best[0].Score > threshold
}
