package train

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
)

// localData says what the workers read themselves, nil where the chief reads for all.
func (p Params) localData(c *graphs.Contract, train *dataset.Dataset) *strategy.LocalInput {
	if p.Strategy.Input != inputLocal {
		return nil
	}
	d := &strategy.LocalInput{Dir: p.Data.Dir, Dataset: p.dataset(nil, true), Settings: train.State().Settings, Workers: p.Strategy.addresses()}
	bound(&d.Dataset, c)
	for _, f := range train.Files() {
		if within, err := filepath.Rel(d.Dir, f); err == nil && filepath.IsLocal(within) {
			f = within
		}
		d.Files = append(d.Files, f)
	}
	return d
}

// input returns the batches of an attempt, and what ends them.
func (t *training) input(m *model, workers drawer) (runner.Source[*dataset.Batch], func()) {
	if t.params.Strategy.Input != inputLocal {
		t.data.DivideAhead(m.parts())
		return t.data, func() {}
	}
	m.local = &localSource{data: t.data, workers: workers, model: m, at: t.data.State()}
	return m.local, m.local.wait
}

// localSource gives batches that the workers have read: what is here of a batch is its
// counts. While a step is made, the next batch is drawn. It reads no record itself.
type localSource struct {
	data    *source // for positions and names
	workers drawer
	model   *model

	at      dataset.State // behind the last batch
	next    chan drawing  // of the next batch; nil while it is not being drawn
	drawing sync.WaitGroup
	barren  int64 // batches in a row without an example

	batch *dataset.Batch // the last
	drawn drawing        // which it is of
}

// drawing is a batch at the workers.
type drawing struct {
	from  dataset.State
	drawn *strategy.Drawn
	err   error
}

// wait waits for the end of what is being drawn.
func (s *localSource) wait() { s.drawing.Wait() }

// Seek implements runner.Source.
func (s *localSource) Seek(position json.RawMessage) error {
	if err := s.data.Seek(position); err != nil {
		return err
	}
	s.at, s.next, s.barren = s.data.State(), nil, 0
	return nil
}

// draw has the workers draw the batch at a position, in the background: a call that is
// broken off breaks the session.
func (s *localSource) draw(ctx context.Context, at dataset.State) chan drawing {
	done := make(chan drawing, 1)
	accumulate := max(1, s.model.accumulate)
	s.drawing.Go(func() {
		drawn, err := s.workers.Draw(context.WithoutCancel(ctx), at.Epoch, at.Position, accumulate)
		done <- drawing{at, drawn, err}
	})
	return done
}

// Next implements runner.BatchReader.
func (s *localSource) Next(ctx context.Context) (runner.Batch[*dataset.Batch], error) {
	for {
		if s.next == nil {
			s.next = s.draw(ctx, s.at)
		}
		var d drawing
		select {
		case d = <-s.next:
		case <-ctx.Done():
			return runner.Batch[*dataset.Batch]{}, ctx.Err()
		}
		s.next = nil
		if d.err != nil {
			return runner.Batch[*dataset.Batch]{}, d.err
		}
		s.at = d.from.After()
		if d.drawn.Skipped > 0 {
			s.at.Skipped += d.drawn.Skipped
			s.model.log.Warn("damaged records are skipped; the workers' logs name them", "records", d.drawn.Skipped, "skipped_so_far", s.at.Skipped)
		}
		if d.drawn.Examples == 0 {
			if s.barren++; s.barren >= s.data.BatchesPerEpoch() {
				return runner.Batch[*dataset.Batch]{}, fmt.Errorf("%s: no usable record in a whole epoch of %d", s.data.Files()[0], s.data.NumExamples())
			}
			continue
		}
		s.barren = 0
		s.next = s.draw(ctx, s.at)
		s.drawn = d
		s.batch = &dataset.Batch{Examples: d.drawn.Examples, Labeled: d.drawn.Labeled, Truncated: d.drawn.Truncated, Tokens: d.drawn.Tokens,
			Rows: d.drawn.Rows, Epoch: d.from.Epoch, State: s.at}
		return runner.Batch[*dataset.Batch]{
			Payload:  s.batch,
			Examples: s.batch.Examples,
			Tokens:   s.batch.Tokens,
			Epoch:    s.batch.Epoch,
			Position: s.batch.State,
			Records: func() []string {
				var names []string
				for _, id := range s.data.Drawn(d.from) {
					names = append(names, s.data.Describe(id))
				}
				return names
			},
		}, nil
	}
}

// step makes a step of the last batch, and says how many examples each micro-batch has.
func (s *localSource) step(ctx context.Context, batch *dataset.Batch, seed [2]int64, scalars strategy.Scalars) ([]int, *strategy.Result, error) {
	drawn, err := s.take(ctx, batch, s.model.accumulate)
	if err != nil {
		return nil, nil, err
	}
	r, err := makeStep(ctx, s.model.Strategy, strategy.StepInput{Drawn: drawn, Seed: seed, Scalars: scalars})
	return drawn.Micro, r, err
}

// take returns what the workers have of the last batch, divided for so many
// micro-batches per replica. It is drawn again where it was divided otherwise.
func (s *localSource) take(ctx context.Context, batch *dataset.Batch, accumulate int) (*strategy.Drawn, error) {
	if batch != s.batch {
		return nil, fmt.Errorf("the workers have another batch than that of epoch %d", batch.Epoch)
	}
	if s.drawn.drawn.Accumulate != max(1, accumulate) {
		again := <-s.draw(ctx, s.drawn.from)
		if again.err != nil {
			return nil, again.err
		}
		s.drawn = again
	}
	return s.drawn.drawn, nil
}
