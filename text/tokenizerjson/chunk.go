package tokenizerjson

import (
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/text"
)

// chunk is a part of a text on its way through the parts of a tokenizer.
type chunk struct {
	s string // as it is now
	// spans has for each byte of s the part of the original text that it stands for. It is nil if nobody
	// asks.
	spans []text.Span
	id    int32 // of an added token, or -1
}

// whole returns the chunk of a text.
func whole(s string, track bool) chunk {
	c := chunk{s: s, id: -1}
	valid := utf8.ValidString(s)
	if !track {
		if !valid {
			c.s = string([]rune(s))
		}
		return c
	}
	c.spans = make([]text.Span, 0, len(s))
	for i, r := range s {
		_, size := utf8.DecodeRuneInString(s[i:])
		for range utf8.RuneLen(r) {
			c.spans = append(c.spans, text.Span{Start: i, End: i + size})
		}
	}
	if !valid {
		c.s = string([]rune(s))
	}
	return c
}

// slice returns the part from byte i to byte j.
func (c *chunk) slice(i, j int) chunk {
	out := chunk{s: c.s[i:j], id: -1}
	if c.spans != nil {
		out.spans = c.spans[i:j]
	}
	return out
}

// span returns the part of the original that the bytes from i to j stand for.
func (c *chunk) span(i, j int) text.Span {
	if i >= j || j > len(c.spans) {
		return text.Span{Start: i, End: j}
	}
	return text.Span{Start: c.spans[i].Start, End: c.spans[j-1].End}
}

// start returns where the chunk begins in the original.
func (c *chunk) start() int {
	if len(c.spans) == 0 {
		return 0
	}
	return c.spans[0].Start
}

// editor makes the text that a chunk becomes, character by character.
type editor struct {
	from  *chunk
	at    int // of the next byte that has not been replaced
	buf   []byte
	spans []text.Span
}

func edit(c *chunk) *editor {
	e := &editor{from: c, buf: make([]byte, 0, len(c.s)+len(c.s)/4+4)}
	if c.spans != nil {
		e.spans = make([]text.Span, 0, cap(e.buf))
	}
	return e
}

// drop leaves out the next n characters.
func (e *editor) drop(n int) {
	for range n {
		_, size := utf8.DecodeRuneInString(e.from.s[e.at:])
		e.at += size
	}
}

// put appends a character. It is in addition to those before if change is above 0; otherwise it stands for
// the next one of the chunk, and -change more are left out.
func (e *editor) put(r rune, change int) {
	var span text.Span
	if e.spans != nil && change > 0 && e.at > 0 {
		span = e.from.spans[e.at-1]
	} else if e.spans != nil && change <= 0 && e.at < len(e.from.spans) {
		span = e.from.spans[e.at]
	}
	if change <= 0 {
		e.drop(1 - change)
	}
	n := len(e.buf)
	e.buf = utf8.AppendRune(e.buf, r)
	if e.spans != nil {
		for range len(e.buf) - n {
			e.spans = append(e.spans, span)
		}
	}
}

// keep appends the next n bytes as they are.
func (e *editor) keep(n int) {
	e.buf = append(e.buf, e.from.s[e.at:e.at+n]...)
	if e.spans != nil {
		e.spans = append(e.spans, e.from.spans[e.at:e.at+n]...)
	}
	e.at += n
}

// insert appends characters in addition to those before.
func (e *editor) insert(s string) {
	for _, r := range s {
		e.put(r, 1)
	}
}

// done puts the new text into the chunk.
func (e *editor) done() {
	e.from.s, e.from.spans = string(e.buf), e.spans
}

// prepend puts a text before a chunk, which stands for its first character.
func (c *chunk) prepend(s string) {
	if c.s == "" || s == "" {
		return
	}
	if c.spans == nil {
		c.s = s + c.s
		return
	}
	first, size := utf8.DecodeRuneInString(c.s)
	e := edit(c)
	for i, r := range s {
		if i == 0 {
			e.put(r, 0)
		} else {
			e.put(r, 1)
		}
	}
	e.put(first, 1)
	e.keep(len(c.s) - size)
	e.done()
}
