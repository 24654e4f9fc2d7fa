// Package qa has what extractive question answering needs on all sides: the windows of a long context,
// answers as spans of tokens and of characters, the best spans of a model's logits, and the metrics of
// SQuAD. Characters are Unicode code points, as in SQuAD's answer_start.
package qa

import (
	"math"
	"slices"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/text"
)

// Defaults, those of BERT's and Hugging Face's programs for SQuAD.
const (
	DefaultMaxLength = 384 // tokens of a window, with the question and special tokens
	DefaultStride    = 128 // tokens that two windows that follow each other share
	MaxQuestion      = 64  // tokens of a question; the rest is cut
	MaxAnswer        = 30  // tokens of an answer
	NBest            = 20  // spans of a window that are kept
)

// Context is a tokenized context. Starts and Ends have the characters that each token stands for: where
// they start, and after their end. In vocabularies of WordPiece they are those of the token's word. More is
// the number of tokens that were left out at its end.
type Context struct {
	IDs, Starts, Ends []int32
	More              int
}

// Tokenize tokenizes a context, of which it keeps at most some tokens.
func Tokenize(t *text.Tokenizer, context string, most int) Context {
	tokens, more := t.AppendTokens(nil, context, most)
	c := Context{More: more}
	var at text.Span // of the bytes whose characters are known
	var start, end int32
	for _, token := range tokens {
		if token.Span != at {
			start = charsAt(context, at.Start, start, token.Start)
			end = charsAt(context, at.End, end, token.End)
			at = token.Span
		}
		c.IDs, c.Starts, c.Ends = append(c.IDs, token.ID), append(c.Starts, start), append(c.Ends, end)
	}
	return c
}

// charsAt returns the number of characters before byte to, given that before byte from.
func charsAt(s string, from int, chars int32, to int) int32 {
	if to < from {
		return chars - int32(utf8.RuneCountInString(s[to:from]))
	}
	return chars + int32(utf8.RuneCountInString(s[from:to]))
}

// Question tokenizes a question. cut reports that tokens were left out, for windows of at most maxLength
// tokens.
func Question(t *text.Tokenizer, question string, maxLength int) (ids []int32, cut bool) {
	pair := t.Template().Pair
	ids, more := t.AppendFirst(nil, question, min(MaxQuestion, max(1, (maxLength-pair.Specials())/2)))
	return ids, more > 0
}

// Window is a question with a part of its context: [CLS] question [SEP] part [SEP].
type Window struct {
	IDs, Types []int32
	// First and Last are the first and the last token of the part.
	First, Last int
	// Starts and Ends have the characters of each id, as in Context. Both are 0 for an id that is not of
	// the context.
	Starts, Ends []int32
	// cutFirst and cutLast say that the part begins, and ends, within a word.
	cutFirst, cutLast bool
}

// steps returns how many tokens of a context a window has room for, and by how many the next begins
// later.
func steps(t *text.Tokenizer, question, maxLength, stride int) (room, step int) {
	pair := t.Template().Pair
	room = max(1, maxLength-pair.Specials()-question)
	return room, max(1, room-min(stride, room/2))
}

// Count returns the number of windows of a context, given the numbers of tokens.
func Count(t *text.Tokenizer, question, context, maxLength, stride int) int {
	room, step := steps(t, question, maxLength, stride)
	return 1 + (max(0, context-room)+step-1)/step
}

// Tokens returns the most tokens of a context that has a number of windows.
func Tokens(t *text.Tokenizer, question, windows, maxLength, stride int) int {
	room, step := steps(t, question, maxLength, stride)
	return room + min(windows-1, (math.MaxInt-room)/step)*step
}

// Windows returns the windows of a context, of at most maxLength ids. Two that follow each other share
// stride tokens of the context, or half of them if those are fewer.
func Windows(t *text.Tokenizer, question []int32, c Context, maxLength, stride int) []Window {
	frame := t.Template().Pair
	before, between, after := idsOf(frame.Before), idsOf(frame.Between), idsOf(frame.After)
	types := slices.Concat(typesOf(frame.Before), slices.Repeat([]int32{frame.TypeA}, len(question)), typesOf(frame.Between))
	room, step := steps(t, len(question), maxLength, stride)
	var out []Window
	for from := 0; ; from += step {
		to := min(from+room, len(c.IDs))
		head := len(types)
		w := Window{
			IDs:   slices.Concat(before, question, between, c.IDs[from:to], after),
			Types: slices.Concat(types, slices.Repeat([]int32{frame.TypeB}, to-from), typesOf(frame.After)),
			First: head, Last: head + to - from - 1,
		}
		w.Starts, w.Ends = make([]int32, len(w.IDs)), make([]int32, len(w.IDs))
		w.cutFirst = from > 0 && from < to && c.Starts[from-1] == c.Starts[from]
		w.cutLast = to < len(c.IDs) && c.Starts[to-1] == c.Starts[to]
		copy(w.Starts[head:], c.Starts[from:to])
		copy(w.Ends[head:], c.Ends[from:to])
		out = append(out, w)
		if to == len(c.IDs) {
			return out
		}
	}
}

// Encoding returns the window as a model gets it.
func (w Window) Encoding() text.Encoding {
	return text.Encoding{IDs: w.IDs, TypeIDs: w.Types}
}

// Second returns the number of tokens of the second segment.
func (w Window) Second() (n int) {
	for n < len(w.Types) && w.Types[len(w.Types)-1-n] == 1 {
		n++
	}
	return n
}

func idsOf(specials []text.Special) (ids []int32) {
	for _, s := range specials {
		ids = append(ids, s.ID)
	}
	return ids
}

func typesOf(specials []text.Special) (types []int32) {
	for _, s := range specials {
		types = append(types, s.Type)
	}
	return types
}

// Place returns the first and the last token of the characters from start to end. ok is false if they
// are not all in the window. fits reports that the tokens' words are these characters, and no more.
func (w Window) Place(start, end int32) (first, last int, fits, ok bool) {
	first, last = -1, -1
	for i := w.First; i <= w.Last; i++ {
		if first < 0 && w.Ends[i] > start {
			first = i
		}
		if w.Starts[i] < end {
			last = i
		}
	}
	if first < 0 || last < first || w.Ends[last] < end {
		return 0, 0, false, false
	}
	begins, ends := first == w.First, last == w.Last
	if begins && (w.cutFirst || w.Starts[first] > start) || ends && w.cutLast {
		return 0, 0, false, false // it begins before the window, or ends after it
	}
	return first, last, w.Starts[first] == start && w.Ends[last] == end, true
}

// Slice returns the characters of a text from start to end.
func Slice(s string, start, end int) string {
	from, to, n := len(s), len(s), 0
	for i := range s {
		if n == start {
			from = i
		}
		if n == end {
			to = i
			break
		}
		n++
	}
	return s[min(from, to):to]
}
