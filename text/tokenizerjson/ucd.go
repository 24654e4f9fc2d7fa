package tokenizerjson

import (
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// class is what the library knows of a code point, as bits.
type class uint16

const (
	isLetter class = 1 << iota
	isNumber
	isSpace
	isWord // \w of Rust's regular expressions
	isNumeric
	isPunctuation
	isMark
	isDecomposed
	isRemoved
	isNonspacing
	isCombining
)

const pageBits = 8

// points are the classes of all code points, in pages.
type points struct {
	pages   [(utf8.MaxRune + 1) >> pageBits]uint16
	classes []class
}

func (p *points) of(r rune) class {
	return p.classes[int(p.pages[r>>pageBits])<<pageBits|int(r&(1<<pageBits-1))]
}

// ucd returns the classes.
var ucd = sync.OnceValue(func() *points {
	all := make([]class, utf8.MaxRune+1)
	for i, runs := range [][]rune{letters, numbers, spaces, wordPoints, numeric, punctuation, marks, decomposed, removed, nonspacing, combining} {
		for ; len(runs) > 0; runs = runs[2:] {
			for r := runs[0]; r <= runs[1]; r++ {
				all[r] |= 1 << i
			}
		}
	}
	p := &points{}
	known := map[string]uint16{}
	var key []byte
	for i := range p.pages {
		page := all[i<<pageBits : (i+1)<<pageBits]
		key = key[:0]
		for _, c := range page {
			key = append(key, byte(c), byte(c>>8))
		}
		n, ok := known[string(key)]
		if !ok {
			n = uint16(len(known))
			known[string(key)] = n
			p.classes = append(p.classes, page...)
		}
		p.pages[i] = n
	}
	return p
})

// is reports whether a code point is of a class.
func is(r rune, c class) bool { return ucd().of(r)&c != 0 }

// lowerCases has the lower case of the code points that have another one.
var lowerCases = sync.OnceValue(func() map[rune]rune {
	out := make(map[rune]rune, 1500)
	for _, run := range lowered {
		for r := run[0]; r <= run[1]; r += run[2] {
			out[r] = r + run[3]
		}
	}
	return out
})

// normal is a character of a normalized text, its combining class, and its change as editor.put has it.
type normal struct {
	r      rune
	class  uint8
	change int
}

// combiningClass returns the canonical combining class.
func combiningClass(r rune) uint8 {
	if !is(r, isCombining) {
		return 0
	}
	var b [utf8.UTFMax]byte
	return norm.NFD.Properties(b[:utf8.EncodeRune(b[:], r)]).CCC()
}

// The Hangul syllables and their parts (The Unicode Standard, section 3.12).
const (
	hangulFirst = 0xac00
	hangulLast  = 0xd7a3
	hangulLead  = 0x1100
	hangulVowel = 0x1161
	hangulTail  = 0x11a7
	tails       = 28
	vowels      = 21
)

// appendDecomposed appends the decomposition of a code point.
func appendDecomposed(dst []rune, r rune, form norm.Form) []rune {
	if !is(r, isDecomposed) {
		return append(dst, r)
	}
	if hangulFirst <= r && r <= hangulLast {
		s := r - hangulFirst
		dst = append(dst, hangulLead+s/(vowels*tails), hangulVowel+s%(vowels*tails)/tails)
		if s%tails != 0 {
			dst = append(dst, hangulTail+s%tails)
		}
		return dst
	}
	var b [utf8.UTFMax]byte
	parts := form.Properties(b[:utf8.EncodeRune(b[:], r)]).Decomposition()
	if parts == nil {
		return append(dst, r)
	}
	return append(dst, []rune(string(parts))...)
}

// decompose returns the characters of a text in form NFD or NFKD.
func decompose(s string, form norm.Form) []normal {
	out := make([]normal, 0, len(s)+8)
	var parts []rune
	pending := 0 // where the marks at the end begin
	sort := func() {
		slices.SortStableFunc(out[pending:], func(a, b normal) int { return int(a.class) - int(b.class) })
	}
	for _, r := range s {
		change := 0
		parts = appendDecomposed(parts[:0], r, form)
		for _, p := range parts {
			class := combiningClass(p)
			if class == 0 {
				sort()
			}
			out = append(out, normal{p, class, change})
			if class == 0 {
				pending = len(out)
			}
			change = 1
		}
	}
	sort()
	return out
}

// compose joins characters that are decomposed, for the forms NFC and NFKC.
func compose(in []normal) []normal {
	out := in[:0]
	starter := -1 // in out
	var last uint8
	for _, c := range in {
		if starter >= 0 {
			between := len(out) - 1 - starter
			if between == 0 || last < c.class {
				if r, ok := pair(out[starter].r, c.r); ok {
					out[starter].r = r
					out[starter].change += c.change - 1
					continue
				}
			}
		}
		if c.class == 0 {
			starter = len(out)
		}
		last = c.class
		out = append(out, c)
	}
	return out
}

// pair returns the canonical composition of two code points.
func pair(a, b rune) (rune, bool) {
	if b < 0x300 {
		return 0, false // no composition ends with these
	}
	var buf [2 * utf8.UTFMax]byte
	both := utf8.AppendRune(utf8.AppendRune(buf[:0], a), b)
	if norm.NFC.QuickSpan(both) == len(both) {
		return 0, false
	}
	joined := norm.NFC.Bytes(both)
	r, size := utf8.DecodeRune(joined)
	return r, size == len(joined) && is(r, isDecomposed)
}
