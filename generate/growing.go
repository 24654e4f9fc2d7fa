package generate

import "strings"

// growWindow is how many tokens are decoded again with a new one before some of them are settled, and growKept
// how many of those stay.
const (
	growWindow = 48
	growKept   = 16
)

// Growing is the text of tokens that come one by one. A decoder looks at few tokens around each, so that those
// far back are not decoded again: their text is settled. Where a decoder gives another text for the last tokens
// alone than at the end of all, they are settled later.
type Growing struct {
	decode  func(ids []int32) string
	settled []byte
	anchor  string  // the text of the first of ids alone, which ends what is settled; "" at the beginning
	ids     []int32 // the tokens after what is settled, with the anchor before them
	open    string  // the text after what is settled
	next    int     // the length of ids from which on some may be settled
}

// NewGrowing returns the text of no tokens.
func NewGrowing(decode func(ids []int32) string) *Growing {
	return &Growing{decode: decode, next: growWindow}
}

// Add adds a token.
func (g *Growing) Add(id int32) {
	g.ids = append(g.ids, id)
	g.open = strings.TrimPrefix(g.decode(g.ids), g.anchor)
	if len(g.ids) >= g.next {
		g.settle()
	}
}

// Text returns the text of all tokens.
func (g *Growing) Text() string { return string(g.settled) + g.open }

// Last returns the end of the text: what may have changed with the last token, and n bytes before it.
func (g *Growing) Last(n int) string {
	return string(g.settled[max(0, len(g.settled)-n):]) + g.open
}

// settle settles the text up to a token after which the rest has the same text alone.
func (g *Growing) settle() {
	for k := len(g.ids) - growKept; k > 0; k-- {
		anchor := g.decode(g.ids[k : k+1])
		own := strings.TrimLeft(anchor, " ")
		if own == "" || strings.Contains(own, "\ufffd") { // no whole character
			continue
		}
		rest, ok := strings.CutPrefix(g.decode(g.ids[k:]), anchor)
		if !ok {
			continue
		}
		if before, ok := strings.CutSuffix(g.open, rest); ok && strings.HasSuffix(before, own) {
			g.settled, g.open = append(g.settled, before...), rest
			g.anchor, g.ids = anchor, append([]int32(nil), g.ids[k:]...)
			g.next = growWindow
			return
		}
	}
	g.next = 2 * len(g.ids)
}
