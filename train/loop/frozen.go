package loop

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// FrozenVariables are the names of the variables that a run does not train. A checkpoint has no slots
// for them, so its state says which they are.
type FrozenVariables []string

// State implements runner.Persistent.
func (f FrozenVariables) State() (json.RawMessage, error) { return json.Marshal([]string(f)) }

// Restore implements runner.Persistent. The run's params say which variables are frozen now.
func (f FrozenVariables) Restore(json.RawMessage) error { return nil }

// FrozenIn returns the variables that were frozen when a run's state was saved.
func FrozenIn(state []byte) (FrozenVariables, error) {
	run, err := runner.ParseRunState(state)
	if err != nil || run.Persistent[FrozenNames] == nil {
		return nil, err
	}
	var out FrozenVariables
	if err := json.Unmarshal(run.Persistent[FrozenNames], &out); err != nil {
		return nil, fmt.Errorf("frozen variables: %w", err)
	}
	return out, nil
}

// slotsOf returns the first values of slots of frozen variables, by name, or nil if one of the names is
// no such slot.
func (f FrozenVariables) slotsOf(c *graphs.Contract, names []string) (map[string]*tf.Tensor, error) {
	slots := make(map[string]graphs.Slot)
	for _, v := range c.Variables {
		for _, s := range c.SlotsOf(v) {
			if slices.Contains(f, v.Name) {
				slots[graphs.SlotName(s.Name, v.Name)] = s
			}
		}
	}
	out := make(map[string]*tf.Tensor)
	for _, name := range names {
		slot, ok := slots[name]
		if !ok {
			return nil, nil
		}
		var err error
		if out[name], err = filledTensor(slot.Shape, float32(slot.Initial)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// filledTensor returns a tensor of equal numbers.
func filledTensor(shape []int64, value float32) (*tf.Tensor, error) {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	one := make([]byte, 4)
	binary.NativeEndian.PutUint32(one, math.Float32bits(value))
	return tf.ReadTensor(tf.Float, shape, bytes.NewReader(bytes.Repeat(one, int(n))))
}
