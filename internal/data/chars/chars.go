// Package chars says what the tokenizers library knows of each code point.
//
// The library mixes several releases of Unicode, so the classes of code points, and which of them have
// another lower case, a decomposition or a combining class, come from tables that testdata/gen_tables.py
// reads from it (tables.go). They do not depend on the Go release. What the decompositions and combining
// classes are comes from golang.org/x/text, which never changes them.
package chars

import (
	"iter"
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Class is a set of classes, as bits.
type Class uint32

// The classes of code points.
const (
	Number      Class = 1 << iota // \p{N} of the library's regular expressions
	Space                         // white space, and \s of them
	Word                          // \w of Rust's regular expressions
	Numeric                       // what Digits separates
	Punctuation                   // what BertPreTokenizer and Punctuation separate
	Mark                          // what StripAccents removes
	Decomposed                    // has a decomposition, canonical or not
	Removed                       // what BertNormalizer removes when it cleans a text
	Nonspacing                    // what BertNormalizer removes as accents
	Combining                     // has a canonical combining class
	Upper                         // \p{Lu} of the library's regular expressions
	LowerCase                     // \p{Ll}
	Title                         // \p{Lt}
	Modifier                      // \p{Lm}
	OtherLetter                   // \p{Lo}
	AnyMark                       // \p{M}
	AnyPunct                      // \p{P}
	Symbol                        // \p{S}
	Ideograph                     // what BertNormalizer puts spaces around
	Digit                         // \d of the library's regular expressions
	WordPoint                     // \w of them
	Letter                        // \p{L}
)

// sets has the runs of each class, the first and the last code point of each.
var sets = [...][]rune{numbers, spaces, wordPoints, numeric, punctuation, marks, decomposed, removed, nonspacing, combining,
	uppers, lowers, titles, modifiers, otherLetters, allMarks, allPunctuation, symbols, ideographs, digits, expressionWords}

// DottedI is the only code point whose lower case is two code points: i and a combining dot.
const (
	DottedI = 'İ'
	Dot     = '\u0307'
)

const pageBits = 8

// table has the classes of all code points, in pages.
type table struct {
	pages   [(utf8.MaxRune + 1) >> pageBits]uint16
	classes []Class
}

var classes = sync.OnceValue(func() *table {
	all := make([]Class, utf8.MaxRune+1)
	for i := range sets {
		for lo, hi := range Runs(1 << i) {
			for r := lo; r <= hi; r++ {
				all[r] |= 1 << i
			}
		}
	}
	for r, c := range all {
		if c&(Upper|LowerCase|Title|Modifier|OtherLetter) != 0 {
			all[r] |= Letter
		}
	}
	t := &table{}
	known := map[[1 << pageBits]Class]uint16{}
	for i := range t.pages {
		page := [1 << pageBits]Class(all[i<<pageBits:])
		n, ok := known[page]
		if !ok {
			n = uint16(len(known))
			known[page] = n
			t.classes = append(t.classes, page[:]...)
		}
		t.pages[i] = n
	}
	return t
})

// Of returns the classes of a code point.
func Of(r rune) Class {
	t := classes()
	return t.classes[int(t.pages[r>>pageBits])<<pageBits|int(r&(1<<pageBits-1))]
}

// Is reports whether a code point is of a class.
func Is(r rune, c Class) bool { return Of(r)&c != 0 }

// Runs returns the code points of one class other than Letter in order: the first and the last of each run.
func Runs(c Class) iter.Seq2[rune, rune] {
	return func(yield func(lo, hi rune) bool) {
		for i, runs := range sets {
			for ; c == 1<<i && len(runs) > 0; runs = runs[2:] {
				if !yield(runs[0], runs[1]) {
					return
				}
			}
		}
	}
}

// Lower returns the lower case of a code point other than DottedI, or the code point itself.
func Lower(r rune) rune {
	if r < utf8.RuneSelf {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	i, _ := slices.BinarySearchFunc(lowered, r, func(run [4]rune, r rune) int { return int(run[1] - r) })
	if i == len(lowered) || r < lowered[i][0] || (r-lowered[i][0])%lowered[i][2] != 0 {
		return r
	}
	return r + lowered[i][3]
}

// Uppers returns the code points that Lower changes.
func Uppers() iter.Seq[rune] {
	return func(yield func(rune) bool) {
		for _, run := range lowered {
			for r := run[0]; r <= run[1]; r += run[2] {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// CombiningClass returns the canonical combining class of a code point that has no decomposition.
func CombiningClass(r rune) uint8 {
	if !Is(r, Combining) {
		return 0
	}
	var b [utf8.UTFMax]byte
	return norm.NFD.Properties(b[:utf8.EncodeRune(b[:], r)]).CCC()
}

// The Hangul syllables and their parts (The Unicode Standard, section 3.12).
const (
	HangulFirst = 0xac00
	HangulLast  = 0xd7a3
	hangulLead  = 0x1100
	hangulVowel = 0x1161
	hangulTail  = 0x11a7
	tails       = 28
	vowels      = 21
)

// AppendDecomposed appends the full decomposition of a code point in form NFD or NFKD, or the code point
// itself if it has none.
func AppendDecomposed(dst []rune, r rune, form norm.Form) []rune {
	if !Is(r, Decomposed) {
		return append(dst, r)
	}
	if HangulFirst <= r && r <= HangulLast {
		s := r - HangulFirst
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
