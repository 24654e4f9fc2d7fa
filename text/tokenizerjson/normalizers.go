package tokenizerjson

import (
	"encoding/json"
	"fmt"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/gorbit-ml/gorbit/internal/data/chars"
)

// normalizer changes a text.
type normalizer interface {
	apply(c *chunk)
}

// normalizerOf reads a normalizer; there is none if it is null.
func normalizerOf(raw json.RawMessage) (normalizer, error) {
	name, err := typeOf(raw, "normalizer")
	if err != nil || name == "" {
		return nil, err
	}
	switch name {
	case "Sequence":
		var in struct{ Normalizers []json.RawMessage }
		if err := options(raw, &in); err != nil {
			return nil, err
		}
		var out sequence
		for _, part := range in.Normalizers {
			n, err := normalizerOf(part)
			if err != nil {
				return nil, err
			}
			if n != nil {
				out = append(out, n)
			}
		}
		return out, nil
	case "NFC", "NFD", "NFKC", "NFKD":
		forms := map[string]unicodeForm{"NFC": {norm.NFC, norm.NFD, true}, "NFD": {norm.NFD, norm.NFD, false},
			"NFKC": {norm.NFKC, norm.NFKD, true}, "NFKD": {norm.NFKD, norm.NFKD, false}}
		return forms[name], options(raw, &struct{}{})
	case "Lowercase":
		return lowercase{}, options(raw, &struct{}{})
	case "StripAccents":
		return filter{func(r rune) bool { return !chars.Is(r, chars.Mark) }}, options(raw, &struct{}{})
	case "Nmt":
		return nmt, options(raw, &struct{}{})
	case "Strip":
		var n strip
		return &n, options(raw, &n)
	case "Prepend":
		var n prepend
		return &n, options(raw, &n)
	case "Replace":
		return newReplace(raw)
	case "BertNormalizer":
		return newBert(raw)
	case "ByteLevel":
		return byteNames{}, options(raw, &struct{}{})
	case "Precompiled":
		return newPrecompiled(raw)
	}
	return nil, unknown("normalizer", name)
}

type sequence []normalizer

func (s sequence) apply(c *chunk) {
	for _, n := range s {
		n.apply(c)
	}
}

// unicodeForm is NFC, NFD, NFKC or NFKD.
type unicodeForm struct {
	form, decomposed norm.Form
	composed         bool
}

func (n unicodeForm) apply(c *chunk) {
	if n.form.IsNormalString(c.s) {
		return
	}
	all := decompose(c.s, n.decomposed)
	if n.composed {
		all = compose(all)
	}
	e := edit(c)
	for _, p := range all {
		e.put(p.r, p.change)
	}
	e.done()
}

type lowercase struct{}

func (lowercase) apply(c *chunk) {
	if !strings.ContainsFunc(c.s, func(r rune) bool { return r == chars.DottedI || chars.Lower(r) != r }) {
		return
	}
	e := edit(c)
	for _, r := range c.s {
		if r == chars.DottedI {
			e.put('i', 0)
			e.put(chars.Dot, 1)
		} else {
			e.put(chars.Lower(r), 0)
		}
	}
	e.done()
}

// filter keeps the characters that a function wants.
type filter struct{ keep func(rune) bool }

func (n filter) apply(c *chunk) {
	if !strings.ContainsFunc(c.s, func(r rune) bool { return !n.keep(r) }) {
		return
	}
	e := edit(c)
	for _, r := range c.s {
		if n.keep(r) {
			e.put(r, 0)
		} else {
			e.drop(1)
		}
	}
	if len(e.buf) > 0 {
		e.done()
	} else {
		*c = c.slice(0, 0)
	}
}

// mapping replaces characters one by one.
type mapping func(rune) rune

func (to mapping) apply(c *chunk) {
	if !strings.ContainsFunc(c.s, func(r rune) bool { return to(r) != r }) {
		return
	}
	e := edit(c)
	for _, r := range c.s {
		e.put(to(r), 0)
	}
	e.done()
}

// nmt cleans a text as SentencePiece's rules of that name do.
var nmt = sequence{
	filter{func(r rune) bool {
		return !(1 <= r && r <= 8 || r == 0xb || 0xe <= r && r <= 0x1f || r == 0x7f || r == 0x8f || r == 0x9f)
	}},
	mapping(func(r rune) rune {
		switch r {
		case '\t', '\n', '\f', '\r', 0x1680, 0x2028, 0x2029, 0x2581, 0xfeff, 0xfffd:
			return ' '
		}
		if 0x200b <= r && r <= 0x200f {
			return ' '
		}
		return r
	}),
}

// strip removes white space at the ends.
type strip struct {
	Left  bool `json:"strip_left"`
	Right bool `json:"strip_right"`
}

func (n *strip) apply(c *chunk) {
	space := func(r rune) bool { return chars.Is(r, chars.Space) }
	from, to := 0, len(c.s)
	if n.Left {
		from = len(c.s) - len(strings.TrimLeftFunc(c.s, space))
	}
	if n.Right {
		to = len(strings.TrimRightFunc(c.s, space))
	}
	*c = c.slice(from, max(from, to))
}

type prepend struct{ Prepend string }

func (n *prepend) apply(c *chunk) { c.prepend(n.Prepend) }

// replace puts a text in place of each match of a pattern.
type replace struct {
	find    finder
	content string
	// begins is the text that is replaced, "" if it is a regular expression; spaces says that this is of
	// several spaces.
	begins string
	spaces bool
}

func newReplace(raw json.RawMessage) (*replace, error) {
	var in struct {
		Pattern json.RawMessage
		Content string
	}
	if err := options(raw, &in); err != nil {
		return nil, err
	}
	find, err := patternOf(in.Pattern)
	if err != nil {
		return nil, fmt.Errorf("normalizer Replace: %w", err)
	}
	n := &replace{find: find, content: in.Content}
	var pattern struct{ String, Regex string }
	if err := json.Unmarshal(in.Pattern, &pattern); err == nil {
		n.begins, n.spaces = pattern.String, pattern.Regex == severalSpaces
	}
	return n, nil
}

func (n *replace) apply(c *chunk) {
	if c.spans == nil && n.begins != "" {
		c.s = strings.ReplaceAll(c.s, n.begins, n.content)
		return
	}
	var m memo
	from, to := n.find(c.s, 0, &m)
	if from < 0 {
		return
	}
	e := edit(c)
	for from >= 0 {
		e.keep(from - e.at)
		e.at = to
		e.insert(n.content)
		from, to = n.find(c.s, to, &m)
	}
	e.keep(len(c.s) - e.at)
	e.done()
}

// bert is the normalizer of BERT's models.
type bert struct {
	Clean      bool  `json:"clean_text"`
	Ideographs bool  `json:"handle_chinese_chars"`
	Strip      *bool `json:"strip_accents"`
	Lowercase  bool  `json:"lowercase"`
}

func bertOptions() bert { return bert{Clean: true, Ideographs: true, Lowercase: true} }

// strips reports whether accents are removed.
func (n *bert) strips() bool { return n.Strip == nil && n.Lowercase || n.Strip != nil && *n.Strip }

func newBert(raw json.RawMessage) (sequence, error) {
	n := bertOptions()
	if err := options(raw, &n); err != nil {
		return nil, err
	}
	var s sequence
	if n.Clean {
		s = append(s, filter{func(r rune) bool { return !chars.Is(r, chars.Removed) }}, mapping(func(r rune) rune {
			if chars.Is(r, chars.Space) {
				return ' '
			}
			return r
		}))
	}
	if n.Ideographs {
		s = append(s, ideographs{})
	}
	if n.strips() {
		s = append(s, unicodeForm{norm.NFD, norm.NFD, false}, filter{func(r rune) bool { return !chars.Is(r, chars.Nonspacing) }})
	}
	if n.Lowercase {
		s = append(s, lowercase{})
	}
	return s, nil
}

// ideographs puts spaces around CJK ideographs.
type ideographs struct{}

func (ideographs) apply(c *chunk) {
	if !strings.ContainsFunc(c.s, ideograph) {
		return
	}
	e := edit(c)
	for _, r := range c.s {
		if ideograph(r) {
			e.put(' ', 0)
			e.put(r, 1)
			e.put(' ', 1)
		} else {
			e.put(r, 0)
		}
	}
	e.done()
}

func ideograph(r rune) bool { return chars.Is(r, chars.Ideograph) }
