// Package bpe splits words by byte pair encoding: the characters of a word, or its bytes, are joined
// pair by pair, the pair first that was learned first.
//
// The tokens are those of the tokenizers library, of which this is the model BPE. Sennrich et al.,
// "Neural Machine Translation of Rare Words with Subword Units" (2016), have the algorithm; "byte-level"
// is that of Radford et al., "Language Models are Unsupervised Multitask Learners" (2019).
package bpe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gorbit-ml/gorbit/text"
)

// Config is the model of a tokenizer.json.
type Config struct {
	Vocab  map[string]int32
	Merges [][2]string // the first is joined first
	// Unk, if not "", is the token of characters that the vocabulary lacks; they are left out otherwise.
	Unk string
	// Prefix is what the tokens begin with that continue a word, and Suffix what those end with that end
	// one.
	Prefix, Suffix string
	FuseUnk        bool // unknown characters next to each other are one token
	ByteFallback   bool // unknown characters are tokens such as <0x61>, if all their bytes have one
	IgnoreMerges   bool // a word that is a token is that token, whatever the merges say
	// Bytes says that words are the bytes of a text, and not their names in the alphabet of byte-level
	// tokens, which the vocabulary has. A word must have no byte that Model.Lacking has.
	Bytes bool
}

// takesBytes reports whether Bytes can be set: whether each byte is a token of the vocabulary.
func (c *Config) takesBytes() bool {
	for _, r := range alphabet {
		if _, ok := c.Vocab[string(r)]; !ok {
			return false
		}
	}
	return c.Prefix == "" && c.Suffix == ""
}

// Model is a [text.Model].
type Model struct {
	cfg    Config
	tokens []string // by id, as they are named
	unk    int32
	ids    map[string]int32 // of the tokens as they are in words
	merges mergeTable
	marked bool       // words can be divided before marks
	before [256]bool  // bytes that a merge joins a mark to
	first  [256]int32 // the ids of the bytes, if words are bytes
	hex    [256]int32 // the ids of tokens such as <0x61>
}

// merge is what becomes of a pair.
type merge struct {
	rank, id int32
}

// Read returns the model of a tokenizer.json. bytes asks for a model whose words are bytes, if the
// vocabulary has a token for each: see Config.Bytes.
func Read(raw json.RawMessage, bytes bool) (*Model, error) {
	var in struct {
		Type         string
		Dropout      *float64
		Unk          *string `json:"unk_token"`
		Prefix       *string `json:"continuing_subword_prefix"`
		Suffix       *string `json:"end_of_word_suffix"`
		FuseUnk      *bool   `json:"fuse_unk"`
		ByteFallback *bool   `json:"byte_fallback"`
		IgnoreMerges *bool   `json:"ignore_merges"`
		Vocab        map[string]int32
		Merges       []json.RawMessage
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return nil, fmt.Errorf("BPE: %w", err)
	}
	if in.Dropout != nil && *in.Dropout != 0 {
		return nil, fmt.Errorf("BPE: dropout is %v, with which a text has other tokens each time; expected null", *in.Dropout)
	}
	cfg := Config{Vocab: in.Vocab, Unk: or(in.Unk), Prefix: or(in.Prefix), Suffix: or(in.Suffix), FuseUnk: or(in.FuseUnk),
		ByteFallback: or(in.ByteFallback), IgnoreMerges: or(in.IgnoreMerges)}
	cfg.Bytes = bytes && cfg.takesBytes()
	for i, m := range in.Merges {
		pair, err := mergeOf(m)
		if err != nil {
			return nil, fmt.Errorf("BPE: merge %d: %w", i+1, err)
		}
		cfg.Merges = append(cfg.Merges, pair)
	}
	return New(cfg)
}

func or[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// mergeOf reads a merge: "a b", or ["a", "b"].
func mergeOf(raw json.RawMessage) (pair [2]string, err error) {
	if len(raw) > 0 && raw[0] == '[' {
		var both []string
		if err := json.Unmarshal(raw, &both); err != nil {
			return pair, err
		}
		if len(both) != 2 {
			return pair, fmt.Errorf("%d tokens; expected 2", len(both))
		}
		return [2]string(both), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return pair, err
	}
	a, b, ok := strings.Cut(s, " ")
	if !ok || strings.Contains(b, " ") {
		return pair, fmt.Errorf("%q; expected two tokens and a space between them", s)
	}
	return [2]string{a, b}, nil
}

// New returns a model.
func New(cfg Config) (*Model, error) {
	tokens, err := text.ByID(cfg.Vocab)
	if err != nil {
		return nil, fmt.Errorf("BPE: %w", err)
	}
	m := &Model{cfg: cfg, tokens: tokens, unk: -1, ids: make(map[string]int32, len(cfg.Vocab))}
	for token, id := range cfg.Vocab {
		m.ids[m.inWord(token)] = id
	}
	if cfg.Unk != "" {
		id, ok := cfg.Vocab[cfg.Unk]
		if !ok {
			return nil, fmt.Errorf("BPE: unk_token %q is not in the vocabulary", cfg.Unk)
		}
		m.unk = id
	}
	for c := range 256 {
		m.first[c], m.hex[c] = -1, -1
		if id, ok := cfg.Vocab[string(alphabet[c])]; ok && cfg.Bytes {
			m.first[c] = id
		}
		if id, ok := cfg.Vocab[fmt.Sprintf("<0x%02X>", c)]; ok && cfg.ByteFallback {
			m.hex[c] = id
		}
	}
	if cfg.Bytes && (cfg.Prefix != "" || cfg.Suffix != "") {
		return nil, errors.New("BPE: continuing_subword_prefix or end_of_word_suffix is set; expected none where words are bytes")
	}
	return m, m.addMerges()
}

func (m *Model) addMerges() error {
	_, known := m.cfg.Vocab[mark]
	m.marked = known && !m.cfg.Bytes && !m.cfg.IgnoreMerges && m.cfg.Prefix == "" && m.cfg.Suffix == ""
	m.merges = newMergeTable(len(m.cfg.Merges))
	for rank, pair := range m.cfg.Merges {
		a, okA := m.cfg.Vocab[pair[0]]
		b, okB := m.cfg.Vocab[pair[1]]
		if !okA || !okB {
			name := pair[0]
			if okA {
				name = pair[1]
			}
			return fmt.Errorf("BPE: merge %d is of %q, which is not in the vocabulary", rank+1, name)
		}
		if len(pair[1]) < len(m.cfg.Prefix) {
			return fmt.Errorf("BPE: merge %d is of %q, which is shorter than the prefix %q", rank+1, pair[1], m.cfg.Prefix)
		}
		joined := pair[0] + pair[1][len(m.cfg.Prefix):]
		id, ok := m.cfg.Vocab[joined]
		if !ok {
			return fmt.Errorf("BPE: merge %d gives %q, which is not in the vocabulary", rank+1, joined)
		}
		m.merges.put(a, b, merge{int32(rank), id})
		for i := 1; i < len(joined); i++ {
			if strings.HasPrefix(joined[i:], mark) && !strings.HasSuffix(joined[:i], mark) {
				m.before[joined[i-1]] = true
			}
		}
	}
	return nil
}

// mark is what SentencePiece's models have in place of a space.
const mark = "▁"

// inWord returns a token as it is in a word: its bytes, if words are bytes.
func (m *Model) inWord(token string) string {
	if !m.cfg.Bytes {
		return token
	}
	var b []byte
	for _, r := range token {
		c, ok := byteOf(r)
		if !ok {
			return "\x00\xff" + token // is in no text
		}
		b = append(b, c)
	}
	return string(b)
}

// Tokens implements text.Model.
func (m *Model) Tokens() []string { return m.tokens }

// Config returns what the model was made of.
func (m *Model) Config() Config { return m.cfg }

// Bytes reports whether words are the bytes of a text: see Config.Bytes.
func (m *Model) Bytes() bool { return m.cfg.Bytes }

// Lacking returns the bytes that have no token, or nil if all have one or words are not bytes.
func (m *Model) Lacking() *[256]bool {
	var out [256]bool
	if !m.cfg.Bytes || m.cfg.takesBytes() {
		return nil
	}
	for c, id := range m.first {
		out[c] = id < 0
	}
	return &out
}

// Unk implements text.Model.
func (m *Model) Unk() int32 { return m.unk }

// NewSplitter implements text.Model.
func (m *Model) NewSplitter() text.Splitter { return &splitter{m: m} }
