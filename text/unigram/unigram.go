// Package unigram splits words into the pieces of a Unigram language model.
//
// Each piece has a score, the logarithm of its probability, and a word is split so that the sum of the
// scores is the highest (Viterbi). The algorithm is that of Kudo, "Subword Regularization" (2018). Ids
// and offsets are those of the tokenizers library:
//
//   - A character that is no piece is unknown. It costs 10 more than the piece with the lowest score.
//   - Neighbouring unknown characters are one token, or, with byte fallback, the tokens of their
//     bytes, <0x00> to <0xFF>, if the model has all of them.
//   - Of ways with the same score, the one whose last piece starts first is taken, and so on from the
//     end of the word.
//
// Normalization, and the division of a text into words, are steps before it.
package unigram

import (
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/data/trie"
)

// Piece is a piece of words, and its score.
type Piece struct {
	Text  string
	Score float64
}

// Token is a piece of a word: its id, and its bytes in the word.
type Token struct{ ID, Start, End int32 }

// maxPieces is the maximum number of pieces: far above that of real models, and low enough for the
// cells of the trie to be numbered in 32 bits.
const maxPieces = 1 << 24

// unknownPenalty is what an unknown character costs more than the piece with the lowest score.
const unknownPenalty = 10

// Model is a Unigram model. It is safe for concurrent use.
type Model struct {
	pieces   []Piece
	trie     trie.Trie
	scores   []float64 // of the pieces
	unknown  int32
	penalty  float64    // the score of an unknown character
	bytes    [256]int32 // the tokens of bytes, -1: there is none
	fallback bool

	seed  maphash.Seed
	cache []atomic.Pointer[cached]
}

// cached is a word whose tokens are known.
type cached struct {
	word   string
	tokens []Token
}

const (
	cacheSlots   = 1 << 15
	maxCacheWord = 48 // bytes; longer words seldom occur twice
)

// New returns the model of pieces, whose ids are their positions. If two are equal, the last one
// counts. The piece with the id unknown stands for what has no piece.
func New(pieces []Piece, unknown int, byteFallback bool) (*Model, error) {
	if len(pieces) > maxPieces {
		return nil, fmt.Errorf("unigram: %d pieces; expected at most %d", len(pieces), maxPieces)
	}
	if unknown < 0 || unknown >= len(pieces) {
		return nil, fmt.Errorf("unigram: the unknown token has the id %d; expected one of the %d pieces", unknown, len(pieces))
	}
	m := &Model{
		pieces: pieces, unknown: int32(unknown), fallback: byteFallback,
		scores: make([]float64, len(pieces)), seed: maphash.MakeSeed(), cache: make([]atomic.Pointer[cached], cacheSlots),
	}
	texts := make([]string, len(pieces))
	lowest := math.Inf(1)
	for i, p := range pieces {
		if math.IsNaN(p.Score) || math.IsInf(p.Score, 0) {
			return nil, fmt.Errorf("unigram: piece %d (%q) has the score %v; expected a finite number", i, p.Text, p.Score)
		}
		if !utf8.ValidString(p.Text) {
			return nil, fmt.Errorf("unigram: piece %d (%q) is not valid UTF-8", i, p.Text)
		}
		texts[i], m.scores[i] = p.Text, p.Score
		lowest = min(lowest, p.Score)
	}
	m.penalty = lowest - unknownPenalty
	m.trie = trie.New(texts)
	for b := range m.bytes {
		m.bytes[b] = m.trie.Find(fmt.Sprintf("<0x%02X>", b))
	}
	return m, nil
}

// Pieces returns the pieces. They must not be changed.
func (m *Model) Pieces() []Piece { return m.pieces }

// ID returns the id of a piece.
func (m *Model) ID(piece string) (int32, bool) {
	id := m.trie.Find(piece)
	return id, id >= 0
}

// Unknown returns the id of the token for what has no piece.
func (m *Model) Unknown() int32 { return m.unknown }

// ByteFallback returns whether what has no piece becomes the tokens of its bytes.
func (m *Model) ByteFallback() bool { return m.fallback }

// Append appends the tokens of a word to dst. A byte that is not part of valid UTF-8 is an unknown
// character. A word may be long: time and memory are proportional to its length.
func (m *Model) Append(dst []Token, word string) []Token {
	if len(word) > maxCacheWord {
		return m.split(dst, word)
	}
	slot := &m.cache[maphash.String(m.seed, word)%cacheSlots]
	if c := slot.Load(); c != nil && c.word == word {
		return append(dst, c.tokens...)
	}
	mark := len(dst)
	dst = m.split(dst, word)
	// The word's bytes are copied, because they may be part of a long text.
	slot.Store(&cached{string([]byte(word)), slices.Clone(dst[mark:])})
	return dst
}

// reached is a position in a word: the best way to it ends with a piece.
type reached struct {
	score float64 // of the way
	start int32   // where its last piece starts; -1: there is no way
	id    int32   // of its last piece
}

// long holds the positions of words that are too long for the stack.
var long = sync.Pool{New: func() any { return new([]reached) }}

// split appends the tokens of a word.
func (m *Model) split(dst []Token, word string) []Token {
	var room [128]reached
	if len(word) < len(room) {
		return m.best(dst, word, room[:len(word)+1])
	}
	buf := long.Get().(*[]reached)
	defer long.Put(buf)
	*buf = slices.Grow((*buf)[:0], len(word)+1)[:len(word)+1]
	return m.best(dst, word, *buf)
}

// best appends the tokens of the way with the highest score. It works in at, of which there is one more
// than the word has bytes.
func (m *Model) best(dst []Token, word string, at []reached) []Token {
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
func (m *Model) trace(dst []Token, word string, at []reached) []Token {
	mark := len(dst)
	for end := int32(len(word)); end > 0; {
		start := at[end].start
		if at[end].id != m.unknown {
			dst = append(dst, Token{at[end].id, start, end})
			end = start
			continue
		}
		for start > 0 && at[start].id == m.unknown {
			start = at[start].start
		}
		dst = m.unknownPart(dst, word, start, end)
		end = start
	}
	slices.Reverse(dst[mark:])
	return dst
}

// unknownPart appends the tokens of an unknown part of a word, the last one first.
func (m *Model) unknownPart(dst []Token, word string, start, end int32) []Token {
	part := word[start:end]
	if id := m.trie.Find(part); id >= 0 { // the text of the unknown token itself
		return append(dst, Token{id, start, end})
	}
	if !m.fallback {
		return append(dst, Token{m.unknown, start, end})
	}
	for _, b := range []byte(part) {
		if m.bytes[b] < 0 {
			return append(dst, Token{m.unknown, start, end})
		}
	}
	for i := len(part) - 1; i >= 0; i-- {
		dst = append(dst, Token{m.bytes[part[i]], start, end})
	}
	return dst
}
