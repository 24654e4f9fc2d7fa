package loop

import (
	"context"

	"github.com/gorbit-ml/gorbit/strategy"
)

// Inspector looks at the updates of a training, and changes none of them. Updates are counted from 1.
type Inspector interface {
	// Together returns how many of n updates may be made in one call, 1 at least. The first of them is
	// update number first.
	Together(first int64, n int) int
	// Before is called before a call of updates, which gets the context that it returns. It is called
	// again if the call is repeated with smaller micro-batches, because memory ran out.
	Before(ctx context.Context, first int64, inputs []strategy.StepInput) (context.Context, error)
	// After is called after a call with its results, which are fewer than its inputs if the last one was
	// not applied, or if the call failed.
	After(ctx context.Context, first int64, results []strategy.Result) error
}

// together returns how many of n updates the inspectors allow in one call.
func (m *Model) together(first int64, n int) int {
	for _, i := range m.Inspectors {
		n = i.Together(first, n)
	}
	return n
}

// steps makes updates, the first of which has the given number, and lets the inspectors look at them.
func (m *Model) steps(ctx context.Context, first int64, inputs []strategy.StepInput) ([]strategy.Result, error) {
	inspected := ctx
	for _, i := range m.Inspectors {
		var err error
		if inspected, err = i.Before(inspected, first, inputs); err != nil {
			return nil, err
		}
	}
	results, err := m.Strategy.Steps(inspected, inputs)
	for _, i := range m.Inspectors {
		if failed := i.After(ctx, first, results); failed != nil && err == nil {
			return nil, failed
		}
	}
	return results, err
}
