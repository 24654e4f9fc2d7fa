package tokenizerjson

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/data/chars"
)

// added finds added tokens in a text.
type added struct {
	first  [256]bool // bytes that one begins with
	only   string    // the one byte that all begin with, or ""
	tokens []AddedToken
	byText map[string]int // in tokens
	// sizes are the lengths of tokens, the longest first.
	sizes []int
}

// newAdded returns what finds tokens, each by the text that it is found by.
func newAdded(tokens []AddedToken, texts []string) *added {
	if len(tokens) == 0 {
		return nil
	}
	a := &added{tokens: tokens, byText: map[string]int{}}
	for i, s := range texts {
		if s == "" {
			continue
		}
		a.first[s[0]] = true
		a.byText[s] = i
		if !slices.Contains(a.sizes, len(s)) {
			a.sizes = append(a.sizes, len(s))
		}
	}
	for c, ok := range a.first {
		if ok {
			a.only += string([]byte{byte(c)})
		}
	}
	if len(a.only) > 1 {
		a.only = ""
	}
	slices.SortFunc(a.sizes, func(x, y int) int { return cmp.Compare(y, x) })
	return a
}

// in reports whether a text may have a token.
func (a *added) in(s string) bool {
	if a == nil || a.only != "" && strings.IndexByte(s, a.only[0]) < 0 {
		return false
	}
	for i := range len(s) {
		if a.first[s[i]] {
			if _, _, ok := a.at(s, i); ok {
				return true
			}
		}
	}
	return false
}

// at returns the longest token at byte i.
func (a *added) at(s string, i int) (token, size int, ok bool) {
	for _, n := range a.sizes {
		if n <= len(s)-i {
			if t, ok := a.byText[s[i:i+n]]; ok {
				return t, n, true
			}
		}
	}
	return 0, 0, false
}

// split appends the tokens of a chunk, and what is between them.
func (a *added) split(dst []chunk, c chunk) []chunk {
	if !a.in(c.s) {
		return append(dst, c)
	}
	s, begin := c.s, 0
	for i := 0; i < len(s); {
		if !a.first[s[i]] {
			i++
			continue
		}
		n, size, ok := a.at(s, i)
		if !ok {
			i++
			continue
		}
		t := &a.tokens[n]
		from, to := i, i+size
		i = to
		if t.SingleWord && (endsWithWord(s[:from]) || beginsWithWord(s[to:])) {
			continue
		}
		space := func(r rune) bool { return chars.Is(r, chars.Space) }
		if t.LStrip {
			from = max(len(strings.TrimRightFunc(s[:from], space)), begin)
		}
		if t.RStrip {
			to = len(s) - len(strings.TrimLeftFunc(s[to:], space))
		}
		if begin < from {
			dst = append(dst, c.slice(begin, from))
		}
		token := c.slice(from, to)
		token.id = t.ID
		dst = append(dst, token)
		begin = to
	}
	if begin < len(s) {
		dst = append(dst, c.slice(begin, len(s)))
	}
	return dst
}

func endsWithWord(s string) bool {
	r, size := utf8.DecodeLastRuneInString(s)
	return size > 0 && chars.Is(r, chars.Word)
}

func beginsWithWord(s string) bool {
	r, size := utf8.DecodeRuneInString(s)
	return size > 0 && chars.Is(r, chars.Word)
}
