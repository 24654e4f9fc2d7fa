package tokenizerjson

import (
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/gorbit-ml/gorbit/internal/data/chars"
)

// plain says which texts a normalizer leaves as they are: those of some ASCII characters.
type plain struct {
	leaves [utf8.RuneSelf]bool
	// spaces says that a space next to another one may change, and ends that one at an end may.
	spaces, ends bool
}

// severalSpaces is the regular expression that models replace by a space.
const severalSpaces = " {2,}"

// plainOf returns what is known of a normalizer, and whether anything is.
func plainOf(n normalizer) (p plain, ok bool) {
	each := func(leaves func(r rune) bool) (plain, bool) {
		for r := range rune(len(p.leaves)) {
			p.leaves[r] = leaves(r)
		}
		return p, true
	}
	switch n := n.(type) {
	case nil, unicodeForm, ideographs:
		return each(func(rune) bool { return true })
	case lowercase:
		return each(func(r rune) bool { return r < 'A' || 'Z' < r })
	case filter:
		return each(n.keep)
	case mapping:
		return each(func(r rune) bool { return n(r) == r })
	case *strip:
		p.ends = true
		return each(func(r rune) bool { return r == ' ' || !chars.Is(r, chars.Space) })
	case *precompiled:
		return each(func(r rune) bool { return n.plain[r] })
	case *replace:
		p.spaces = n.spaces
		return each(func(r rune) bool { return n.begins != "" && !strings.HasPrefix(n.begins, string(r)) || n.spaces })
	case sequence:
		all, _ := plainOf(nil)
		for _, one := range n {
			p, ok := plainOf(one)
			if !ok {
				return p, false
			}
			all.spaces, all.ends = all.spaces || p.spaces, all.ends || p.ends
			for r := range p.leaves {
				all.leaves[r] = all.leaves[r] && p.leaves[r]
			}
		}
		return all, true
	}
	return p, false
}

// leave reports whether the normalizer leaves a text as it is. It may do so, too, if this is false.
func (p *plain) leave(s string) bool {
	if p == nil {
		return false
	}
	last := byte(0)
	for i := range len(s) {
		c := s[i]
		if c >= utf8.RuneSelf || !p.leaves[c] || c == ' ' && last == ' ' && p.spaces {
			return false
		}
		last = c
	}
	return !p.ends || s == "" || s[0] != ' ' && last != ' '
}

// alone returns the pre-tokenizer, if it is a Metaspace and nothing else, that puts its character before
// every text.
func (p preTokenizers) alone() *metaspace {
	if len(p) != 1 {
		return nil
	}
	m, ok := p[0].(*metaspace)
	if !ok || !m.splits || m.scheme != "always" {
		return nil
	}
	return m
}

// each calls do for the words of a text, which are valid until do returns. They are those of split, which
// keeps track of where they come from.
func (m *metaspace) each(w *worker, s string, do func(word string)) {
	mark := m.replacement
	if s == "" {
		return
	}
	if !strings.HasPrefix(s, " ") && !strings.HasPrefix(s, mark) {
		s = w.word(mark, s, do)
	}
	for s != "" {
		if s[0] == ' ' {
			s = s[1:]
		} else {
			s = s[len(mark):]
		}
		s = w.word(mark, s, do)
	}
}

// word calls do for the mark and what s has before the next space or mark, and returns the rest.
func (w *worker) word(mark, s string, do func(word string)) string {
	end := 0
	for end < len(s) && s[end] != ' ' && (s[end] != mark[0] || !strings.HasPrefix(s[end:], mark)) {
		end++
	}
	w.buf = append(append(w.buf[:0], mark...), s[:end]...)
	do(unsafe.String(unsafe.SliceData(w.buf), len(w.buf)))
	return s[end:]
}
