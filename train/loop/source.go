package loop

import (
	"context"
	"encoding/json"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// Source reads the batches of a dataset, divided into micro-batches for a strategy. It implements
// runner.Source.
type Source struct {
	// Data has the batches.
	Data  *dataset.Dataset
	start dataset.State
	// Into is how they are divided.
	Into division
	// Whole says that they cannot be divided further.
	Whole bool
	// Filled counts how full the rows are; nil for nobody.
	Filled *Filling
	// Flops is what the graph computes.
	Flops graphs.FLOPs
}

// division describes how batches are divided.
type division struct {
	side int // micro-batches computed in parallel
	// Accumulate is the number of micro-batches computed one after the other for an update.
	Accumulate int
	longRows   int // maximum tokens in a row of a micro-batch
}

// divisionFor returns the division for a strategy.
func divisionFor(s Strategy, accumulate int) division {
	r := s.Runtime()
	return division{side: r.MicroBatches, Accumulate: max(1, accumulate), longRows: r.LongRows}
}

// NewSource returns a source of the batches of a dataset, divided for a strategy. accumulate is the
// number of micro-batches that each replica computes one after the other for an update; 0 means
// one. A new run starts at the current position of the dataset.
func NewSource(d *dataset.Dataset, s Strategy, accumulate int) *Source {
	out := &Source{Data: d, start: d.State(), Into: divisionFor(s, accumulate)}
	if calls := s.Runtime().StepsPerCall; calls > 1 {
		d.Ahead(2 * calls) // the batches of this call and of the next
	}
	out.divide()
	return out
}

// divide sets how the dataset divides its batches from now on.
func (s *Source) divide() { s.Data.Divide(s.Into.side*s.Into.Accumulate, s.Into.longRows) }

// Next implements runner.BatchReader.
func (s *Source) Next(ctx context.Context) (runner.Batch[*Batch], error) {
	before := s.Data.State()
	b, err := s.Data.Next(ctx)
	if err != nil {
		return runner.Batch[*Batch]{}, err
	}
	if s.Filled != nil {
		s.Filled.add(b.Tokens, roomIn(b))
	}
	batch := NewBatch(b)
	whole := described(b, batch)
	whole.FLOPs = s.Flops.Work(graphs.Work{Tokens: int64(b.Tokens), Pairs: b.Pairs, TargetTokens: int64(b.TargetTokens), TargetPairs: b.TargetPairs, Examples: int64(b.Examples)})
	accumulate := s.Into.Accumulate
	if s.Whole {
		return whole, nil
	}
	batch.Halve = func(ctx context.Context) (*Batch, error) { return s.halve(ctx, before, 2*accumulate) }
	return whole, nil
}

// roomIn returns the number of positions in the rows of a batch, or of its parts.
func roomIn(b *dataset.Batch) int {
	if b.Parts == nil {
		return b.Rows * b.RowLength
	}
	n := 0
	for _, part := range b.Parts {
		n += part.Rows * part.RowLength
	}
	return n
}

// halve reads the batch after a position again, divided into at least as many micro-batches per
// replica as given, and so are all later batches. Batches that were read since are not read again.
func (s *Source) halve(ctx context.Context, before dataset.State, accumulate int) (*Batch, error) {
	s.Into.Accumulate = max(s.Into.Accumulate, accumulate)
	s.divide()
	now := s.Data.State()
	if err := s.Data.Restore(before); err != nil {
		return nil, err
	}
	b, err := s.Next(ctx)
	if err != nil {
		return nil, err
	}
	if s.Data.State() != now {
		err = s.Data.Restore(now)
	}
	return b.Payload, err
}

// Seek implements runner.Source.
func (s *Source) Seek(position json.RawMessage) error { return Seek(s.Data, position, s.start) }

// Seek moves to a position in the data, or to the start if the position is nil.
func Seek(d *dataset.Dataset, position json.RawMessage, start dataset.State) error {
	if position == nil {
		return d.Restore(start)
	}
	var state dataset.State
	if err := json.Unmarshal(position, &state); err != nil {
		return err
	}
	return d.Restore(state)
}

// Evaluations returns a function for runner.NewStandardEvaluator. It opens the dataset for each
// evaluation; the evaluator closes it. For most strategies its batches must not be divided.
func Evaluations(open func(context.Context) (*dataset.Dataset, error)) func(context.Context) (runner.BatchReader[*Batch], error) {
	return func(ctx context.Context) (runner.BatchReader[*Batch], error) {
		d, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return pass{d}, nil
	}
}

// pass reads the batches of a dataset once.
type pass struct{ *dataset.Dataset }

// Next implements runner.BatchReader.
func (p pass) Next(ctx context.Context) (runner.Batch[*Batch], error) {
	b, err := p.Dataset.Next(ctx)
	if err != nil {
		return runner.Batch[*Batch]{}, err
	}
	return described(b, NewBatch(b)), nil
}

// described returns a batch with the metadata that the loop needs.
func described(b *dataset.Batch, payload *Batch) runner.Batch[*Batch] {
	return runner.Batch[*Batch]{
		Payload:  payload,
		Examples: b.Examples,
		Tokens:   b.Tokens + b.TargetTokens,
		Epoch:    b.Epoch,
		Position: b.State,
		Records: func() []string {
			names := make([]string, len(b.Records))
			for i := range names {
				names[i] = b.Describe(i)
			}
			return names
		},
	}
}
