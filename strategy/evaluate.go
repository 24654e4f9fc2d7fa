package strategy

import (
	"context"
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// Evaluate implements Strategy.
func (m *Model) Evaluate(ctx context.Context, features []Feature) (map[string][]float64, error) {
	return m.onReplica(ctx, m.plan.Evaluate, features)
}

// Predict implements Strategy.
func (m *Model) Predict(ctx context.Context, features []Feature) (map[string][]float64, error) {
	return m.onReplica(ctx, m.plan.Predict, features)
}

// onReplica calls a function on the replica with the fewest calls in flight.
func (m *Model) onReplica(ctx context.Context, plans []*compose.Call, features []Feature) (map[string][]float64, error) {
	m.mu.Lock()
	replica := slices.Index(m.calls, slices.Min(m.calls))
	m.calls[replica]++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.calls[replica]--
		m.mu.Unlock()
	}()
	p := plans[replica]
	feeds, err := feed(p.Feeds, [][]Feature{features})
	if err != nil {
		return nil, err
	}
	out, err := m.session.run(ctx, feeds, p.Fetches)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	values := make(map[string][]float64, len(out))
	for i, name := range p.Outputs {
		if values[name], err = floats(out[i]); err != nil {
			return nil, fmt.Errorf("%s: output %s: %w", p.Name, name, err)
		}
	}
	return values, nil
}
