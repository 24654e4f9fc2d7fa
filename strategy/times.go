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

// tally sums the times of a step's calls for every replica.
type tally []Times

// take adds the clock readings at the front of a call's outputs and returns the other outputs. A
// replica has readings for the start and the last gradient of a micro-batch and, if the call
// updates variables, for the end of the reduction and of the update.
func (t tally) take(out []*tf.Tensor) ([]*tf.Tensor, error) {
	for i := range t {
		at, ok := out[i].Value().([]float64)
		if !ok {
			return nil, fmt.Errorf("the clock of replica %d has dtype %v; expected float64", i, out[i].DataType())
		}
		if err := t.add(i, at); err != nil {
			return nil, err
		}
	}
	return out[len(t):], nil
}

// add adds a replica's clock readings.
func (t tally) add(replica int, at []float64) error {
	if len(at) != 2 && len(at) != 4 {
		return fmt.Errorf("the clock of replica %d has %d readings; expected 2 or 4", replica, len(at))
	}
	t[replica].Compute += seconds(at[1] - at[0])
	if len(at) == 4 {
		t[replica].Reduce += seconds(at[2] - at[1])
		t[replica].Update += seconds(at[3] - at[2])
	}
	return nil
}

// seconds converts seconds to a duration. It returns 0 if the clock was set back.
func seconds(s float64) time.Duration { return max(0, time.Duration(s*float64(time.Second))) }

// took adds the times of a step to those of the model.
func (m *Model) took(t tally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range t {
		m.times[i].Compute += t[i].Compute
		m.times[i].Reduce += t[i].Reduce
		m.times[i].Update += t[i].Update
	}
}
