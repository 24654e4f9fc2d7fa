package train

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/fault"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
)

// localData says what the workers read themselves, nil where the chief reads for all.
func (p Params) localData(c *graphs.Contract, train *dataset.Dataset) *strategy.LocalInput {
	if p.Strategy.Input != inputLocal {
		return nil
	}
	d := &strategy.LocalInput{Dir: p.Data.Dir, Dataset: p.dataset(nil, true, packed.Config{}), Layout: p.layoutFor(c), Settings: train.State().Settings, Workers: p.Strategy.addresses()}
	for _, f := range train.FileInfos() {
		if within, err := filepath.Rel(d.Dir, f.Path); err == nil && filepath.IsLocal(within) {
			f.Path = within
		}
		d.Files = append(d.Files, f)
	}
	return d
}

// localSource gives batches that the workers have read: what is here of a batch is its
// counts. While a step is made, the next batch is drawn. It reads no record itself.
type localSource struct {
	data       *dataset.Dataset // for positions and names
	start      dataset.State
	workers    drawer
	accumulate int // micro-batches of a replica
	log        *slog.Logger

	at      dataset.State // behind the last batch
	next    chan drawing  // of the next batch; nil while it is not being drawn
	drawing sync.WaitGroup
	barren  int64 // batches in a row without an example
}

// drawing is a batch at the workers.
type drawing struct {
	from  dataset.State
	drawn *strategy.Drawn
	err   error
}

// newLocalSource returns the batches of a dataset that workers draw. The beginning of the
// data is where the dataset is now. To be waited for by wait.
func newLocalSource(d *dataset.Dataset, workers drawer, accumulate int, log *slog.Logger) *localSource {
	at := d.State()
	return &localSource{data: d, start: at, workers: workers, accumulate: max(1, accumulate), log: log, at: at}
}

// wait waits for the end of what is being drawn.
func (s *localSource) wait() { s.drawing.Wait() }

// Seek implements runner.Source.
func (s *localSource) Seek(position json.RawMessage) error {
	if err := seek(s.data, position, s.start); err != nil {
		return err
	}
	s.at, s.next, s.barren = s.data.State(), nil, 0
	return nil
}

// draw has the workers draw the batch at a position, in the background: a call that is
// broken off breaks the session.
func (s *localSource) draw(ctx context.Context, at dataset.State) chan drawing {
	done := make(chan drawing, 1)
	accumulate := s.accumulate
	s.drawing.Go(func() {
		drawn, err := s.workers.Draw(context.WithoutCancel(ctx), at.Epoch, at.Position, accumulate)
		done <- drawing{at, drawn, err}
	})
	return done
}

// take returns the batch at the position. One that was drawn for other micro-batches, as
// before memory ran out, is drawn again.
func (s *localSource) take(ctx context.Context) (drawing, error) {
	for {
		if s.next == nil {
			s.next = s.draw(ctx, s.at)
		}
		var d drawing
		select {
		case d = <-s.next:
		case <-ctx.Done():
			return d, ctx.Err()
		}
		s.next = nil
		if d.err != nil || d.drawn.Accumulate == s.accumulate {
			return d, d.err
		}
	}
}

// Next implements runner.BatchReader.
func (s *localSource) Next(ctx context.Context) (runner.Batch[*Batch], error) {
	for {
		d, err := s.take(ctx)
		if err != nil {
			return runner.Batch[*Batch]{}, err
		}
		s.at = d.from.After()
		if d.drawn.Skipped > 0 {
			s.at.Skipped += d.drawn.Skipped
			s.log.Warn("damaged records are skipped; the workers' logs name them", "records", d.drawn.Skipped, "skipped_so_far", s.at.Skipped)
		}
		if d.drawn.Examples == 0 {
			if s.barren++; s.barren >= s.data.BatchesPerEpoch() {
				return runner.Batch[*Batch]{}, fault.Damagedf("%s: no usable record in a whole epoch of %d", s.data.Files()[0], s.data.NumExamples())
			}
			continue
		}
		s.barren = 0
		s.next = s.draw(ctx, s.at)
		return runner.Batch[*Batch]{
			Payload:  s.batch(d),
			Examples: d.drawn.Examples,
			Tokens:   d.drawn.Tokens,
			Epoch:    d.from.Epoch,
			Position: s.at,
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

// batch returns a batch that the workers have, for the strategy.
func (s *localSource) batch(d drawing) *Batch {
	return &Batch{Drawn: d.drawn, Examples: d.drawn.Micro, Halve: func(ctx context.Context) (*Batch, error) {
		s.accumulate *= 2
		again := <-s.draw(ctx, d.from)
		if again.err != nil {
			return nil, again.err
		}
		return s.batch(again), nil
	}}
}
