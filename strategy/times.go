package strategy

import (
	"fmt"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
)

// Times implements Strategy.
func (m *Model) Times() []Times {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Times(nil), m.times...)
}

// tally adds up what the calls of a step took on every replica.
type tally []Times

// take adds the clocks that stand before a call's other results, and returns these. A
// replica's are those of a micro-batch, its beginning and its last gradient, with those
// of the update, or without.
func (t tally) take(out []*tf.Tensor) ([]*tf.Tensor, error) {
	for i := range t {
		at, ok := out[i].Value().([]float64)
		if !ok || len(at) != 2 && len(at) != 4 {
			return nil, fmt.Errorf("clock of replica %d: %v of shape %v", i, out[i].DataType(), out[i].Shape())
		}
		t[i].Compute += seconds(at[1] - at[0])
		if len(at) == 4 {
			t[i].Reduce += seconds(at[2] - at[1])
			t[i].Update += seconds(at[3] - at[2])
		}
	}
	return out[len(t):], nil
}

// seconds is a duration, none where a clock was put back.
func seconds(s float64) time.Duration { return max(0, time.Duration(s*float64(time.Second))) }

// took adds a step's times to the model's.
func (m *Model) took(t tally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range t {
		m.times[i].Compute += t[i].Compute
		m.times[i].Reduce += t[i].Reduce
		m.times[i].Update += t[i].Update
	}
}
