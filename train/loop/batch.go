package loop

import (
	"context"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/strategy"
)

// Batch is a global batch, divided into micro-batches for a strategy.
type Batch struct {
	// Micro holds the micro-batches: as many as the strategy computes in parallel, or a multiple of
	// that.
	Micro [][]strategy.Feature
	// Drawn is set instead of Micro if the workers have read the batch.
	Drawn *strategy.Drawn
	// Examples holds the number of examples of each micro-batch.
	Examples []int
	// Halve returns the batch divided into twice as many micro-batches, and makes the source divide
	// all later batches the same way; nil if that is not possible.
	Halve func(context.Context) (*Batch, error)
	// From is what Micro has its memory from; nil if it is not to be given back.
	From *dataset.Batch
}

// release gives the memory of the micro-batches back, for batches that are read later. Then they
// have none: it is for batches whose update was made, which nothing repeats. Feeding copies them.
func (b *Batch) release() {
	if b.From == nil {
		return
	}
	for _, part := range b.From.Parts {
		part.Release()
	}
	b.From.Release()
	b.From, b.Micro, b.Halve = nil, nil, nil
}

// All returns the number of examples of the batch.
func (b *Batch) All() (n int) {
	for _, e := range b.Examples {
		n += e
	}
	return n
}

// NewBatch returns a batch with one micro-batch for each part of a dataset's batch.
func NewBatch(b *dataset.Batch) *Batch {
	parts := b.Parts
	if parts == nil {
		parts = []*dataset.Batch{b}
	}
	out := &Batch{From: b}
	for _, p := range parts {
		out.Micro, out.Examples = append(out.Micro, p.Features), append(out.Examples, p.Examples)
	}
	return out
}
