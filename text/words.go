package text

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Continues implements Algorithm: whether a token begins with "##".
func (t *wordPiece) Continues(token string) bool { return strings.HasPrefix(token, Continuation) }

// AppendTokens implements Algorithm. The span of a token is that of its word.
func (t *wordPiece) AppendTokens(dst []Token, text string, most int) (tokens []Token, more int) {
	var ids []int32
	begin := len(dst)
	t.words(text, func(w Span) bool {
		var cut int
		ids, cut = t.AppendFirst(ids[:0], text[w.Start:w.End], most-(len(dst)-begin))
		more += cut
		for _, id := range ids {
			dst = append(dst, Token{id, w})
		}
		return true
	})
	return dst, more
}

// Decode implements Algorithm: the tokens with spaces between words.
func (t *wordPiece) Decode(ids []int32, specials bool) string {
	var b strings.Builder
	for _, id := range ids {
		token := t.vocab.Token(id)
		if token == "" || !specials && slices.Contains([]string{Pad, Unk, Cls, Sep, Mask}, token) {
			continue
		}
		piece, inner := strings.CutPrefix(token, Continuation)
		if !inner && b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(piece)
	}
	return b.String()
}

// words calls yield with the words of a text: its parts between white space, of which each punctuation
// mark, each CJK ideograph and each special token that is written out is one. The ids of the words, one after
// the other, are those of the text.
func (t *wordPiece) words(text string, yield func(Span) bool) {
	begin := -1
	end := func(at int) bool {
		from := begin
		begin = -1
		return from < 0 || yield(Span{from, at})
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == '[' {
			if s := t.specialAt(text[i:]); s != nil {
				size = len(s.text)
			}
		}
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
