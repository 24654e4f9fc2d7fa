// Package unigram splits words into the pieces of a Unigram language model.
//
// Each piece has a score, the logarithm of its probability, and a word is split so that the sum of the
// scores is the highest (Viterbi). The algorithm is that of Kudo, "Subword Regularization" (2018). The
// tokens are those of the tokenizers library, of which this is the model Unigram:
//
//   - A character that is no piece is unknown. It costs 10 more than the piece with the lowest score.
//   - Neighbouring unknown characters are one token, or, with byte fallback, the tokens of their
//     bytes, <0x00> to <0xFF>, if the model has all of them.
//   - Of ways with the same score, the one whose last piece starts first is taken, and so on from the
//     end of the word.
package unigram

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/data/trie"
	"github.com/gorbit-ml/gorbit/text"
)

// Piece is a piece of words, and its score.
type Piece struct {
	Text  string
	Score float64
}

// MarshalJSON implements json.Marshaler: a piece is an array in a tokenizer.json.
func (p Piece) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.Text, p.Score}) }

// UnmarshalJSON implements json.Unmarshaler.
func (p *Piece) UnmarshalJSON(data []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("a piece has %d parts; expected its text and its score", len(parts))
	}
	if err := json.Unmarshal(parts[0], &p.Text); err != nil {
		return err
	}
	var err error
	p.Score, err = score(string(parts[1]))
	return err
}

// maxPieces is the maximum number of pieces: far above that of real models, and low enough for the
// cells of the trie to be numbered in 32 bits.
const maxPieces = 1 << 24

// unknownPenalty is what an unknown character costs more than the piece with the lowest score.
const unknownPenalty = 10

// Model is a [text.Model].
type Model struct {
	tokens   []string
	trie     trie.Trie
	scores   []float64 // of the pieces
	unknown  int32
	penalty  float64    // the score of an unknown character
	bytes    [256]int32 // the tokens of bytes, -1: there is none
	fallback bool
}

// Config is the model of a tokenizer.json.
type Config struct {
	Pieces []Piece `json:"vocab"` // their ids are their positions
	// Unk is the id of the piece that stands for what has no piece.
	Unk          int  `json:"unk_id"`
	ByteFallback bool `json:"byte_fallback"`
}

// Read returns the model of a tokenizer.json.
func Read(raw json.RawMessage) (*Model, error) {
	var in struct {
		Type         string
		Vocab        []Piece
		Unk          *int  `json:"unk_id"`
		ByteFallback *bool `json:"byte_fallback"`
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return nil, fmt.Errorf("model Unigram: %w", err)
	}
	if in.Unk == nil {
		return nil, errors.New("model Unigram: unk_id is null, so that some texts have no tokens; expected the id of the unknown token")
	}
	return New(Config{Pieces: in.Vocab, Unk: *in.Unk, ByteFallback: in.ByteFallback != nil && *in.ByteFallback})
}

// New returns a model. If two pieces are equal, the last one counts.
func New(cfg Config) (*Model, error) {
	pieces := cfg.Pieces
	if len(pieces) > maxPieces {
		return nil, fmt.Errorf("model Unigram: %d pieces; expected at most %d", len(pieces), maxPieces)
	}
	if cfg.Unk < 0 || cfg.Unk >= len(pieces) {
		return nil, fmt.Errorf("model Unigram: unk_id is %d; expected one of the %d pieces", cfg.Unk, len(pieces))
	}
	m := &Model{tokens: make([]string, len(pieces)), scores: make([]float64, len(pieces)), unknown: int32(cfg.Unk), fallback: cfg.ByteFallback}
	lowest := math.Inf(1)
	for i, p := range pieces {
		if math.IsNaN(p.Score) || math.IsInf(p.Score, 0) {
			return nil, fmt.Errorf("model Unigram: piece %d (%q) has the score %v; expected a finite number", i, p.Text, p.Score)
		}
		if !utf8.ValidString(p.Text) {
			return nil, fmt.Errorf("model Unigram: piece %d (%q) is not valid UTF-8", i, p.Text)
		}
		m.tokens[i], m.scores[i] = p.Text, p.Score
		lowest = min(lowest, p.Score)
	}
	m.penalty = lowest - unknownPenalty
	m.trie = trie.New(m.tokens)
	for b := range m.bytes {
		m.bytes[b] = m.trie.Find(fmt.Sprintf("<0x%02X>", b))
	}
	return m, nil
}

// Tokens implements text.Model.
func (m *Model) Tokens() []string { return m.tokens }

// Unk implements text.Model.
func (m *Model) Unk() int32 { return m.unknown }

// NewSplitter implements text.Model.
func (m *Model) NewSplitter() text.Splitter {
	return &splitter{m: m, seed: maphash.MakeSeed(), cache: make([]cached, cacheSlots)}
}

// splitter is the text.Splitter of a model.
type splitter struct {
	m      *Model
	seed   maphash.Seed
	cache  []cached
	pieces []text.Piece
	at     []reached
}

// cached is a word whose tokens are known.
type cached struct {
	word   string
	pieces []text.Piece
}

const (
	cacheSlots   = 1 << 14
	maxCacheWord = 48 // bytes; longer words seldom occur twice
)

// Append implements text.Splitter.
func (s *splitter) Append(dst []text.Piece, word string) []text.Piece {
	return append(dst, s.split(word)...)
}

// AppendIDs implements text.Splitter.
func (s *splitter) AppendIDs(dst []int32, word string) []int32 {
	for _, p := range s.split(word) {
		dst = append(dst, p.ID)
	}
	return dst
}

// split splits a word. The result is valid until the next call.
func (s *splitter) split(word string) []text.Piece {
	if len(word) > maxCacheWord {
		s.new(word)
		return s.pieces
	}
	c := &s.cache[maphash.String(s.seed, word)%cacheSlots]
	if c.word != word {
		s.new(word)
		// The word's bytes are copied, because they may be part of a long text.
		*c = cached{strings.Clone(word), append(c.pieces[:0], s.pieces...)}
	}
	return c.pieces
}

// maxRoom is how many positions a splitter keeps room for.
const maxRoom = 1 << 16

// new splits a word that is not in the cache into pieces.
func (s *splitter) new(word string) {
	s.at = slices.Grow(s.at[:0], len(word)+1)[:len(word)+1]
	s.pieces = s.m.best(s.pieces[:0], word, s.at)
	if cap(s.at) > maxRoom {
		s.at = nil
	}
}

// reached is a position in a word: the best way to it ends with a piece.
type reached struct {
	score float64 // of the way
	start int32   // where its last piece starts; -1: there is no way
	id    int32   // of its last piece
}

// best appends the tokens of the way with the highest score. It works in at, of which there is one more
// than the word has bytes.
func (m *Model) best(dst []text.Piece, word string, at []reached) []text.Piece {
	for i := range at {
		at[i].start = -1
	}
	at[0].score = 0
	cells := m.trie.Cells
	for start := 0; start < len(word); {
		so, size := at[start].score, 1
		if word[start] >= utf8.RuneSelf {
			_, size = utf8.DecodeRuneInString(word[start:])
		}
		known := false
		node := int32(trie.Root)
		for end := start; end < len(word); {
			n := cells[node].Base + int32(word[end])
			cell := &cells[n]
			if cell.Parent != node {
				break
			}
			end++
			node = n
			if id := cell.ID; id >= 0 {
				to := &at[end]
				if score := so + m.scores[id]; to.start < 0 || score > to.score {
					*to = reached{score, int32(start), id}
				}
				known = known || end == start+size
			}
		}
		if !known {
			to := &at[start+size]
			if score := so + m.penalty; to.start < 0 || score > to.score {
				*to = reached{score, int32(start), m.unknown}
			}
		}
		start += size
	}
	return m.trace(dst, word, at)
}

// trace appends the tokens of the best way to the end of a word.
func (m *Model) trace(dst []text.Piece, word string, at []reached) []text.Piece {
	mark := len(dst)
	for end := int32(len(word)); end > 0; {
		start := at[end].start
		if at[end].id != m.unknown {
			dst = append(dst, text.Piece{ID: at[end].id, Len: end - start})
			end = start
			continue
		}
		for start > 0 && at[start].id == m.unknown {
			start = at[start].start
		}
		dst = m.unknownPart(dst, word[start:end])
		end = start
	}
	slices.Reverse(dst[mark:])
	return dst
}

// unknownPart appends the tokens of an unknown part of a word, the last one first.
func (m *Model) unknownPart(dst []text.Piece, part string) []text.Piece {
	one := text.Piece{ID: m.unknown, Len: int32(len(part))}
	if id := m.trie.Find(part); id >= 0 { // the text of the unknown token itself
		one.ID = id
		return append(dst, one)
	}
	if !m.fallback {
		return append(dst, one)
	}
	for _, b := range []byte(part) {
		if m.bytes[b] < 0 {
			return append(dst, one)
		}
	}
	for i := len(part) - 1; i > 0; i-- {
		dst = append(dst, text.Piece{ID: m.bytes[part[i]], Len: -one.Len})
	}
	return append(dst, text.Piece{ID: m.bytes[part[0]], Len: one.Len})
}
