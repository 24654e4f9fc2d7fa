package strategy

import (
	"context"
	"fmt"
	"slices"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// loop makes several steps of one micro-batch per replica each in one call. If a step is not applied,
// the call ends after it, and there are fewer results than steps.
//
// If the call fails, loop also returns the results of the steps that it had finished: the graph
// writes those of each step to a variable.
func (m *Model) loop(ctx context.Context, steps []*step) ([]Result, error) {
	p := m.plan.Loop
	m.loops++
	feeds, err := loopFeeds(p, m.loops, steps)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	out, err := m.session.runSteps(ctx, len(steps), feeds, []build.Ref{p.Done, p.Results})
	took := time.Since(start)
	if err == nil {
		results, err := m.loopResults(out, len(steps), took)
		if err == nil && len(results) == 0 {
			err = fmt.Errorf("training step: a call of %d steps made none", len(steps))
		}
		return results, err
	}
	if m.session.failed() {
		return nil, fmt.Errorf("training step: %w", err)
	}
	kept, readErr := m.session.run(ctx, nil, []build.Ref{p.ReadDone, p.ReadResults})
	if readErr != nil {
		return nil, fmt.Errorf("training step: %w", err)
	}
	results, readErr := m.loopResults(kept, len(steps), took)
	if readErr != nil {
		return nil, readErr
	}
	return results, m.stepError(ctx, err)
}

// loopResults returns the results of the steps that the last call has finished. Out holds Loop.Done
// and Loop.Results. Each step gets an equal part of the time of the call.
func (m *Model) loopResults(out []*tf.Tensor, steps int, took time.Duration) ([]Result, error) {
	p := m.plan.Loop
	done, ok := out[0].Value().([]int64)
	rows, fine := out[1].Value().([][]float64)
	if !ok || !fine || len(done) != 2 || len(rows) != p.Steps {
		return nil, fmt.Errorf("unexpected results of a call of %d steps: shapes %v and %v", steps, out[0].Shape(), out[1].Shape())
	}
	if done[0] != m.loops { // those of an earlier call: this one has failed before its first step ended
		return nil, nil
	}
	if done[1] < 1 || done[1] > int64(steps) {
		return nil, fmt.Errorf("a call of %d steps made %d; expected 1 to %d", steps, done[1], steps)
	}
	results := make([]Result, done[1])
	for k := range results {
		r := &results[k]
		r.InSession = took / time.Duration(len(results))
		if err := m.readRow(r, rows[k]); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// readRow reads a row of Loop.Results.
func (m *Model) readRow(r *Result, row []float64) error {
	p, names := m.plan.Loop, m.plan.Train.Sums
	next := func(n int) []float64 {
		out := row[:n]
		row = row[n:]
		return out
	}
	r.Sums = make(map[string][]float64, len(names))
	clocks := make(tally, len(m.times))
	for i := range p.Feeds.Replicas {
		for j, name := range names {
			r.addSum(name, next(p.SumSizes[j]))
		}
		if p.Clocks > 0 {
			if err := clocks.add(i, next(p.Clocks)); err != nil {
				return err
			}
		}
	}
	m.took(clocks)
	decided := next(compose.Decided)
	r.GradientNorm, r.Applied, r.Iterations = decided[0], decided[1] != 0, int64(decided[2])
	m.updates = r.Iterations
	return nil
}

// loopFeeds returns the feeds of a call. Every input is that of the steps, one after the other.
func loopFeeds(p *compose.Loop, call int64, steps []*step) (feedSet, error) {
	features := newLaid(len(p.Feeds.Kinds))
	var numbers []int64
	var scalars []float32
	rows := make([][][]byte, len(p.Rows))
	counts := make([]int64, len(p.Rows)) // of rows
	for _, s := range steps {
		batches := s.in.(fedBatches).batches
		for i, batch := range batches {
			begin := slices.Clone(features.counts)
			layout, size, err := features.add(p.Feeds.Features, batch)
			if err != nil {
				return nil, err
			}
			seed := microSeed(s.seed, i)
			for k := range size {
				numbers = append(numbers, begin[k], size[k])
			}
			numbers = append(numbers, seed[:]...)
			numbers = append(numbers, layout...)
		}
		for i, feature := range p.Rows {
			r := s.rows[feature]
			numbers = append(numbers, counts[i], int64(len(r.rows)), int64(r.class))
			rows[i] = append(rows[i], raw(r.rows))
			counts[i] += int64(len(r.rows))
		}
		scalars = append(scalars, s.scalars...)
	}
	n := int64(len(steps))
	specs := []spec{
		{p.Call, tf.Int64, []int64{2}, [][]byte{raw([]int64{call, n})}},
		{p.Numbers, tf.Int64, []int64{n, int64(len(numbers)) / n}, [][]byte{raw(numbers)}},
		{p.ScalarFeed, tf.Float, []int64{n, int64(len(scalars)) / n}, [][]byte{raw(scalars)}},
	}
	specs = append(specs, features.specs(p.Feeds.Kinds, p.Feeds.Values)...)
	for i, feed := range p.RowFeeds {
		specs = append(specs, spec{feed, tf.Int32, counts[i : i+1], rows[i]})
	}
	return tensors(specs)
}
