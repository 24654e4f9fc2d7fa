package strategy

import (
	"context"
	"maps"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"
)

// maxMessage is how many bytes of values a call of a TPU carries, unless a single value is larger.
// TensorFlow refuses messages of 2 GiB and more.
const maxMessage = 512 << 20

// Read implements Strategy, in several calls if the values are large.
func (m *TPU) Read(ctx context.Context, names ...string) ([]*tf.Tensor, error) {
	var out []*tf.Tensor
	for _, group := range m.groups(names, maxMessage) {
		values, err := m.Model.Read(ctx, group...)
		if err != nil {
			return nil, err
		}
		out = append(out, values...)
	}
	return out, nil
}

// Assign implements Strategy, in several calls if the values are large.
func (m *TPU) Assign(ctx context.Context, values map[string]*tf.Tensor) error {
	for _, group := range m.groups(slices.Sorted(maps.Keys(values)), maxMessage) {
		part := make(map[string]*tf.Tensor, len(group))
		for _, name := range group {
			part[name] = values[name]
		}
		if err := m.Model.Assign(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// groups divides variables, in their order, into groups of at most a given number of bytes.
func (m *TPU) groups(names []string, most int64) [][]string {
	bytes := make(map[string]int64, len(m.plan.Variables))
	for _, v := range m.plan.Variables {
		bytes[v.Name] = 8 // the largest dtype
		for _, d := range v.Shape {
			bytes[v.Name] *= d
		}
	}
	var out [][]string
	var size int64 // of the last group
	for _, name := range names {
		if size += bytes[name]; size > most || len(out) == 0 {
			out, size = append(out, nil), bytes[name]
		}
		out[len(out)-1] = append(out[len(out)-1], name)
	}
	return out
}
