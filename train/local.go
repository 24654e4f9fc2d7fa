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
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

// localData returns the data that the workers read themselves, or nil if the chief reads for all.
func localData(p params.Params, c *graphs.Contract, train *dataset.Dataset) *strategy.LocalInput {
	if p.Strategy.Input != params.InputLocal {
		return nil
	}
	d := &strategy.LocalInput{Dir: p.Data.Dir, Dataset: p.Dataset(nil, true, packed.Config{}), Layout: prepare.LayoutFor(p, c, prepare.ToTrain), Settings: train.State().Settings, Workers: p.Strategy.Addresses()}
	d.Dataset.ClassWeights, d.Dataset.Sampling = train.ClassWeights(), train.Sampling()
	for _, f := range train.FileInfos() {
		if within, err := filepath.Rel(d.Dir, f.Path); err == nil && filepath.IsLocal(within) {
			f.Path = within
		}
		d.Files = append(d.Files, f)
	}
	return d
}

// localSource is a source of batches that the workers read. This process holds only the counts of
// a batch and reads no records. While a step runs, the workers draw the next batch.
type localSource struct {
	data       *dataset.Dataset // used for positions and names only
	start      dataset.State
	workers    prepare.Drawer
	accumulate int // micro-batches per replica
	log        *slog.Logger
	flops      graphs.FLOPs // of the graph

	at      dataset.State // position after the last batch
	next    chan drawing  // the next batch; nil if it is not being drawn
	drawing sync.WaitGroup
	barren  int64 // consecutive batches without an example
}

// drawing is a batch that the workers have drawn.
type drawing struct {
	from  dataset.State
	drawn *strategy.Drawn
	err   error
}

// newLocalSource returns a source of batches that workers draw from a dataset, starting at the
// dataset's current position. The caller must call wait at the end.
func newLocalSource(d *dataset.Dataset, workers prepare.Drawer, accumulate int, log *slog.Logger) *localSource {
	at := d.State()
	return &localSource{data: d, start: at, workers: workers, accumulate: max(1, accumulate), log: log, at: at}
}

// wait waits until the last draw has ended.
func (s *localSource) wait() { s.drawing.Wait() }

// Seek implements runner.Source.
func (s *localSource) Seek(position json.RawMessage) error {
	if err := loop.Seek(s.data, position, s.start); err != nil {
		return err
	}
	s.at, s.next, s.barren = s.data.State(), nil, 0
	return nil
}

// draw has the workers draw the batch at a position, in the background. It ignores cancellation
// because an interrupted call would break the session.
func (s *localSource) draw(ctx context.Context, at dataset.State) chan drawing {
	done := make(chan drawing, 1)
	accumulate := s.accumulate
	s.drawing.Go(func() {
		drawn, err := s.workers.Draw(context.WithoutCancel(ctx), at.Epoch, at.Position, accumulate)
		done <- drawing{at, drawn, err}
	})
	return done
}

// take returns the batch at the current position. A batch that was drawn with another number of
// micro-batches, because memory has run out since, is drawn again.
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
func (s *localSource) Next(ctx context.Context) (runner.Batch[*loop.Batch], error) {
	for {
		d, err := s.take(ctx)
		if err != nil {
			return runner.Batch[*loop.Batch]{}, err
		}
		s.at = d.from.After()
		if d.drawn.Skipped > 0 {
			s.at.Skipped += d.drawn.Skipped
			s.log.Warn("damaged records skipped; see the workers' logs for their names", "records", d.drawn.Skipped, "skipped_so_far", s.at.Skipped)
		}
		if d.drawn.Examples == 0 {
			if s.barren++; s.barren >= s.data.MostBatches() {
				return runner.Batch[*loop.Batch]{}, fault.Damagedf("%s: no usable record in a whole epoch of %d", s.data.Files()[0], s.data.NumExamples())
			}
			continue
		}
		s.barren = 0
		s.next = s.draw(ctx, s.at)
		return runner.Batch[*loop.Batch]{
			Payload:  s.batch(d),
			Examples: d.drawn.Examples,
			Tokens:   d.drawn.Tokens + d.drawn.TargetTokens,
			FLOPs: s.flops.Work(graphs.Work{Tokens: int64(d.drawn.Tokens), Pairs: d.drawn.Pairs, TargetTokens: int64(d.drawn.TargetTokens),
				TargetPairs: d.drawn.TargetPairs, Examples: int64(d.drawn.Examples)}),
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

// batch returns a drawn batch in the form that the strategy expects.
func (s *localSource) batch(d drawing) *loop.Batch {
	return &loop.Batch{Drawn: d.drawn, Examples: d.drawn.Micro, Halve: func(ctx context.Context) (*loop.Batch, error) {
		s.accumulate *= 2
		again := <-s.draw(ctx, d.from)
		if again.err != nil {
			return nil, again.err
		}
		return s.batch(again), nil
	}}
}
