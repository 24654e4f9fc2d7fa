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

// direct divides texts into words without keeping track of where these come from.
type direct interface {
	// each calls do for the words of a text, which are valid until do returns. They are those that the
	// pre-tokenizers make.
	each(w *worker, s string, do func(word string))
}

// direct returns what gives the words of the pre-tokenizers faster, or nil if they are others: a Metaspace
// that puts its character before every text, or a ByteLevel whose words are bytes, with an expression that
// all of a text matches.
func (p preTokenizers) direct() direct {
	if len(p) == 0 || len(p) > 2 {
		return nil
	}
	if m, ok := p[0].(*metaspace); ok && len(p) == 1 && m.splits && m.scheme == "always" {
		return m
	}
	b, ok := p[len(p)-1].(*byteLevel)
	switch {
	case !ok || !b.bytes:
	case len(p) == 1 && b.Regex:
		return &scanned{gpt2, b.Prefix}
	case len(p) == 2 && !b.Regex && !b.Prefix:
		if d, ok := p[0].(delimiter); ok && d.whole != nil && d.how == isolated {
			return &scanned{d.whole, false}
		}
		if d, ok := p[0].(inverted); ok && d.whole != nil && d.how == removing {
			return &scanned{d.whole, false}
		}
	}
	return nil
}

// scanned divides texts by an expression that all of a text matches.
type scanned struct {
	scan   scanner
	prefix bool // a space is put before the text, if there is none
}

func (d *scanned) each(w *worker, s string, do func(word string)) {
	if d.prefix && s != "" && s[0] != ' ' {
		w.buf = append(append(w.buf[:0], ' '), s...)
		s = unsafe.String(unsafe.SliceData(w.buf), len(w.buf))
	}
	for i := 0; i < len(s); {
		end := d.scan(s, i)
		do(s[i:end])
		i = end
	}
}

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
