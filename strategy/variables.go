package strategy

import (
	"context"
	"fmt"
	"maps"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// Variables implements Strategy.
func (m *Model) Variables() []VariableSpec {
	out := make([]VariableSpec, len(m.plan.Variables))
	for i, v := range m.plan.Variables {
		out[i] = specOf(v)
	}
	return out
}

// specOf describes a variable of a plan. The dtypes of TensorFlow's C API have the same numbers as
// those of its protobuf messages.
func specOf(v compose.Variable) VariableSpec {
	return VariableSpec{Name: v.Name, DType: tf.DataType(v.DType), Shape: v.Shape, Slot: v.Slot, Offloaded: v.Offloaded}
}

// Read implements Strategy.
func (m *Model) Read(ctx context.Context, names ...string) ([]*tf.Tensor, error) {
	fetches := make([]build.Ref, len(names))
	for i, name := range names {
		reads := m.plan.Reads[name]
		if len(reads) == 0 {
			return nil, fmt.Errorf("variable %s not found in the graph", name)
		}
		fetches[i] = reads[0]
	}
	out, err := m.session.run(ctx, nil, fetches)
	if err != nil {
		return nil, fmt.Errorf("read variables: %w", err)
	}
	return out, nil
}

// Assign implements Strategy.
func (m *Model) Assign(ctx context.Context, values map[string]*tf.Tensor) error {
	names := slices.Sorted(maps.Keys(values))
	fed := make(feedSet, len(values))
	var targets []build.Ref
	for _, name := range names {
		a, ok := m.plan.Assigns[name]
		if !ok {
			return fmt.Errorf("variable %s not found in the graph", name)
		}
		spec := specOf(a.Variable)
		if t := values[name]; t.DataType() != spec.DType || !slices.Equal(t.Shape(), spec.Shape) && len(spec.Shape)+len(t.Shape()) > 0 {
			return fmt.Errorf("the value for variable %s has dtype %d and shape %v; expected %d and %v", name, t.DataType(), t.Shape(), spec.DType, spec.Shape)
		}
		fed[a.Value] = values[name]
		targets = append(targets, a.Assign)
	}
	if err := m.session.assign(ctx, fed, targets, names); err != nil {
		return fmt.Errorf("assign variables: %w", err)
	}
	if t := values[m.export.Contract.Optimizer.Iterations]; t != nil {
		m.updates = t.Value().(int64)
	}
	return nil
}
