package tokenizerjson

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"github.com/gorbit-ml/gorbit/internal/data/charsmap"
)

// precompiled is a normalizer of SentencePiece: a table of what characters become.
type precompiled struct {
	table charsmap.Map
	plain [utf8.RuneSelf]bool // ASCII that stays as it is
}

func newPrecompiled(raw json.RawMessage) (*precompiled, error) {
	var in struct {
		Table string `json:"precompiled_charsmap"`
	}
	if err := options(raw, &in); err != nil {
		return nil, err
	}
	table, err := base64.StdEncoding.DecodeString(in.Table)
	n := &precompiled{}
	if err == nil {
		n.table, err = charsmap.Parse(table)
	}
	if err != nil {
		return nil, fmt.Errorf("normalizer Precompiled: precompiled_charsmap: %w", err)
	}
	for c := range n.plain {
		_, size := n.table.Shortest(string(rune(c)))
		n.plain[c] = size == 0
	}
	return n, nil
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
			if to, size := n.table.Shortest(grapheme); size > 0 {
				replace(grapheme, to)
				continue
			}
		}
		for _, r := range grapheme {
			if to, size := n.table.Shortest(string(r)); size > 0 {
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
