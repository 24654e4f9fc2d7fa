package dataset

import (
	"slices"
	"sync"
)

// Release returns the memory of the batch's features for use by later batches. It is
// optional, for loops that draw thousands of batches per second. Afterwards the batch
// has no Features, and slices taken from them must not be used. It may be called more
// than once, but not while the features are in use.
func (b *Batch) Release() {
	b.Features = nil
	if b.lease != nil && b.lease.memory != nil {
		b.lease.from.put(b.lease.memory)
		b.lease.memory = nil
	}
}

// lease is the memory of a batch's features. Copies of the Batch share it, so that
// it is returned only once.
type lease struct {
	from   *pool
	memory *block
}

// block holds the numbers of all features of a batch.
type block struct {
	ints   []int32
	floats []float32
}

// pool holds returned memory.
type pool struct {
	mu   sync.Mutex
	free []*block
}

// mostFree is the maximum number of blocks that a pool keeps.
const mostFree = 4 * mostTogether

func (p *pool) put(m *block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < mostFree {
		p.free = append(p.free, m)
	}
}

// take returns memory for the given numbers of integers and floats, all 0.
func (p *pool) take(ints, floats int) *block {
	m := p.last()
	if m == nil {
		return &block{make([]int32, ints), make([]float32, floats)}
	}
	m.ints, m.floats = zeros(m.ints, ints), zeros(m.floats, floats)
	return m
}

func (p *pool) last() *block {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free) - 1
	if n < 0 {
		return nil
	}
	m := p.free[n]
	p.free = p.free[:n]
	return m
}

// zeros returns n zeros, in the memory of s if it is large enough.
func zeros[T int32 | float32](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}
