package tokenizerjson

import (
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/gorbit-ml/gorbit/internal/data/chars"
	"github.com/gorbit-ml/gorbit/text/bpe"
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
// that puts its character before every text, or expressions whose matches are words, and at the end a
// ByteLevel, whose words are bytes then.
func (p preTokenizers) direct() direct {
	if len(p) == 0 {
		return nil
	}
	if m, ok := p[0].(*metaspace); ok && len(p) == 1 && m.splits && m.scheme == "always" {
		return m
	}
	b, ok := p[len(p)-1].(*byteLevel)
	if !ok || b.Prefix && len(p) > 1 {
		return nil
	}
	f := &found{prefix: b.Prefix}
	for _, one := range p[:len(p)-1] {
		switch d := one.(type) {
		case delimiter:
			if d.how != isolated {
				return nil
			}
			f.stages = append(f.stages, stage{d.find, true})
		case inverted:
			if d.how != removing {
				return nil
			}
			f.stages = append(f.stages, stage{d.find, false})
		default:
			return nil
		}
	}
	if b.Regex {
		f.stages = append(f.stages, stage{find(gpt2), true})
	}
	return f
}

// found divides texts by expressions one after the other.
type found struct {
	stages []stage
	prefix bool // a space is put before the text, if there is none
}

// stage is an expression whose matches are words; keep says that what is between them is, too.
type stage struct {
	find finder
	keep bool
}

func (f *found) each(w *worker, s string, do func(word string)) {
	if f.prefix && s != "" && s[0] != ' ' {
		w.buf = append(append(w.buf[:0], ' '), s...)
		s = unsafe.String(unsafe.SliceData(w.buf), len(w.buf))
	}
	for len(w.memos) < len(f.stages) {
		w.memos = append(w.memos, memo{})
	}
	f.from(w, 0, s, do)
}

// from calls do for the words that the stages from n on make of a text.
func (f *found) from(w *worker, n int, s string, do func(word string)) {
	if n == len(f.stages) {
		if s != "" {
			do(s)
		}
		return
	}
	m := &w.memos[n]
	at := 0
	for {
		from, to := f.stages[n].find(s, at, m)
		if from < 0 {
			break
		}
		if from > at && f.stages[n].keep {
			f.from(w, n+1, s[at:from], do)
		}
		f.from(w, n+1, s[from:to], do)
		at = to
	}
	*m = memo{}
	if f.stages[n].keep {
		f.from(w, n+1, s[at:], do)
	}
}

// slow appends the words of a chunk for a model whose tokens are names of bytes, because it has none for a
// byte of the chunk.
func (p *pipeline) slow(c chunk) []chunk {
	parts := []chunk{c}
	for _, one := range p.split {
		var next []chunk
		for _, part := range parts {
			next = one.split(next, part)
		}
		parts = slices.DeleteFunc(next, func(c chunk) bool { return c.s == "" })
	}
	return parts
}

// lacks reports whether the model has no token for a byte of a text.
func (p *pipeline) lacks(s string) bool {
	if p.lacking == nil {
		return false
	}
	for i := range len(s) {
		if p.lacking[s[i]] {
			return true
		}
	}
	return false
}

// setQuick finds a direct way for a model of bytes, if only some bytes have no token: a second model is for
// the texts without these.
func (p *pipeline) setQuick() error {
	m, ok := p.model.(*bpe.Model)
	n := len(p.split)
	if !ok || n == 0 {
		return nil
	}
	b, ok := p.split[n-1].(*byteLevel)
	if !ok {
		return nil
	}
	if m.Bytes() {
		b.bytes = true
	} else {
		cfg := m.Config()
		if cfg.Prefix != "" || cfg.Suffix != "" {
			return nil
		}
		cfg.Bytes = true
		quick, err := bpe.New(cfg)
		if err != nil {
			return err
		}
		p.quick, p.lacking = quick, quick.Lacking()
		if b.Prefix && p.lacking != nil && p.lacking[' '] { // the prefix is not in the texts that lacks sees
			p.quick, p.lacking = p.model, nil
			return nil
		}
	}
	p.direct = p.split.direct()
	return nil
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
