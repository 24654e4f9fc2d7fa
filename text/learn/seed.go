package learn

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

const (
	// maxPiece is the most characters of a piece.
	maxPiece = 16
	// maxSeeds is how many pieces training begins with at most.
	maxSeeds = 1_000_000
)

// suffixes are the ends of words: positions in text, in the order of what follows there. A word ends with
// a 0, and no more than maxPiece+1 characters of a suffix count.
type suffixes struct {
	text  []rune
	order []int32
}

// newSuffixes sorts the suffixes of words. Each word occurs once, however often it is counted.
func newSuffixes(ctx context.Context, words []Word, threads int) (*suffixes, error) {
	n := 0
	for _, w := range words {
		n += utf8.RuneCountInString(w.Text) + 1
	}
	if n > math.MaxInt32 {
		return nil, fault.Usagef("the words have %d characters; expected at most %d: give fewer texts", n, math.MaxInt32)
	}
	s := &suffixes{text: make([]rune, 0, n), order: make([]int32, 0, n)}
	for _, w := range words {
		for _, r := range w.Text {
			s.order = append(s.order, int32(len(s.text)))
			s.text = append(s.text, r)
		}
		s.text = append(s.text, 0)
	}
	// Suffixes with the same first character are sorted at the same time as others.
	slices.SortFunc(s.order, func(a, b int32) int { return cmp.Compare(s.text[a], s.text[b]) })
	var starts []int
	for i := range s.order {
		if i == 0 || s.text[s.order[i]] != s.text[s.order[i-1]] {
			starts = append(starts, i)
		}
	}
	starts = append(starts, len(s.order))
	err := parallel(ctx, len(starts)-1, 1, threads, func(_, from, to int) {
		for i := from; i < to; i++ {
			s.sort(s.order[starts[i]:starts[i+1]], 1)
		}
	}, nil)
	return s, err
}

// sort sorts suffixes that have the same first depth characters (three-way radix quicksort).
func (s *suffixes) sort(order []int32, depth int32) {
	for len(order) > 1 && depth <= maxPiece {
		if len(order) <= 12 {
			slices.SortFunc(order, func(a, b int32) int { return s.compare(a, b, depth) })
			return
		}
		pivot := median(s.text[order[0]+depth], s.text[order[len(order)/2]+depth], s.text[order[len(order)-1]+depth])
		less, i, more := 0, 0, len(order)
		for i < more {
			switch c := s.text[order[i]+depth]; {
			case c < pivot:
				order[less], order[i] = order[i], order[less]
				less++
				i++
			case c > pivot:
				more--
				order[more], order[i] = order[i], order[more]
			default:
				i++
			}
		}
		s.sort(order[:less], depth)
		s.sort(order[more:], depth)
		if pivot == 0 { // the words end here
			return
		}
		order, depth = order[less:more], depth+1
	}
}

func median(a, b, c rune) rune { return max(min(a, b), min(max(a, b), c)) }

// compare compares suffixes that have the same first depth characters.
func (s *suffixes) compare(a, b, depth int32) int {
	for ; depth <= maxPiece; depth++ {
		x, y := s.text[a+depth], s.text[b+depth]
		if x != y || x == 0 {
			return cmp.Compare(x, y)
		}
	}
	return 0
}

// common returns how many characters two suffixes have in common, with the end of their words.
func (s *suffixes) common(a, b int32) int32 {
	n := int32(0)
	for n <= maxPiece && s.text[a+n] == s.text[b+n] {
		n++
		if s.text[a+n-1] == 0 {
			break
		}
	}
	return n
}

// repeat is a string that occurs more than once, with different characters or ends of words after it.
type repeat struct {
	at, length int32
	score      int64
}

// repeats returns the repeats of 2 to maxPiece characters. Their scores are how often they occur times
// how long they are.
func (s *suffixes) repeats() []repeat {
	type open struct{ length, from int32 } // suffixes from one on that have so much in common
	var found []repeat
	stack := []open{{0, 0}}
	for i := int32(1); i <= int32(len(s.order)); i++ {
		common := int32(0)
		if int(i) < len(s.order) {
			common = s.common(s.order[i-1], s.order[i])
		}
		from := i - 1
		for top := stack[len(stack)-1]; top.length > common; top = stack[len(stack)-1] {
			stack = stack[:len(stack)-1]
			at := s.order[top.from]
			if top.length >= 2 && top.length <= maxPiece && s.text[at+top.length-1] != 0 {
				found = append(found, repeat{at, top.length, int64(i-top.from) * int64(top.length)})
			}
			from = top.from
		}
		if stack[len(stack)-1].length < common {
			stack = append(stack, open{common, from})
		}
	}
	return found
}

// seed returns the pieces that training begins with: every character, and the repeats with the highest
// scores. Pieces with higher scores come first.
func seed(ctx context.Context, words []Word, threads int) (texts []string, scores []float64, err error) {
	type character struct {
		r     rune
		count int64
	}
	var all []character
	for r, n := range characters(words, nil) {
		if r != 0 {
			all = append(all, character{r, n})
		}
	}
	slices.SortFunc(all, func(a, b character) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(b.r, a.r))
	})
	for _, c := range all {
		texts, scores = append(texts, string(c.r)), append(scores, float64(c.count))
	}
	s, err := newSuffixes(ctx, words, threads)
	if err != nil {
		return nil, nil, err
	}
	found := s.repeats()
	slices.SortFunc(found, func(a, b repeat) int {
		return cmp.Or(cmp.Compare(b.score, a.score), slices.Compare(s.text[b.at:b.at+b.length], s.text[a.at:a.at+a.length]))
	})
	found = found[:min(len(found), max(1, maxSeeds-len(texts)))]
	var b strings.Builder
	for _, r := range found {
		b.WriteString(string(s.text[r.at : r.at+r.length]))
	}
	for rest := b.String(); len(found) > 0; found = found[1:] {
		size := 0
		for range found[0].length {
			_, n := utf8.DecodeRuneInString(rest[size:])
			size += n
		}
		texts, scores = append(texts, rest[:size]), append(scores, float64(found[0].score))
		rest = rest[size:]
	}
	return texts, scores, nil
}
