package tokenizerjson

import (
	"math"
	"unicode/utf8"
)

// memo is what is kept of the matches of a regex in one text, from one match to the next. The zero value is
// for a new text.
//
// Going back is fast for the patterns and texts of models, and may take the square of the text's length, or
// worse, for others. So once that took more steps than a text should, each place that a match fails at is kept:
// whether the rest of a pattern matches at a byte does not depend on where the match began, as there are no
// references to what a group matched. Then no item is tried twice at a byte, and the time is the length of
// the text times the pattern's, with the most times that its items may occur.
type memo struct {
	text string
	// left is how many steps there may be until places are kept: characters that repetitions take, and groups
	// that are tried.
	left  int
	known []places // by byte of the text and for its end; nil while there were few steps
}

// places are the choices of a pattern, by their bits, whose outcome at a byte is known. What is meant is the
// rest of the pattern after an item. Of a repetition without a most it is also all that comes of going on with
// it there; when this is looked for, and found, it holds.
type places struct{ fails, holds uint64 }

// stepsPerByte is how many steps a text may take for each byte before places are kept.
const stepsPerByte = 32

// begin makes the memo that of a text, unless it is already.
func (m *memo) begin(text string) {
	if m.text == "" {
		m.text, m.left = text, stepsPerByte*len(text)
	}
}

// took counts steps.
func (m *memo) took(n int) {
	if m.left -= n; m.left < 0 {
		m.keep()
	}
}

// keep begins to keep places. It is no part of the functions that count.
//
//go:noinline
func (m *memo) keep() {
	if m.known == nil {
		m.known = make([]places, len(m.text)+1)
	}
}

// rest is a group that a match is in, whose after follows.
type rest struct {
	group *item
	next  *rest
}

// any returns the end of the match at byte i, or -1.
func (m *memo) any(r regex, i int, then *rest) int {
	for _, items := range r {
		if end := m.match(items, i, then); end >= 0 {
			return end
		}
	}
	return -1
}

func (m *memo) match(items []item, i int, then *rest) int {
	text := m.text
	for {
		if len(items) == 0 {
			if then == nil {
				return i
			}
			if m.known != nil {
				return m.after(then, i)
			}
			items, then = then.group.after, then.next
			continue
		}
		it := &items[0]
		items = items[1:]
		switch {
		case it.before != nil:
			if it.precedes(text, i) != (it.look == mustPrecede) {
				return -1
			}
		case it.look != noLook:
			if (m.any(it.group, i, nil) >= 0) != (it.look == mustFollow) {
				return -1
			}
		case it.group != nil:
			m.took(1)
			after := &rest{it, then}
			if end := m.any(it.group, i, after); end >= 0 || it.min > 0 {
				return end
			}
			if m.known != nil {
				return m.after(after, i)
			}
		case m.known != nil && it.choice != 0:
			return m.repeat(it, items, i, then)
		default:
			least, n := i, 0 // where the repetition may end at the earliest
			for ; n < it.max && i < len(text); n++ {
				size := 1
				if it.units != nil {
					size = all(it.units, text[i:])
				} else if c := text[i]; c >= utf8.RuneSelf {
					size = it.set.wide(text[i:])
				} else if !it.set.ascii[c] {
					break
				}
				if size == 0 {
					break
				}
				if i += size; n < it.min {
					least = i
				}
			}
			if m.took(n); n < it.min {
				return -1
			}
			if it.possessive || len(items) == 0 && then == nil {
				continue
			}
			for ; i > least; i = back(text, i, max(1, len(it.units))) {
				if end := m.match(items, i, then); end >= 0 {
					return end
				}
			}
		}
	}
}

// after matches what follows a group, and keeps where that fails.
func (m *memo) after(then *rest, i int) int {
	at := &m.known[i]
	if at.fails&then.group.choice != 0 {
		return -1
	}
	end := m.match(then.group.after, i, then.next)
	if end < 0 {
		at.fails |= then.group.choice
	}
	return end
}

// repeat matches a repetition and what follows it, and keeps where that fails and, if it is looked for, where it
// holds.
func (m *memo) repeat(it *item, items []item, i int, then *rest) int {
	n := 0
	for ; n < it.min; n++ {
		size := it.size(m.text[i:])
		if size == 0 {
			return -1
		}
		i += size
	}
	least, goesOn := i, it.max == math.MaxInt
	end := -1
	for ; n < it.max; n++ {
		if at := m.known[i]; goesOn && (at.fails|at.holds)&it.choice != 0 {
			if at.holds&it.choice != 0 {
				end = i
			}
			break
		}
		size := it.size(m.text[i:])
		if size == 0 {
			break
		}
		i += size
		m.left--
	}
	for furthest := i; ; i = back(m.text, i, max(1, len(it.units))) {
		at := &m.known[i]
		if end < 0 && at.fails&it.choice == 0 && (i == furthest || !it.possessive) {
			end = m.match(items, i, then)
		}
		switch {
		case end < 0:
			at.fails |= it.choice
		case goesOn && it.ahead:
			at.holds |= it.choice
		default:
			return end
		}
		if i == least || it.possessive && !goesOn {
			return end
		}
	}
}

// size returns the length of what an item takes at once of what a text begins with, or 0.
func (it *item) size(text string) int {
	if it.units != nil {
		return all(it.units, text)
	}
	return it.set.one(text)
}
