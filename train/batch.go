package train

import (
	"context"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/strategy"
)

// Batch is a global batch as a strategy takes it. Its source has divided it.
type Batch struct {
	// Micro are its micro-batches: as many as the strategy computes side by side, or a
	// multiple of that. Drawn takes their place where the workers have read the batch.
	Micro [][]strategy.Feature
	Drawn *strategy.Drawn
	// Examples are those of each micro-batch.
	Examples []int
	// Halve divides the batch, and those that its source gives from then on, into twice as
	// many micro-batches; nil where that cannot be.
	Halve func(context.Context) (*Batch, error)
}

// all is the number of examples of the batch.
func (b *Batch) all() (n int) {
	for _, e := range b.Examples {
		n += e
	}
	return n
}

// newBatch returns a batch in the parts in which its dataset has divided it.
func newBatch(b *dataset.Batch) *Batch {
	parts := b.Parts
	if parts == nil {
		parts = []*dataset.Batch{b}
	}
	out := new(Batch)
	for _, p := range parts {
		out.Micro, out.Examples = append(out.Micro, p.Features), append(out.Examples, p.Examples)
	}
	return out
}
