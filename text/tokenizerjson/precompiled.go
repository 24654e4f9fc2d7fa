package tokenizerjson

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// precompiled is a normalizer of SentencePiece: a table of what characters become, as a double-array trie
// (Darts) of their bytes, and the texts that its leaves point to.
type precompiled struct {
	units []uint32
	texts string
	plain [utf8.RuneSelf]bool // ASCII that stays as it is
}

// parsePrecompiled returns what applies a table of SentencePiece to a text, as it is in a .model file.
func parsePrecompiled(table []byte) (*precompiled, error) {
	if len(table) < 4 {
		return nil, fmt.Errorf("a table of %d bytes; expected 4 or more", len(table))
	}
	size := binary.LittleEndian.Uint32(table)
	rest := table[4:]
	if size%4 != 0 || size == 0 || uint64(size) > uint64(len(rest)) {
		return nil, fmt.Errorf("a trie of %d bytes in a table of %d", size, len(rest))
	}
	n := &precompiled{units: make([]uint32, size/4), texts: string(rest[size:])}
	for i := range n.units {
		n.units[i] = binary.LittleEndian.Uint32(rest[4*i:])
	}
	if !utf8.ValidString(n.texts) {
		return nil, errors.New("a table whose texts are not valid UTF-8")
	}
	for c := range n.plain {
		_, mapped := n.find(string(rune(c)))
		n.plain[c] = !mapped
	}
	return n, nil
}

func newPrecompiled(raw json.RawMessage) (*precompiled, error) {
	var in struct {
		Table string `json:"precompiled_charsmap"`
	}
	if err := options(raw, &in); err != nil {
		return nil, err
	}
	table, err := base64.StdEncoding.DecodeString(in.Table)
	if err != nil {
		return nil, fmt.Errorf("normalizer Precompiled: precompiled_charsmap: %w", err)
	}
	n, err := parsePrecompiled(table)
	if err != nil {
		return nil, fmt.Errorf("normalizer Precompiled: precompiled_charsmap: %w", err)
	}
	return n, nil
}

// find returns what the shortest beginning of s that the table has becomes.
func (n *precompiled) find(s string) (string, bool) {
	offset := func(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
	at := offset(n.units[0])
	for i := range len(s) {
		c := uint32(s[i])
		if c == 0 {
			break
		}
		at ^= c
		if at >= uint32(len(n.units)) || n.units[at]&(1<<31|0xff) != c {
			break
		}
		leaf := n.units[at]>>8&1 == 1
		at ^= offset(n.units[at])
		if leaf && at < uint32(len(n.units)) {
			begin := int(n.units[at] & (1<<31 - 1))
			if begin > len(n.texts) {
				break
			}
			out, _, _ := strings.Cut(n.texts[begin:], "\x00")
			return out, true
		}
	}
	return "", false
}

func (n *precompiled) apply(c *chunk) {
	if !strings.ContainsFunc(c.s, func(r rune) bool { return r >= utf8.RuneSelf || !n.plain[r] }) {
		return
	}
	var all []normal
	changed := false
	replace := func(old, to string) {
		changed = true
		all = appendReplaced(all, old, to)
	}
	state := -1
	for rest := c.s; rest != ""; {
		var grapheme string
		grapheme, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if len(grapheme) < 6 {
			if to, ok := n.find(grapheme); ok {
				replace(grapheme, to)
				continue
			}
		}
		for _, r := range grapheme {
			if to, ok := n.find(string(r)); ok {
				replace(string(r), to)
			} else {
				all = append(all, normal{r: r})
			}
		}
	}
	if !changed {
		return
	}
	e := edit(c)
	for _, p := range all {
		e.put(p.r, p.change)
	}
	e.done()
}

// appendReplaced appends the characters that replace others. The last ones are additional if there are
// more than before; if there are fewer, the last one stands for those that are left.
func appendReplaced(all []normal, old, to string) []normal {
	for _, r := range to {
		all = append(all, normal{r: r})
	}
	diff := utf8.RuneCountInString(to) - utf8.RuneCountInString(old)
	for i := range diff {
		all[len(all)-1-i].change = 1
	}
	if diff < 0 && len(all) > 0 {
		all[len(all)-1].change += diff
	}
	return all
}
