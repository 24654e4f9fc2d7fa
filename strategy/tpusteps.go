package strategy

import (
	"context"
	"fmt"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// Steps implements Strategy. One call of the TPU makes up to Runtime.StepsPerCall steps of one shape.
// Every step needs one micro-batch for each core.
func (m *TPU) Steps(ctx context.Context, steps []StepInput) ([]Result, error) {
	var out []Result
	for len(steps) > 0 {
		shape, n := m.shapeOfStep(steps[0]), 1
		for n < min(len(steps), m.runtime.StepsPerCall) && m.shapeOfStep(steps[n]) == shape {
			n++
		}
		group := steps[:n]
		results, err := m.loop(ctx, m.calls(shape).Train, group)
		out = append(out, results...)
		if n := len(results); err != nil || n < len(group) || !results[n-1].Applied {
			return out, err
		}
		steps = steps[len(group):]
	}
	return out, nil
}

// loop makes steps in one call of the TPU, with the program for their shape. There are fewer results than steps if one of them is not
// applied, which then is the last.
func (m *TPU) loop(ctx context.Context, p *compose.TPUTrain, steps []StepInput) ([]Result, error) {
	if p == nil {
		return nil, fmt.Errorf("the graph was composed for evaluation only")
	}
	feeds, err := tpuFeeds(p, steps)
	if err != nil {
		return nil, err
	}
	fetches := p.Fetches
	if !p.Made.IsZero() {
		fetches = append(fetches[:len(fetches):len(fetches)], p.Made)
	}
	m.program.Lock()
	start := time.Now()
	out, err := m.run(ctx, feeds, fetches)
	took := time.Since(start)
	m.program.Unlock()
	if err != nil {
		return nil, m.stepError(ctx, err)
	}
	results, err := tpuResults(p, out, len(steps), took)
	if err != nil {
		return nil, err
	}
	if err := m.count(results); err != nil {
		return nil, err
	}
	return results, nil
}

// count checks that the TPU made every step once. TensorFlow's client makes a call again whose
// connection was cut, also if the first one has run. Its server refuses the second one, but not one
// that was started in the meantime.
func (m *TPU) count(results []Result) error {
	for _, r := range results {
		if r.Applied {
			m.updates++
		}
		if r.Iterations != m.updates {
			err := &TPULostError{fmt.Errorf("the TPU counts %d steps; expected %d: a call was made again after its connection was cut", r.Iterations, m.updates)}
			m.session.cluster.Fail(err)
			return err
		}
	}
	return nil
}

// tpuFeeds returns the feeds of a call of steps. After the last step, everything is zero.
func tpuFeeds(p *compose.TPUTrain, steps []StepInput) (feedSet, error) {
	replicas, stacked := p.Feeds.Replicas, int64(p.Feeds.Steps)
	scalars := make([]float32, p.Feeds.Steps*len(p.Scalars))
	seeds := make([]int64, 2*replicas*p.Feeds.Steps)
	batches := make([][][]Feature, replicas)
	for k, in := range steps {
		if in.Drawn != nil {
			return nil, fault.Usagef("the workers of a TPU do not read the features themselves; set StepInput.Batches, not Drawn")
		}
		if len(in.Batches) != replicas {
			return nil, fault.Usagef("%d micro-batches given; expected %d, one for each core of the TPU: it does not accumulate gradients", len(in.Batches), replicas)
		}
		values, err := scalarValues(p.Scalars, in.Scalars)
		if err != nil {
			return nil, err
		}
		copy(scalars[k*len(values):], values)
		for i, batch := range in.Batches {
			batches[i] = append(batches[i], batch)
			own := microSeed(in.Seed, i)
			copy(seeds[2*(i*p.Feeds.Steps+k):], own[:])
		}
	}
	specs, err := featureSpecs(p.Feeds, batches)
	if err != nil {
		return nil, err
	}
	dims := func(of ...int64) []int64 {
		if stacked == 1 {
			return of
		}
		return append([]int64{stacked}, of...)
	}
	return tensors(append(specs,
		spec{p.ScalarFeed, tf.Float, dims(int64(len(p.Scalars))), [][]byte{raw(scalars)}},
		spec{p.Seeds, tf.Int64, append([]int64{int64(replicas)}, dims(2)...), [][]byte{raw(seeds)}},
		spec{p.Count, tf.Int32, nil, [][]byte{raw([]int32{int32(len(steps))})}}))
}

// featureSpecs says how to feed the features of the replicas' steps, batches[replica][step].
func featureSpecs(p compose.TPUFeeds, batches [][][]Feature) ([]spec, error) {
	l := newLaid(len(p.Kinds))
	none := make([][]byte, len(p.Kinds)) // values of a step that is not made
	for k, kind := range p.Kinds {
		none[k] = make([]byte, p.Sizes[k]*int64(dataset.DType(kind.DType).Size()))
	}
	for _, steps := range batches {
		for _, batch := range steps {
			if _, _, err := l.add(p.Features, batch); err != nil {
				return nil, err
			}
			if err := checkShapes(p, batch); err != nil {
				return nil, err
			}
		}
		for range p.Steps - len(steps) {
			for k := range none {
				l.values[k] = append(l.values[k], none[k])
			}
		}
	}
	specs := l.specs(p.Kinds, p.Values)
	for k := range specs {
		specs[k].shape = feedShape(p, p.Sizes[k])
	}
	return specs, nil
}

// tpuResults returns the results of a call of steps. Each has an equal part of the time of the call.
func tpuResults(p *compose.TPUTrain, out []*tf.Tensor, steps int, took time.Duration) ([]Result, error) {
	made := 1
	if !p.Made.IsZero() {
		made = int(out[len(p.Fetches)].Value().(int32))
	}
	if made < 1 || made > steps {
		return nil, fmt.Errorf("a call of %d steps made %d; expected 1 to %d", steps, made, steps)
	}
	values := make([][]float64, len(p.Fetches)) // sums, norm, applied, iterations
	for i := range values {
		var err error
		if values[i], err = floats(out[i]); err != nil {
			return nil, fmt.Errorf("output %s: %w", p.Fetches[i], err)
		}
	}
	results := make([]Result, made)
	for k := range results {
		r := &results[k]
		r.GradientNorm, r.Applied, r.Iterations = values[1][k], values[2][k] != 0, int64(values[3][k])
		r.InSession = took / time.Duration(made)
		r.Sums = make(map[string][]float64, len(p.Sums))
		row := values[0][k*len(values[0])/p.Feeds.Steps:]
		for _, s := range p.Sums {
			r.Sums[s.Name], row = row[:s.Size:s.Size], row[s.Size:]
		}
	}
	return results, nil
}

// feedShape is the shape of a feed with so many values for a replica's step.
func feedShape(p compose.TPUFeeds, values int64) []int64 {
	if p.Steps == 1 {
		return []int64{int64(p.Replicas), values}
	}
	return []int64{int64(p.Replicas), int64(p.Steps), values}
}
