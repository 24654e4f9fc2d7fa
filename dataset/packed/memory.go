package packed

import (
	"slices"
	"sync"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/internal/columns"
)

// lease is the memory of a batch's features. Copies of the Batch share it, so that
// it is returned only once.
type lease struct {
	from   *pool
	memory *block
	extras []dataset.Feature
	spans  []span // of the examples, where the features do not show them

	targets     []dataset.Feature
	targetSpans []span // of the targets, if there are any
}

// Release implements dataset.Lease.
func (l *lease) Release() {
	if l.memory != nil {
		l.from.put(l.memory)
		l.memory = nil
		if l.extras != nil {
			l.from.extras.Put(l.extras)
			l.extras = nil
		}
		if l.targets != nil {
			l.from.targets.Put(l.targets)
			l.targets = nil
		}
	}
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

	extras, targets columns.Pool // the memory of extra features, and of those of targets
}

// mostFree is the maximum number of blocks that a pool keeps, one for each batch.
const mostFree = 256

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
