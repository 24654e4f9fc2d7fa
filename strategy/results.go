package strategy

import (
	"context"
	"fmt"

	tf "github.com/wamuir/graft/tensorflow"
)

// Results implements Strategy. It runs on the host of the first replica.
func (m *Model) Results(ctx context.Context, sums map[string][]float64) (map[string]float64, error) {
	p := m.plan.Results
	if p == nil {
		return nil, nil
	}
	var specs []spec
	for i, name := range p.Sums {
		sum, ok := sums[name]
		if !ok || len(sum) != p.Sizes[i] {
			return nil, fmt.Errorf("results: the sum %s has %d values; expected %d", name, len(sum), p.Sizes[i])
		}
		values := make([]float32, len(sum))
		for j, v := range sum {
			values[j] = float32(v)
		}
		specs = append(specs, spec{p.Feeds[i], tf.Float, []int64{int64(len(values))}, [][]byte{raw(values)}})
	}
	feeds, err := tensors(specs)
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	out, err := m.session.run(ctx, feeds, p.Fetches)
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	metrics := make(map[string]float64, len(out))
	for i, name := range p.Metrics {
		metrics[name] = float64(out[i].Value().(float32))
	}
	return metrics, nil
}
