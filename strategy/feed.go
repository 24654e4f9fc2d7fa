package strategy

import (
	"fmt"
	"slices"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
)

// feedPlan says how the features of some replicas go into the graph: the numbers of
// all of them, one after the other, as one tensor of each dtype, and one that says
// where each begins and what shape it has.
type feedPlan struct {
	// features that are fed, those of int32 first.
	features []graphs.Feature
	int32s   int // how many are of int32
	replicas int
	// Placeholders, "" for none.
	//   ints, floats  all numbers, replica after replica, feature after feature
	//   layout        int64 [replicas, L]: the sizes of a replica's features, then their shapes
	//   totals        int64 [2, replicas]: how many numbers of each dtype a replica has
	ints, floats, layout, totals string
}

// feed adds what feeds the replicas with a function's features. It returns the
// nodes of the features for each replica.
func (c *composer) feed(name string, f *graphs.Function, replicas []*replica) (*feedPlan, []map[string]string) {
	p := c.features(f)
	p.replicas = len(replicas)
	length := p.layoutLength()

	c.OnDevice(replicas[0].host)
	n := int64(len(replicas))
	p.layout = c.Placeholder(name+"/layout", int64Type, []int64{n, length})
	layouts := c.Node("Unpack", name+"/layouts", []string{p.layout}, graphs.Int("num", n), graphs.Int("axis", 0), graphs.Type("T", int64Type))
	axis := c.Int32(name+"/axis", 0)
	var totals string
	if n > 1 {
		p.totals = c.Placeholder(name+"/totals", int64Type, []int64{2, n})
		totals = c.Node("Unpack", name+"/totals/unpack", []string{p.totals}, graphs.Int("num", 2), graphs.Int("axis", 0), graphs.Type("T", int64Type))
	}
	numbers := func(dtype string, t dtpb.DataType, kind, features int) (string, func(int) string) {
		if features == 0 {
			return "", func(int) string { return "" }
		}
		placeholder := c.Placeholder(name+"/"+dtype, t, []int64{-1})
		if n == 1 {
			return placeholder, func(int) string { return placeholder }
		}
		split := c.Node("SplitV", name+"/"+dtype+"/split", []string{placeholder, fmt.Sprintf("%s:%d", totals, kind), axis},
			graphs.Int("num_split", n), graphs.Type("T", t), graphs.Type("Tlen", int64Type))
		return placeholder, func(i int) string { return fmt.Sprintf("%s:%d", split, i) }
	}
	var ints, floats func(int) string
	p.ints, ints = numbers("int32", dtpb.DataType_DT_INT32, 0, p.int32s)
	p.floats, floats = numbers("float32", float32Type, 1, len(p.features)-p.int32s)

	out := make([]map[string]string, len(replicas))
	for i, r := range replicas {
		own := name
		if n > 1 {
			own = r.prefix + name + "/own"
		}
		out[i] = c.cut(own, p, r, ints(i), floats(i), fmt.Sprintf("%s:%d", layouts, i))
	}
	return p, out
}

// features plans the features that a function takes.
func (c *composer) features(f *graphs.Function) *feedPlan {
	p := new(feedPlan)
	for _, dtype := range []string{"int32", "float32"} {
		for _, feature := range c.export.Contract.Features {
			takes := slices.ContainsFunc(f.Inputs, func(a graphs.Arg) bool { return a.Name == feature.Name })
			if takes && feature.DType == dtype {
				p.features = append(p.features, feature)
			}
		}
		if dtype == "int32" {
			p.int32s = len(p.features)
		}
	}
	return p
}

// layoutLength is how many numbers a replica's layout has.
func (p *feedPlan) layoutLength() int64 {
	n := len(p.features)
	for _, feature := range p.features {
		n += len(feature.Axes)
	}
	return int64(n)
}

// cut adds what cuts a replica's features out of its numbers of each dtype by its
// layout, and returns their nodes.
func (c *composer) cut(own string, p *feedPlan, r *replica, ints, floats, layout string) map[string]string {
	parts := []int64{int64(p.int32s), int64(len(p.features) - p.int32s)}
	for _, feature := range p.features {
		parts = append(parts, int64(len(feature.Axes)))
	}
	c.OnDevice(r.host)
	out := make(map[string]string)
	axis := c.Int32(own+"/axis", 0)
	layouts := c.Node("SplitV", own+"/layout/split", []string{layout, c.Int64s(own+"/layout/sizes", parts), axis},
		graphs.Int("num_split", int64(len(parts))), graphs.Type("T", int64Type), graphs.Type("Tlen", int64Type))
	take := func(dtype string, t dtpb.DataType, kind, from, to int, all string) {
		if to == from {
			return
		}
		split := c.Node("SplitV", own+"/"+dtype+"/features", []string{all, fmt.Sprintf("%s:%d", layouts, kind), axis},
			graphs.Int("num_split", int64(to-from)), graphs.Type("T", t), graphs.Type("Tlen", int64Type))
		for j := from; j < to; j++ {
			feature := p.features[j].Name
			out[feature] = c.Node("Reshape", own+"/"+feature, []string{fmt.Sprintf("%s:%d", split, j-from), fmt.Sprintf("%s:%d", layouts, 2+j)},
				graphs.Type("T", t), graphs.Type("Tshape", int64Type))
		}
	}
	take("int32", dtpb.DataType_DT_INT32, 0, 0, p.int32s, ints)
	take("float32", float32Type, 1, p.int32s, len(p.features), floats)
	return out
}

// tensors makes the feeds of a batch per replica. Features that the function does
// not take are left out; one that it takes and the batch lacks is an error.
func (p *feedPlan) tensors(batches [][]Feature) (map[string]*tf.Tensor, error) {
	if len(batches) != p.replicas {
		return nil, fmt.Errorf("%d batches for %d replicas", len(batches), p.replicas)
	}
	var ints, floats [][]byte
	var counts [2]int64
	var layout []int64
	totals := make([]int64, 2*p.replicas)
	for i, batch := range batches {
		byName := make(map[string]*Feature, len(batch))
		for k := range batch {
			byName[batch[k].Name] = &batch[k]
		}
		var sizes, shapes []int64
		axes := make(map[string]*Feature)
		for j, want := range p.features {
			f := byName[want.Name]
			if f == nil {
				return nil, fmt.Errorf("the batch has no feature %s, which the graph takes", want.Name)
			}
			if err := check(f); err != nil {
				return nil, err
			}
			if len(f.Shape) != len(want.Axes) {
				return nil, fmt.Errorf("feature %s has shape %v; the graph takes %d axes", f.Name, f.Shape, len(want.Axes))
			}
			for k, axis := range want.Axes {
				first := axes[axis]
				if first == nil {
					axes[axis] = f
				} else if at := slices.Index(p.axesOf(first.Name), axis); first.Shape[at] != f.Shape[k] {
					return nil, fmt.Errorf("feature %s has shape %v, %s has %v; their %s must be the same", f.Name, f.Shape, first.Name, first.Shape, axis)
				}
				shapes = append(shapes, int64(f.Shape[k]))
			}
			kind, n := 0, int64(len(f.Int32))
			if j >= p.int32s {
				kind, n = 1, int64(len(f.Float32))
			}
			if n != int64(len(f.Int32)+len(f.Float32)) {
				return nil, fmt.Errorf("feature %s is not of the dtype that the graph takes", f.Name)
			}
			if kind == 0 {
				ints = append(ints, raw(f.Int32))
			} else {
				floats = append(floats, raw(f.Float32))
			}
			sizes = append(sizes, n)
			counts[kind] += n
			totals[kind*p.replicas+i] += n
		}
		layout = append(append(layout, sizes...), shapes...)
	}
	feeds := make(map[string]*tf.Tensor, 4)
	add := func(placeholder string, dtype tf.DataType, shape []int64, parts ...[]byte) error {
		if placeholder == "" {
			return nil
		}
		t, err := newTensor(dtype, shape, parts...)
		if err != nil {
			return fmt.Errorf("features: %w", err)
		}
		feeds[placeholder] = t
		return nil
	}
	replicas := int64(p.replicas)
	if err := add(p.ints, tf.Int32, counts[:1], ints...); err != nil {
		return nil, err
	}
	if err := add(p.floats, tf.Float, counts[1:], floats...); err != nil {
		return nil, err
	}
	if err := add(p.layout, tf.Int64, []int64{replicas, int64(len(layout)) / replicas}, raw(layout)); err != nil {
		return nil, err
	}
	if err := add(p.totals, tf.Int64, []int64{2, replicas}, raw(totals)); err != nil {
		return nil, err
	}
	return feeds, nil
}

func (p *feedPlan) axesOf(feature string) []string {
	i := slices.IndexFunc(p.features, func(f graphs.Feature) bool { return f.Name == feature })
	return p.features[i].Axes
}
