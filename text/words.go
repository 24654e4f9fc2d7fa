package text

import (
	"iter"
	"slices"
	"unicode/utf8"
)

// Span is a part of a text, as offsets of bytes.
type Span struct{ Start, End int }

// AppendWords appends the [Tokenizer.Words] of a text to dst.
func (t *Tokenizer) AppendWords(dst []Span, text string) []Span {
	return slices.AppendSeq(dst, t.Words(text))
}

// Words returns the words of a text: its parts between white space, of which each punctuation mark and
// each CJK ideograph is one. AppendIDs of the words, one after the other, gives the ids of the text,
// except that special tokens that are written out are plain characters.
func (t *Tokenizer) Words(text string) iter.Seq[Span] {
	return func(yield func(Span) bool) { t.words(text, yield) }
}

func (t *Tokenizer) words(text string, yield func(Span) bool) {
	begin := -1
	end := func(at int) bool {
		from := begin
		begin = -1
		return from < 0 || yield(Span{from, at})
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch t.classes.lookup(r).kind() {
		case kindSpace:
			if !end(i) {
				return
			}
		case kindAlone, kindAloneMap:
			if !end(i) || !yield(Span{i, i + size}) {
				return
			}
		default:
			if begin < 0 {
				begin = i
			}
		}
		i += size
	}
	end(len(text))
}
