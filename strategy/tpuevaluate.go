package strategy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// Evaluate implements Strategy for a batch of one core. Calls at the same time run together, one on
// each core.
func (m *TPU) Evaluate(ctx context.Context, features []Feature) (map[string][]float64, error) {
	shape := m.shapeOf(features)
	return m.gather(ctx, &m.evaluate[shape], m.calls(shape).Evaluate, features)
}

// Predict implements Strategy for a batch of one core. Calls at the same time run together, one on
// each core.
func (m *TPU) Predict(ctx context.Context, features []Feature) (map[string][]float64, error) {
	return m.gather(ctx, &m.predict, m.plan.TPU.Predict, features)
}

// EvaluateAll evaluates several batches of one shape at once, at most one for each core, and returns
// the sums of all of them. Outputs under graphs.EachPrefix are joined in the order of the batches.
func (m *TPU) EvaluateAll(ctx context.Context, batches [][]Feature) (map[string][]float64, error) {
	if n := m.runtime.MicroBatches; len(batches) == 0 || len(batches) > n {
		return nil, fault.Usagef("%d batches given; expected 1 to %d, the number of cores in use", len(batches), n)
	}
	parts, err := m.onCores(ctx, m.calls(m.shapeOf(batches[0])).Evaluate, batches)
	if err != nil {
		return nil, err
	}
	for _, part := range parts[1:] {
		for name, values := range part {
			if strings.HasPrefix(name, graphs.EachPrefix) {
				parts[0][name] = append(parts[0][name], values...)
				continue
			}
			for i, v := range values {
				parts[0][name][i] += v
			}
		}
	}
	return parts[0], nil
}

// gathering holds the calls that wait for a free TPU.
type gathering struct {
	mu      sync.Mutex
	waiting []*pendingCall
	running bool
}

// pendingCall is a call of a function with one batch.
type pendingCall struct {
	features []Feature
	done     chan struct{}
	values   map[string][]float64
	err      error
}

// gather makes a call together with those that wait at the same time. The first of them lends its
// context to all.
func (m *TPU) gather(ctx context.Context, g *gathering, p *compose.TPUCall, features []Feature) (map[string][]float64, error) {
	if _, err := featureSpecs(p.Feeds, [][][]Feature{{features}}); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err) // of this call, not of those next to it
	}
	call := &pendingCall{features: features, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, call)
	if !g.running {
		g.running = true
		go m.drain(ctx, g, p)
	}
	g.mu.Unlock()
	<-call.done // a program that hangs is given up by the session
	return call.values, call.err
}

// drain makes calls until none waits.
func (m *TPU) drain(ctx context.Context, g *gathering, p *compose.TPUCall) {
	for {
		g.mu.Lock()
		n := min(len(g.waiting), m.runtime.MicroBatches)
		calls := slices.Clone(g.waiting[:n])
		g.waiting = slices.Delete(g.waiting, 0, n)
		g.running = n > 0
		g.mu.Unlock()
		if n == 0 {
			return
		}
		batches := make([][]Feature, n)
		for i, call := range calls {
			batches[i] = call.features
		}
		values, err := m.onCores(ctx, p, batches)
		for i, call := range calls {
			if call.err = err; err == nil {
				call.values = values[i]
			}
			close(call.done)
		}
	}
}

// onCores calls a function with a batch on each of the first cores, and returns the outputs of each.
// The other cores compute the first batch again: all run the same program.
func (m *TPU) onCores(ctx context.Context, p *compose.TPUCall, batches [][]Feature) ([]map[string][]float64, error) {
	own := make([][][]Feature, p.Feeds.Replicas)
	for i := range own {
		own[i] = [][]Feature{batches[0]}
		if i < len(batches) {
			own[i] = [][]Feature{batches[i]}
		}
	}
	specs, err := featureSpecs(p.Feeds, own)
	if err != nil {
		return nil, err
	}
	feeds, err := tensors(specs)
	if err != nil {
		return nil, err
	}
	m.program.Lock()
	// All cores' outputs are fetched, so that there is one program for any number of batches.
	out, err := m.run(ctx, feeds, slices.Concat(p.Fetches...))
	m.program.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	values := make([]map[string][]float64, len(batches))
	for i := range values {
		values[i] = make(map[string][]float64, len(p.Outputs))
		for j, name := range p.Outputs {
			if values[i][name], err = floats(out[i*len(p.Outputs)+j]); err != nil {
				return nil, fmt.Errorf("%s: output %s: %w", p.Name, name, err)
			}
		}
	}
	return values, nil
}
