package tokenizerjson

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/data/chars"
	"github.com/gorbit-ml/gorbit/text/bpe"
)

// preTokenizer divides a chunk into chunks.
type preTokenizer interface {
	split(dst []chunk, c chunk) []chunk
}

// preTokenizers are those of a file.
type preTokenizers []preTokenizer

func (p *preTokenizers) read(raw json.RawMessage) error {
	name, err := typeOf(raw, "pre-tokenizer")
	if err != nil || name == "" {
		return err
	}
	add := func(one preTokenizer, err error) error {
		*p = append(*p, one)
		return err
	}
	switch name {
	case "Sequence":
		var in struct{ Pretokenizers []json.RawMessage }
		if err := options(raw, &in); err != nil {
			return err
		}
		for _, part := range in.Pretokenizers {
			if err := p.read(part); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel":
		return add(newByteLevel(raw))
	case "Metaspace":
		return add(newMetaspace(raw))
	case "Split":
		return add(newSplit(raw))
	case "Digits":
		var in struct {
			Individual bool `json:"individual_digits"`
		}
		err := options(raw, &in)
		return add(delimiter{byClass(chars.Numeric), behaviorIf(in.Individual)}, err)
	case "Punctuation":
		in := struct{ Behavior behavior }{isolated}
		err := options(raw, &in)
		return add(delimiter{byClass(chars.Punctuation), in.Behavior}, err)
	case "Whitespace":
		return add(inverted{find(rustWords), removing}, options(raw, &struct{}{}))
	case "WhitespaceSplit":
		return add(delimiter{byClass(chars.Space), removing}, options(raw, &struct{}{}))
	case "BertPreTokenizer":
		*p = append(*p, delimiter{byClass(chars.Space), removing})
		return add(delimiter{byClass(chars.Punctuation), isolated}, options(raw, &struct{}{}))
	case "CharDelimiterSplit":
		var in struct{ Delimiter string }
		if err := options(raw, &in); err != nil {
			return err
		}
		return add(delimiter{literal(in.Delimiter), removing}, nil)
	}
	return unknown("pre-tokenizer", name)
}

// behavior says what becomes of the delimiters between words.
type behavior string

const (
	removing     behavior = "Removed"
	isolated     behavior = "Isolated"
	withPrevious behavior = "MergedWithPrevious"
	withNext     behavior = "MergedWithNext"
	contiguous   behavior = "Contiguous"
)

// UnmarshalJSON implements json.Unmarshaler.
func (b *behavior) UnmarshalJSON(raw []byte) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	switch *b = behavior(s); *b {
	case removing, isolated, withPrevious, withNext, contiguous:
		return nil
	}
	return fmt.Errorf("behavior %q is not known; expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous", s)
}

func behaviorIf(individual bool) behavior {
	if individual {
		return isolated
	}
	return contiguous
}

// part is a part of a text, which a pattern matches or not.
type part struct {
	from, to int
	match    bool
}

// partsOf divides a text into matches and what is between them.
func partsOf(s string, find finder) []part {
	var out []part
	var m memo
	at := 0
	for {
		from, to := find(s, at, &m)
		if from < 0 {
			break
		}
		if from > at {
			out = append(out, part{at, from, false})
		}
		out = append(out, part{from, to, true})
		at = to
	}
	if at < len(s) {
		out = append(out, part{at, len(s), false})
	}
	return out
}

// joined applies a behavior to parts; those that are removed are left out.
func joined(parts []part, how behavior) []part {
	out := parts[:0]
	before := false
	switch how {
	case removing:
		for _, p := range parts {
			if !p.match {
				out = append(out, p)
			}
		}
	case isolated:
		out = parts
	case contiguous, withPrevious:
		for _, p := range parts {
			join := p.match == before
			if how == withPrevious {
				join = p.match && !before
			}
			if before = p.match; join && len(out) > 0 {
				out[len(out)-1].to = p.to
			} else {
				out = append(out, p)
			}
		}
	case withNext:
		at := len(parts) // where the result begins
		for i := len(parts) - 1; i >= 0; i-- {
			p := parts[i]
			if p.match && !before && at < len(parts) {
				parts[at].from = p.from
			} else {
				at--
				parts[at] = p
			}
			before = p.match
		}
		out = parts[at:]
	}
	return out
}

// delimiter divides at the matches of a pattern.
type delimiter struct {
	find finder
	how  behavior
}

func (d delimiter) split(dst []chunk, c chunk) []chunk {
	for _, p := range joined(partsOf(c.s, d.find), d.how) {
		dst = append(dst, c.slice(p.from, p.to))
	}
	return dst
}

// inverted divides at what is between the matches of a pattern.
type inverted delimiter

func (d inverted) split(dst []chunk, c chunk) []chunk {
	parts := partsOf(c.s, d.find)
	for i := range parts {
		parts[i].match = !parts[i].match
	}
	for _, p := range joined(parts, d.how) {
		dst = append(dst, c.slice(p.from, p.to))
	}
	return dst
}

func newSplit(raw json.RawMessage) (preTokenizer, error) {
	var in struct {
		Pattern  json.RawMessage
		Behavior behavior
		Invert   bool
	}
	if err := options(raw, &in); err != nil {
		return nil, err
	}
	find, err := patternOf(in.Pattern)
	if err != nil {
		return nil, fmt.Errorf("pre-tokenizer Split: %w", err)
	}
	if in.Invert {
		return inverted{find, in.Behavior}, nil
	}
	return delimiter{find, in.Behavior}, nil
}

// byteLevel is the pre-tokenizer of GPT-2.
type byteLevel struct {
	Prefix bool `json:"add_prefix_space"`
	Trim   bool `json:"trim_offsets"` // of the post-processor of that name
	Regex  bool `json:"use_regex"`
	// bytes says that the model gets the bytes of words, and not their characters.
	bytes bool
}

func newByteLevel(raw json.RawMessage) (*byteLevel, error) {
	b := &byteLevel{Prefix: true, Trim: true, Regex: true}
	return b, options(raw, b)
}

func (b *byteLevel) split(dst []chunk, c chunk) []chunk {
	if b.Prefix && !strings.HasPrefix(c.s, " ") {
		c.prepend(" ")
	}
	from := len(dst)
	if b.Regex {
		dst = delimiter{find(gpt2), isolated}.split(dst, c)
	} else {
		dst = append(dst, c)
	}
	if !b.bytes {
		for i := range dst[from:] {
			byteNames{}.apply(&dst[from+i])
		}
	}
	return dst
}

// byteNames puts the characters that name bytes in place of these.
type byteNames struct{}

func (byteNames) apply(c *chunk) {
	e := edit(c)
	for i, r := range c.s {
		for k := range utf8.RuneLen(r) {
			e.put(bpe.Char(c.s[i+k]), min(k, 1))
		}
	}
	e.done()
}

// metaspace is the pre-tokenizer of SentencePiece's models: a character, mostly U+2581, is in place of
// spaces and before the text.
type metaspace struct {
	replacement string
	scheme      string
	splits      bool
}

func newMetaspace(raw json.RawMessage) (*metaspace, error) {
	var in struct {
		Replacement string
		Scheme      string `json:"prepend_scheme"`
		Prefix      *bool  `json:"add_prefix_space"` // of older files
		Split       *bool
		Ignored     json.RawMessage `json:"str_rep"`
	}
	if err := options(raw, &in); err != nil {
		return nil, err
	}
	m := &metaspace{in.Replacement, in.Scheme, in.Split == nil || *in.Split}
	if m.scheme == "" {
		m.scheme = "always"
	}
	if in.Prefix != nil && !*in.Prefix {
		if in.Scheme != "" && in.Scheme != "never" {
			return nil, fmt.Errorf("pre-tokenizer Metaspace: add_prefix_space is false and prepend_scheme is %q; expected never", in.Scheme)
		}
		m.scheme = "never"
	}
	if m.scheme != "always" && m.scheme != "first" && m.scheme != "never" {
		return nil, fmt.Errorf("pre-tokenizer Metaspace: prepend_scheme is %q; expected always, first or never", m.scheme)
	}
	if utf8.RuneCountInString(m.replacement) != 1 {
		return nil, fmt.Errorf("pre-tokenizer Metaspace: replacement is %q; expected one character", m.replacement)
	}
	return m, nil
}

func (m *metaspace) split(dst []chunk, c chunk) []chunk {
	(&replace{find: literal(" "), content: m.replacement}).apply(&c)
	if m.scheme != "never" && !strings.HasPrefix(c.s, m.replacement) && (m.scheme == "always" || c.start() == 0) {
		c.prepend(m.replacement)
	}
	if !m.splits {
		return append(dst, c)
	}
	return delimiter{literal(m.replacement), withNext}.split(dst, c)
}
