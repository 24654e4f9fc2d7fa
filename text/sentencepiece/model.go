// Package sentencepiece reads the .model files of SentencePiece, of the types unigram and bpe, and splits
// texts as they say.
//
// Ids, offsets and decoded texts are those of the sentencepiece library: the file's own table of
// normalization, the space at the beginning (▁), spaces that are dropped, user-defined symbols, which
// stay whole, control symbols, which no text becomes, and bytes for what has no piece. Ids are those of
// the file. Some models of Hugging Face number them anew (XLM-RoBERTa, CamemBERT): use their
// tokenizer.json.
//
// Bytes that are not valid UTF-8 are U+FFFD.
package sentencepiece

import (
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/data/heap"
	"github.com/gorbit-ml/gorbit/internal/data/trie"
)

// unknownPenalty is what an unknown character costs more than the piece with the lowest score.
const unknownPenalty = 10

// Token is a token of a text, and the bytes of the text that it stands for.
type Token struct {
	ID         int32
	Start, End int
}

// Model is a SentencePiece model. It is safe for concurrent use.
type Model struct {
	proto        *proto
	normalizer   *normalizer
	denormalizer *normalizer // or nil
	trie         trie.Trie   // of all but control symbols, bytes and the unknown piece
	scores       []float32   // of the pieces; user-defined symbols have none
	ids          map[string]int32
	unknown      int32
	bytes        [256]int32
	penalty      float32 // the score of an unknown character
	highest      float32
	rooms        sync.Pool
}

// room is what a goroutine works in.
type room struct {
	text    normalized
	reached []reached
	parts   []part
	symbols []symbol
	agenda  heap.Heap[join]
}

// part is a piece of a normalized text: its id, and its length in bytes.
type part struct{ id, size int32 }

// Parse reads the content of a .model file.
func Parse(data []byte) (*Model, error) {
	p, err := parse(data)
	if err != nil {
		return nil, err
	}
	m := &Model{proto: p, ids: make(map[string]int32, len(p.pieces)), scores: make([]float32, len(p.pieces))}
	m.rooms.New = func() any { return new(room) }
	texts := make([]string, len(p.pieces))
	var symbols []string
	lowest, highest := float32(math.MaxFloat32), float32(0x1p-126)
	for i, one := range p.pieces {
		m.ids[one.text], m.scores[i] = int32(i), one.score
		switch one.kind {
		case normal:
			lowest, highest = min(lowest, one.score), max(highest, one.score)
		case userDefined:
			symbols = append(symbols, one.text)
		case unknown:
			m.unknown = int32(i)
		case oneByte:
			m.bytes[byteOf(one.text)] = int32(i)
		}
		if one.kind == normal || one.kind == userDefined || one.kind == unused {
			texts[i] = one.text
		}
	}
	m.penalty, m.highest = lowest-unknownPenalty, highest
	m.trie = trie.New(texts)
	if m.normalizer, err = newNormalizer(p.normalizer, symbols, p.spaceAfter); err != nil {
		return nil, err
	}
	if len(p.denormalizer.table) > 0 {
		m.denormalizer, err = newNormalizer(p.denormalizer, nil, false)
	}
	return m, err
}

// Size returns the number of ids.
func (m *Model) Size() int { return len(m.proto.pieces) }

// Piece returns the piece of an id, "" for an id out of range.
func (m *Model) Piece(id int32) string {
	if id < 0 || int(id) >= len(m.proto.pieces) {
		return ""
	}
	return m.proto.pieces[id].text
}

// AppendIDs appends the ids of a text to dst.
func (m *Model) AppendIDs(dst []int32, text string) []int32 {
	m.split(text, false, func(r *room, p part, wasUnknown bool, _ int) {
		switch {
		case p.id != m.unknown:
			dst = append(dst, p.id)
		case m.proto.byteFallback:
			for _, b := range r.text.bytes[:p.size] {
				dst = append(dst, m.bytes[b])
			}
		case !wasUnknown:
			dst = append(dst, p.id)
		}
	})
	return dst
}

// Append appends the tokens of a text to dst.
func (m *Model) Append(dst []Token, text string) []Token {
	m.split(text, true, func(r *room, p part, wasUnknown bool, at int) {
		start, end := int(r.text.from[at]), int(r.text.from[at+int(p.size)])
		switch {
		case p.id != m.unknown:
			dst = append(dst, Token{p.id, start, end})
		case m.proto.byteFallback:
			for i, b := range r.text.bytes[:p.size] {
				last := start
				if i == int(p.size)-1 {
					last = end
				}
				dst = append(dst, Token{m.bytes[b], start, last})
			}
		case wasUnknown:
			dst[len(dst)-1].End = end
		default:
			dst = append(dst, Token{p.id, start, end})
		}
	})
	return dst
}

// split calls each for the parts of a text after normalization. The bytes of the room's text begin with
// those of the part, which is at a byte of it; wasUnknown says whether the part before was unknown.
func (m *Model) split(text string, offsets bool, each func(r *room, p part, wasUnknown bool, at int)) {
	r := m.rooms.Get().(*room)
	defer m.rooms.Put(r)
	r.text.keep = offsets
	m.normalizer.apply(&r.text, text)
	r.parts = r.parts[:0]
	if m.proto.kind == typeBPE {
		m.join(r)
	} else {
		m.best(r)
	}
	all, at, wasUnknown := r.text.bytes, 0, false
	for _, p := range r.parts {
		r.text.bytes = all[at:]
		each(r, p, wasUnknown, at)
		wasUnknown = p.id == m.unknown
		at += int(p.size)
	}
	r.text.bytes = all
}

// reached is a position in a text: the best way to it ends with a piece.
type reached struct {
	score float32 // of the way
	start int32   // where its last piece starts; -1: there is no way
	id    int32   // of its last piece
}

// best finds the parts with the highest sum of scores (Viterbi). The sums are rounded as in the library.
func (m *Model) best(r *room) {
	text := r.text.bytes
	r.reached = slices.Grow(r.reached[:0], len(text)+1)[:len(text)+1]
	at := r.reached
	for i := range at {
		at[i] = reached{0, -1, 0}
	}
	cells := m.trie.Cells
	for start := 0; start < len(text); {
		so, size := at[start].score, 1
		if text[start] >= utf8.RuneSelf {
			_, size = utf8.DecodeRune(text[start:])
		}
		known := false
		node := int32(trie.Root)
		for end := start; end < len(text); {
			n := cells[node].Base + int32(text[end])
			if cells[n].Parent != node {
				break
			}
			end++
			node = n
			id := cells[n].ID
			if id < 0 || m.proto.pieces[id].kind == unused {
				continue
			}
			score := m.scores[id]
			if m.proto.pieces[id].kind == userDefined { // so high that it is always taken
				score = float32(float64(float32(end-start)*m.highest) - 0.1)
			}
			if to, sum := &at[end], score+so; to.start < 0 || sum > to.score {
				*to = reached{sum, int32(start), id}
			}
			known = known || end == start+size
		}
		if !known {
			if to, sum := &at[start+size], m.penalty+so; to.start < 0 || sum > to.score {
				*to = reached{sum, int32(start), m.unknown}
			}
		}
		start += size
	}
	for end := int32(len(text)); end > 0; end = at[end].start {
		r.parts = append(r.parts, part{at[end].id, end - at[end].start})
	}
	slices.Reverse(r.parts)
}

// id returns the id of a piece.
func (m *Model) id(text []byte) int32 {
	if id, ok := m.ids[string(text)]; ok {
		return id
	}
	return m.unknown
}
