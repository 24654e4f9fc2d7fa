package text

import "unicode/utf8"

// Span is a part of a text, as offsets of bytes.
type Span struct{ Start, End int }

// AppendWords appends the words of a text to dst: its parts between white space, of which each
// punctuation mark and each CJK ideograph is one. AppendIDs of the words, one after the other, gives the
// ids of the text, except that special tokens that are written out are plain characters.
func (t *Tokenizer) AppendWords(dst []Span, text string) []Span {
	begin := -1
	end := func(at int) {
		if begin >= 0 {
			dst = append(dst, Span{begin, at})
		}
		begin = -1
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch t.classes.lookup(r).kind() {
		case kindSpace:
			end(i)
		case kindAlone, kindAloneMap:
			end(i)
			dst = append(dst, Span{i, i + size})
		default:
			if begin < 0 {
				begin = i
			}
		}
		i += size
	}
	end(len(text))
	return dst
}
