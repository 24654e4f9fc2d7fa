package text

import (
	"iter"
	"slices"

	"golang.org/x/text/unicode/norm"

	"github.com/gorbit-ml/gorbit/internal/data/chars"
)

// entry says what a code point of the text becomes: a kind in the high bits, and for
// some kinds a code point or an index in the low bits.
type entry uint32

const (
	kindSelf     entry = iota << kindShift // a character of a word, as it is
	kindMap                                // a character of a word: the code point below
	kindSpace                              // ends a word
	kindAlone                              // a word of its own, as it is
	kindAloneMap                           // a word of its own: the code point below
	kindDrop                               // nothing at all
	kindBreak                              // nothing, but it ends a run of combining marks
	kindHangul                             // a Hangul syllable, to be decomposed
	kindParts                              // several parts: at the index below

	kindShift = 24
	kindMask  = 0xff << kindShift
)

func (e entry) kind() entry { return e & kindMask }
func (e entry) rune() rune  { return rune(e &^ kindMask) }

// part is one of several code points that a code point becomes.
type part struct {
	kind  entry // kindSelf, kindSpace, kindAlone, kindDrop or kindBreak
	r     rune
	class uint8 // canonical combining class; 0 if text is not decomposed
}

// classes says what each code point becomes under a configuration. It is a two-stage
// table; pages with a single entry are shared.
type classes struct {
	pages   [(lastPoint + 1) >> pageBits]uint16
	entries []entry
	parts   [][]part
	uniform map[entry]uint16 // the shared pages
}

const (
	lastPoint = 0x10ffff
	pageBits  = 7
	pageLen   = 1 << pageBits
)

func (c *classes) lookup(r rune) entry {
	return c.entries[int(c.pages[r>>pageBits])<<pageBits|int(r&(pageLen-1))]
}

// newClasses computes the table for a configuration. The first step, cleaning, is
// painted last, because it overrides the other steps.
func newClasses(cfg Config) *classes {
	c := &classes{uniform: map[entry]uint16{}}
	c.paint(0, lastPoint, kindSelf)
	c.paintAll(chars.Punctuation, kindAlone)
	c.paintAll(chars.Space, kindSpace)
	if !cfg.JoinIdeographs {
		c.paintAll(chars.Ideograph, kindAlone)
	}
	apart := func(r rune) bool { return !cfg.JoinIdeographs && chars.Is(r, chars.Ideograph) }
	lower := func(dst []part, r rune, class uint8) []part {
		if !cfg.Lowercase {
			return append(dst, final(r, class))
		}
		if r == chars.DottedI {
			return append(dst, final('i', 0), final(chars.Dot, 0))
		}
		return append(dst, final(chars.Lower(r), class))
	}
	if cfg.Lowercase {
		for r := range chars.Uppers() {
			c.set(r, lower(nil, r, 0), apart(r))
		}
		c.set(chars.DottedI, lower(nil, chars.DottedI, 0), false)
	}
	if cfg.StripsAccents() {
		strip := func(dst []part, r rune) []part {
			switch class := chars.CombiningClass(r); {
			case !chars.Is(r, chars.Nonspacing):
				return lower(dst, r, class)
			case class == 0:
				return append(dst, part{kind: kindBreak})
			default:
				return append(dst, part{kind: kindDrop})
			}
		}
		for _, class := range []chars.Class{chars.Combining, chars.Nonspacing} {
			for r := range each(class) {
				c.set(r, strip(nil, r), apart(r))
			}
		}
		var whole []rune
		for r := range each(chars.Decomposed) {
			if whole = chars.AppendDecomposed(whole[:0], r, norm.NFD); len(whole) == 1 && whole[0] == r {
				continue // it has one that is not canonical
			}
			var parts []part
			for _, one := range whole {
				parts = strip(parts, one)
			}
			c.set(r, parts, apart(r))
		}
		c.paint(chars.HangulFirst, chars.HangulLast, kindHangul)
	}
	if !cfg.Unclean {
		c.paintAll(chars.Space, kindSpace)
		c.paintAll(chars.Removed, kindDrop)
	}
	return c
}

// each returns the code points of a class.
func each(class chars.Class) iter.Seq[rune] {
	return func(yield func(rune) bool) {
		for lo, hi := range chars.Runs(class) {
			for r := lo; r <= hi; r++ {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// final returns a code point after text has been decomposed and lowered.
func final(r rune, class uint8) part {
	switch {
	case chars.Is(r, chars.Space):
		return part{kind: kindSpace}
	case chars.Is(r, chars.Punctuation):
		return part{kind: kindAlone, r: r}
	}
	return part{kind: kindSelf, r: r, class: class}
}

// paintAll sets the entry of the code points of a class.
func (c *classes) paintAll(class chars.Class, e entry) {
	for lo, hi := range chars.Runs(class) {
		c.paint(lo, hi, e)
	}
}

// paint sets the entry of a range of code points.
func (c *classes) paint(lo, hi rune, e entry) {
	for r := lo; r <= hi; {
		if r&(pageLen-1) == 0 && r+pageLen-1 <= hi {
			c.pages[r>>pageBits] = c.uniformPage(e)
			r += pageLen
			continue
		}
		*c.own(r) = e
		r++
	}
}

// set sets the parts that a code point becomes. If apart is true, they are words of
// their own.
func (c *classes) set(r rune, parts []part, apart bool) {
	e := kindParts | entry(len(c.parts))
	if p := parts[0]; len(parts) == 1 && p.class == 0 {
		switch {
		case p.kind == kindAlone || p.kind == kindSelf && apart:
			e = kindAloneMap | entry(p.r)
		case p.kind == kindSelf:
			e = kindMap | entry(p.r)
		default:
			e = p.kind
		}
	}
	if e.kind() == kindParts {
		if apart {
			parts = slices.Concat([]part{{kind: kindSpace}}, parts, []part{{kind: kindSpace}})
		}
		c.parts = append(c.parts, parts)
	}
	*c.own(r) = e
}

// uniformPage returns a page whose entries are all e.
func (c *classes) uniformPage(e entry) uint16 {
	page, ok := c.uniform[e]
	if !ok {
		page = uint16(len(c.entries) >> pageBits)
		c.entries = append(c.entries, slices.Repeat([]entry{e}, pageLen)...)
		c.uniform[e] = page
	}
	return page
}

// own returns the entry of a code point for writing, in a page that is not shared.
func (c *classes) own(r rune) *entry {
	page := c.pages[r>>pageBits]
	at := int(page) << pageBits
	if shared, ok := c.uniform[c.entries[at]]; ok && shared == page {
		page = uint16(len(c.entries) >> pageBits)
		c.entries = append(c.entries, c.entries[at:at+pageLen]...)
		c.pages[r>>pageBits] = page
		at = int(page) << pageBits
	}
	return &c.entries[at|int(r&(pageLen-1))]
}
