package text

import "slices"

// span is a range of code points, including both ends.
type span struct{ lo, hi rune }

// lowerRun says that adding delta lowers every stride-th code point from lo to hi.
type lowerRun struct {
	lo, hi rune
	stride rune
	delta  rune
}

// combiningRun is the canonical combining class of a range of code points.
type combiningRun struct {
	lo, hi rune
	class  uint8
}

// dottedI is the only code point whose lower case is two code points: i and a
// combining dot.
const dottedI = 'İ'

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
	c.paint(span{0, lastPoint}, kindSelf)
	for _, s := range punctuation {
		c.paint(s, kindAlone)
	}
	for _, s := range whitespace {
		c.paint(s, kindSpace)
	}
	if !cfg.JoinIdeographs {
		for _, s := range ideographs {
			c.paint(s, kindAlone)
		}
	}
	apart := func(r rune) bool { return !cfg.JoinIdeographs && contains(ideographs, r) }
	lower := func(dst []part, r rune, class uint8) []part {
		if !cfg.Lowercase {
			return append(dst, final(r, class))
		}
		if r == dottedI {
			return append(dst, final('i', 0), final('\u0307', 0))
		}
		return append(dst, final(lowerCase(r), class))
	}
	if cfg.Lowercase {
		for _, run := range lowerRuns {
			for r := run.lo; r <= run.hi; r += run.stride {
				c.set(r, lower(nil, r, 0), apart(r))
			}
		}
		c.set(dottedI, lower(nil, dottedI, 0), false)
	}
	if cfg.stripAccents() {
		strip := func(dst []part, r rune) []part {
			switch class := combiningClass(r); {
			case !contains(nonspacing, r):
				return lower(dst, r, class)
			case class == 0:
				return append(dst, part{kind: kindBreak})
			default:
				return append(dst, part{kind: kindDrop})
			}
		}
		for _, run := range combining {
			for r := run.lo; r <= run.hi; r++ {
				c.set(r, strip(nil, r), apart(r))
			}
		}
		for _, s := range nonspacing {
			for r := s.lo; r <= s.hi; r++ {
				c.set(r, strip(nil, r), apart(r))
			}
		}
		c.paint(span{hangulFirst, hangulLast}, kindHangul)
		var from rune = -1
		var parts []part
		for _, r := range decompositions {
			switch {
			case r == '\n':
				c.set(from, parts, apart(from))
				from, parts = -1, nil
			case from < 0:
				from = r
			default:
				parts = strip(parts, r)
			}
		}
	}
	if !cfg.Unclean {
		for _, s := range removed {
			c.paint(s, kindDrop)
		}
		for _, s := range blanked {
			c.paint(s, kindSpace)
		}
	}
	return c
}

// final returns a code point after text has been decomposed and lowered.
func final(r rune, class uint8) part {
	switch {
	case contains(whitespace, r):
		return part{kind: kindSpace}
	case contains(punctuation, r):
		return part{kind: kindAlone, r: r}
	}
	return part{kind: kindSelf, r: r, class: class}
}

// paint sets the entry of a range of code points.
func (c *classes) paint(s span, e entry) {
	for r := s.lo; r <= s.hi; {
		if r&(pageLen-1) == 0 && r+pageLen-1 <= s.hi {
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

// contains reports whether a code point is in a sorted set of spans.
func contains(set []span, r rune) bool {
	_, ok := slices.BinarySearchFunc(set, r, func(s span, r rune) int { return compare(s.lo, s.hi, r) })
	return ok
}

// combiningClass returns the canonical combining class of a code point.
func combiningClass(r rune) uint8 {
	i, ok := slices.BinarySearchFunc(combining, r, func(s combiningRun, r rune) int { return compare(s.lo, s.hi, r) })
	if !ok {
		return 0
	}
	return combining[i].class
}

// lowerCase returns the lower case of a code point, or the code point itself.
func lowerCase(r rune) rune {
	i, ok := slices.BinarySearchFunc(lowerRuns, r, func(s lowerRun, r rune) int { return compare(s.lo, s.hi, r) })
	if !ok || (r-lowerRuns[i].lo)%lowerRuns[i].stride != 0 {
		return r
	}
	return r + lowerRuns[i].delta
}

func compare(lo, hi, r rune) int {
	switch {
	case hi < r:
		return -1
	case lo > r:
		return 1
	}
	return 0
}
