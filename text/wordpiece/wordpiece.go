// Package wordpiece splits words from the left into the longest tokens of a vocabulary: the model
// WordPiece of the tokenizers library. Package text has a faster way for the vocabularies of BERT.
package wordpiece

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/data/trie"
	"github.com/gorbit-ml/gorbit/text"
)

// Config is the model of a tokenizer.json.
type Config struct {
	Vocab        map[string]int32
	Unk          string // the token of a word that cannot be split
	Continuation string // what the tokens begin with that continue a word
	MaxChars     int    // of a word; longer ones are Unk
}

// Model is a [text.Model].
type Model struct {
	cfg    Config
	tokens []string
	unk    int32
	trie   trie.Trie
	inner  int32 // the node of tokens that continue a word
}

// Read returns the model of a tokenizer.json.
func Read(raw json.RawMessage) (*Model, error) {
	in := struct {
		Type         string
		Unk          string `json:"unk_token"`
		Continuation string `json:"continuing_subword_prefix"`
		MaxChars     int    `json:"max_input_chars_per_word"`
		Vocab        map[string]int32
	}{Unk: text.Unk, Continuation: text.Continuation, MaxChars: text.DefaultMaxWordChars}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return nil, fmt.Errorf("WordPiece: %w", err)
	}
	return New(Config{in.Vocab, in.Unk, in.Continuation, in.MaxChars})
}

// New returns a model.
func New(cfg Config) (*Model, error) {
	tokens, err := text.ByID(cfg.Vocab)
	if err != nil {
		return nil, fmt.Errorf("WordPiece: %w", err)
	}
	m := &Model{cfg: cfg, tokens: tokens}
	var ok bool
	if m.unk, ok = cfg.Vocab[cfg.Unk]; !ok {
		return nil, fmt.Errorf("WordPiece: unk_token %q is not in the vocabulary", cfg.Unk)
	}
	m.trie = trie.New(m.tokens)
	m.inner = m.trie.Walk(cfg.Continuation)
	return m, nil
}

// Config returns what the model was made of.
func (m *Model) Config() Config { return m.cfg }

// Tokens implements text.Model.
func (m *Model) Tokens() []string { return m.tokens }

// Unk implements text.Model.
func (m *Model) Unk() int32 { return m.unk }

// NewSplitter implements text.Model.
func (m *Model) NewSplitter() text.Splitter { return &splitter{m: m} }

type splitter struct {
	m      *Model
	pieces []text.Piece
}

// Append implements text.Splitter.
func (s *splitter) Append(dst []text.Piece, word string) []text.Piece {
	m, begin := s.m, len(dst)
	unknown := text.Piece{ID: m.unk, Len: int32(len(word))}
	if len(word) > m.cfg.MaxChars && utf8.RuneCountInString(word) > m.cfg.MaxChars {
		return append(dst, unknown)
	}
	cells, node := m.trie.Cells, int32(trie.Root)
	for at := 0; at < len(word); node = m.inner {
		id, end := int32(-1), at
		for i := at; i < len(word); i++ {
			next := cells[node].Base + int32(word[i])
			if cells[next].Parent != node {
				break
			}
			if node = next; cells[node].ID >= 0 {
				id, end = cells[node].ID, i+1
			}
		}
		if id < 0 {
			return append(dst[:begin], unknown)
		}
		dst = append(dst, text.Piece{ID: id, Len: int32(end - at)})
		at = end
	}
	return dst
}

// AppendIDs implements text.Splitter.
func (s *splitter) AppendIDs(dst []int32, word string) []int32 {
	s.pieces = s.Append(s.pieces[:0], word)
	for _, p := range s.pieces {
		dst = append(dst, p.ID)
	}
	return dst
}
