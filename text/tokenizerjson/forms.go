package tokenizerjson

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/gorbit-ml/gorbit/internal/data/chars"
)

// normal is a character of a normalized text, its combining class, and its change as editor.put has it.
type normal struct {
	r      rune
	class  uint8
	change int
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
		parts = chars.AppendDecomposed(parts[:0], r, form)
		for _, p := range parts {
			class := chars.CombiningClass(p)
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
	return r, size == len(joined) && chars.Is(r, chars.Decomposed)
}
