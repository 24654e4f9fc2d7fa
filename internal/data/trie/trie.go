// Package trie finds the longest and all prefixes of a text that are tokens of a vocabulary.
package trie

import (
	"cmp"
	"slices"
	"strings"
)

// Trie is a double-array trie over the bytes of tokens: the child of node n for byte c is
// Cells[n].Base+c if that cell's parent is n. It is immutable and safe for concurrent use.
type Trie struct {
	Cells []Cell
}

// Cell is a node.
type Cell struct {
	Base   int32 // base of the children's cells
	Parent int32 // -1: the cell is free
	ID     int32 // -1: no token ends here
}

// The nodes that every trie has.
const (
	Root = 0
	// Dead is an unreachable node without children.
	Dead = 1
)

// next returns the child of node for c, and whether it exists.
func (t *Trie) next(node int32, c byte) (int32, bool) {
	n := t.Cells[node].Base + int32(c)
	return n, t.Cells[n].Parent == node
}

// Find returns the id of a token, or -1.
func (t *Trie) Find(token string) int32 {
	n := t.Walk(token)
	return t.Cells[n].ID
}

// Walk returns the node of a string, or Dead.
func (t *Trie) Walk(s string) int32 {
	n := int32(Root)
	for i := range len(s) {
		var ok bool
		if n, ok = t.next(n, s[i]); !ok {
			return Dead
		}
	}
	return n
}

// New builds the trie of tokens. Their ids are their positions. If tokens are
// equal, the last one counts; empty tokens are left out.
func New(tokens []string) Trie {
	order := make([]int32, 0, len(tokens))
	for i, s := range tokens {
		if s != "" {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(strings.Compare(tokens[a], tokens[b]), int(a-b)) })

	b := builder{last: none}
	b.grow(512)
	b.take(Root, -2)
	b.take(Dead, -2)

	// Breadth first, so that the upper levels, where most steps are, are close together.
	type span struct {
		lo, hi int // the node's tokens in order
		node   int32
		depth  int
	}
	queue := []span{{0, len(order), Root, 0}}
	var labels []byte
	var bounds []int
	for head := 0; head < len(queue); head++ {
		q := queue[head]
		lo := q.lo
		for lo < q.hi && len(tokens[order[lo]]) == q.depth {
			b.cells[q.node].ID = order[lo]
			lo++
		}
		if lo == q.hi {
			continue
		}
		labels, bounds = labels[:0], bounds[:0]
		for i := lo; i < q.hi; i++ {
			if c := tokens[order[i]][q.depth]; len(labels) == 0 || c != labels[len(labels)-1] {
				labels, bounds = append(labels, c), append(bounds, i)
			}
		}
		base := b.place(labels)
		b.cells[q.node].Base = base
		for k, c := range labels {
			child := base + int32(c)
			b.take(child, q.node)
			hi := q.hi
			if k+1 < len(labels) {
				hi = bounds[k+1]
			}
			queue = append(queue, span{bounds[k], hi, child, q.depth + 1})
		}
	}

	return Trie{slices.Clone(b.cells)}
}

// builder is a double array under construction. Its free cells form a list in ascending
// order. The list never becomes empty, because the array grows near its end.
type builder struct {
	cells []Cell
	links []link
	last  int32 // the highest free cell
	from  int32 // the free cell where searches start
}

type link struct{ prev, next int32 }

// none ends the list of free cells.
const none = -1

// grow adds n free cells.
func (b *builder) grow(n int) {
	for range n {
		i := int32(len(b.cells))
		b.cells = append(b.cells, Cell{Parent: -1, ID: -1})
		b.links = append(b.links, link{b.last, none})
		if b.last != none {
			b.links[b.last].next = i
		}
		b.last = i
	}
}

// take makes a free cell, never the last one, a child of parent.
func (b *builder) take(i, parent int32) {
	l := b.links[i]
	if l.prev != none {
		b.links[l.prev].next = l.next
	}
	b.links[l.next].prev = l.prev
	if b.from == i {
		b.from = l.next
	}
	b.cells[i].Parent = parent
}

// place finds a base such that the cells of all labels (ascending) are free. At least
// 256 cells follow a base, because any byte may be looked up from it.
func (b *builder) place(labels []byte) int32 {
	// A search that passes this many cells gives them up for good, which keeps the
	// build linear and wastes few cells.
	const patience = 64
	tried := 0
	for at := b.from; ; at = b.links[at].next {
		if int(at)+512 > len(b.cells) {
			b.grow(max(512, len(b.cells)/2))
		}
		if base := at - int32(labels[0]); base > Dead && b.fits(base, labels) {
			return base
		}
		if tried++; tried%patience == 0 {
			b.from = b.links[at].next
		}
	}
}

func (b *builder) fits(base int32, labels []byte) bool {
	for _, c := range labels {
		if b.cells[base+int32(c)].Parent != -1 {
			return false
		}
	}
	return true
}
