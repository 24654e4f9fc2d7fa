package sentencepiece

import (
	"math"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/data/trie"
)

// symbol is a part of a text that may be joined with its neighbours.
type symbol struct {
	start, size int32 // a size of 0: it was joined with the one before
	prev, next  int32 // -1: none
	whole       bool  // it is user-defined, and is never joined
}

// join is two symbols that may be joined.
type join struct {
	left, right int32
	size        int32 // of both together
}

// order returns the key of a join: that with the highest score is done first, then the leftmost one.
func order(score float32, left int32) uint64 {
	bits := math.Float32bits(score + 0) // -0 becomes 0
	if bits>>31 == 0 {
		bits = ^bits &^ (1 << 31)
	}
	return uint64(bits)<<32 | uint64(left)
}

// join finds the parts of a text by joining neighbours, those that give the piece with the highest score
// first.
func (m *Model) join(r *room) {
	m.symbols(r)
	var halves map[int64]int32 // how long the left half of a piece is that is not used, by its bounds
	r.agenda = r.agenda[:0]
	consider := func(left, right int32) {
		if left < 0 || right < 0 || r.symbols[left].whole || r.symbols[right].whole {
			return
		}
		a, b := r.symbols[left], r.symbols[right]
		id := m.find(r.text.bytes[a.start : a.start+a.size+b.size])
		if id < 0 {
			return
		}
		r.agenda.Push(order(m.proto.pieces[id].score, left), join{left, right, a.size + b.size})
		if m.proto.pieces[id].kind == unused {
			if halves == nil {
				halves = map[int64]int32{}
			}
			halves[int64(a.start)<<32|int64(a.size+b.size)] = a.size
		}
	}
	for i := 1; i < len(r.symbols); i++ {
		consider(int32(i-1), int32(i))
	}
	for len(r.agenda) > 0 {
		top := r.agenda.Pop()
		left, right := &r.symbols[top.left], &r.symbols[top.right]
		if left.size == 0 || right.size == 0 || left.size+right.size != top.size {
			continue
		}
		left.size = top.size
		left.next = right.next
		if right.next >= 0 {
			r.symbols[right.next].prev = top.left
		}
		right.size = 0
		consider(left.prev, top.left)
		consider(top.left, left.next)
	}
	var take func(start, size int32)
	take = func(start, size int32) {
		id := m.id(r.text.bytes[start : start+size])
		half, ok := halves[int64(start)<<32|int64(size)]
		if m.proto.pieces[id].kind != unused || !ok {
			r.parts = append(r.parts, part{id, size})
			return
		}
		take(start, half)
		take(start+half, size-half)
	}
	for i := int32(0); i >= 0 && len(r.symbols) > 0; i = r.symbols[i].next {
		take(r.symbols[i].start, r.symbols[i].size)
	}
}

// symbols divides a text into its characters and user-defined symbols.
func (m *Model) symbols(r *room) {
	r.symbols = r.symbols[:0]
	text := r.text.bytes
	for at := 0; at < len(text); {
		_, size := utf8.DecodeRune(text[at:])
		whole := false
		if m.normalizer.hasSymbols {
			if n := longest(&m.normalizer.symbols, text[at:]); n > 0 {
				size, whole = n, true
			}
		}
		i := int32(len(r.symbols))
		r.symbols = append(r.symbols, symbol{start: int32(at), size: int32(size), prev: i - 1, next: i + 1, whole: whole})
		at += size
	}
	if n := len(r.symbols); n > 0 {
		r.symbols[n-1].next = -1
	}
}

// find returns the id of a piece that texts may become, or -1.
func (m *Model) find(text []byte) int32 {
	node := int32(trie.Root)
	for _, c := range text {
		n := m.trie.Cells[node].Base + int32(c)
		if m.trie.Cells[n].Parent != node {
			return -1
		}
		node = n
	}
	return m.trie.Cells[node].ID
}
