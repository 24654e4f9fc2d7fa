package sentencepiece

import (
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/data/charsmap"
	"github.com/gorbit-ml/gorbit/internal/data/trie"
)

// space is what a space is after normalization (U+2581).
const space = "▁"

// normalizer normalizes texts.
type normalizer struct {
	spec       normalizerSpec
	spaceAfter bool
	rules      rules
	symbols    trie.Trie // user-defined symbols, which stay as they are
	hasSymbols bool
}

func newNormalizer(spec normalizerSpec, symbols []string, spaceAfter bool) (*normalizer, error) {
	n := &normalizer{spec: spec, spaceAfter: spaceAfter, symbols: trie.New(symbols), hasSymbols: len(symbols) > 0}
	var err error
	n.rules, err = newRules(spec.table)
	return n, err
}

// normalized is a text after normalization, and where its bytes come from.
type normalized struct {
	bytes []byte
	// from has for each byte, and for the end, the offset in the original text. It is nil if nobody asks.
	from []int32
	keep bool // from
}

func (n *normalized) add(s string, at int) {
	n.bytes = append(n.bytes, s...)
	if n.keep {
		for range len(s) {
			n.from = append(n.from, int32(at))
		}
	}
}

// apply normalizes a text into out.
func (n *normalizer) apply(out *normalized, text string) {
	out.bytes, out.from = out.bytes[:0], out.from[:0]
	at := 0
	if n.spec.removeExtra {
		for at < len(text) {
			to, size := n.prefix(text[at:])
			if to != " " {
				break
			}
			at += size
		}
	}
	if at == len(text) {
		return
	}
	blank := " "
	if n.spec.escape {
		blank = space
	}
	if !n.spaceAfter && n.spec.addPrefix {
		out.add(blank, at)
	}
	afterSpace := n.spec.removeExtra
	for at < len(text) {
		to, size := n.prefix(text[at:])
		if afterSpace {
			to = strings.TrimLeft(to, " ")
		}
		if to != "" {
			out.addEscaped(to, blank, at)
			afterSpace = n.spec.removeExtra && to[len(to)-1] == ' '
		}
		at += size
	}
	if n.spec.removeExtra {
		for strings.HasSuffix(string(out.bytes[max(0, len(out.bytes)-len(blank)):]), blank) {
			end := len(out.bytes) - len(blank)
			out.bytes = out.bytes[:end]
			if out.keep {
				at = int(out.from[end])
				out.from = out.from[:end]
			}
		}
	}
	if n.spaceAfter && n.spec.addPrefix {
		out.add(blank, at)
	}
	if out.keep {
		out.from = append(out.from, int32(at))
	}
}

// addEscaped adds a text in which spaces are blanks.
func (n *normalized) addEscaped(s, blank string, at int) {
	if blank == " " || strings.IndexByte(s, ' ') < 0 {
		n.add(s, at)
		return
	}
	for i := range len(s) {
		if s[i] == ' ' {
			n.add(blank, at)
		} else {
			n.add(s[i:i+1], at)
		}
	}
}

// prefix returns what the beginning of a text becomes, and how many bytes that is.
func (n *normalizer) prefix(text string) (to string, size int) {
	if n.rules.keeps(text) && !n.hasSymbols {
		return text[:1], 1
	}
	if n.hasSymbols {
		if size := longest(&n.symbols, text); size > 0 {
			return text[:size], size
		}
	}
	if to, size := n.rules.Longest(text); size > 0 {
		return to, size
	}
	r, size := utf8.DecodeRuneInString(text)
	if r == utf8.RuneError && size == 1 {
		return "\ufffd", 1
	}
	return text[:size], size
}

// longest returns the length of the longest token that a text begins with.
func longest[T string | []byte](t *trie.Trie, text T) int {
	node, length := int32(trie.Root), 0
	for i := range len(text) {
		n := t.Cells[node].Base + int32(text[i])
		if t.Cells[n].Parent != node {
			break
		}
		node = n
		if t.Cells[n].ID >= 0 {
			length = i + 1
		}
	}
	return length
}

// rules are what strings become.
type rules struct {
	charsmap.Map
	// alone are the ASCII characters without a rule that are not the beginning of one that has another
	// ASCII character next.
	alone [utf8.RuneSelf]bool
}

func newRules(table []byte) (r rules, err error) {
	if len(table) > 0 {
		if r.Map, err = charsmap.Parse(table); err != nil {
			return r, fault.Usagef("its %w", err)
		}
	}
	for c := range r.alone {
		r.alone[c] = r.stays(c)
	}
	return r, nil
}

// stays reports whether no rule begins with an ASCII character, alone or with another one next.
func (r *rules) stays(c int) bool {
	if _, size := r.Longest(string(rune(c))); size > 0 {
		return false
	}
	for d := range utf8.RuneSelf {
		if r.Begins(string([]byte{byte(c), byte(d)})) {
			return false
		}
	}
	return true
}

// keeps reports whether the first byte of a text stays as it is, as far as a glance tells.
func (r *rules) keeps(text string) bool {
	return text[0] < utf8.RuneSelf && r.alone[text[0]] && (len(text) == 1 || text[1] < utf8.RuneSelf)
}
