package columns

import (
	"sync"

	"github.com/gorbit-ml/gorbit/dataset"
)

// Pool holds the memory of batches that were released: their features, each batch's in the same
// order. It may be used by several goroutines.
type Pool struct {
	mu   sync.Mutex
	free [][]dataset.Feature
}

// mostFree is the maximum number of batches whose memory a pool keeps.
const mostFree = 64

// Put adds the features of a batch, which nothing may use any more.
func (p *Pool) Put(features []dataset.Feature) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < mostFree {
		p.free = append(p.free, features)
	}
}

// Take returns the features of a batch, or nil.
func (p *Pool) Take() []dataset.Feature {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free) - 1
	if n < 0 {
		return nil
	}
	f := p.free[n]
	p.free[n] = nil
	p.free = p.free[:n]
	return f
}
