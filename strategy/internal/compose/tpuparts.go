package compose

import (
	"fmt"

	tpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/tpu"
)

// tpuParts is what the clusters of a TPU's graph share.
type tpuParts struct {
	layout     TPULayout
	assignment *tpu.Assignment
	host       string // of feeds
	export     *graphs.Export
	functions  int // added so far
}

// function returns a function of the export. The TPU compiles all of them, so none is compiled by
// itself.
func (t *tpuParts) function(name string) *graphs.Function {
	f := *t.export.Functions[name]
	f.XLA = false
	return &f
}

// name returns a name for a function that no function of an export has.
func (t *tpuParts) name(of string) string {
	t.functions++
	return fmt.Sprintf("gorbit_tpu_%s_%d", of, t.functions)
}

// handles returns the handles of a variable on the replicas.
func (t *tpuParts) handles(c *composer, variable string) []string {
	var out []string
	for _, r := range c.replicas {
		out = append(out, r.handles[variable])
	}
	return out
}

// feeds adds the placeholders of a function's features.
func (t *tpuParts) feeds(c *composer, name string, f *graphs.Function, steps int) TPUFeeds {
	features := c.features(f)
	p := TPUFeeds{Features: features.Features, Int32s: features.Int32s, Replicas: len(c.replicas), Steps: steps}
	for i, feature := range p.Features {
		shape := make([]int64, len(feature.Axes))
		for j, axis := range feature.Axes {
			shape[j] = t.layout.Axes[axis]
		}
		p.Shapes = append(p.Shapes, shape)
		if i < p.Int32s {
			p.IntValues += elements(shape)
		} else {
			p.FloatValues += elements(shape)
		}
	}
	c.OnDevice(t.host)
	add := func(kind string, dtype dtpb.DataType, values int64) string {
		if values == 0 {
			return ""
		}
		shape := []int64{int64(p.Replicas), values}
		if steps > 1 {
			shape = []int64{int64(p.Replicas), int64(steps), values}
		}
		return c.Placeholder(name+"/"+kind, dtype, shape)
	}
	p.Ints, p.Floats = add("int32", int32Type, p.IntValues), add("float32", float32Type, p.FloatValues)
	return p
}

// unpack divides a fed tensor among the replicas.
func (t *tpuParts) unpack(c *composer, name, fed string, dtype dtpb.DataType) []string {
	c.OnDevice(t.host)
	all := c.Node("Unpack", name, []string{fed}, build.Int("num", int64(len(c.replicas))), build.Int("axis", 0), build.Type("T", dtype))
	out := make([]string, len(c.replicas))
	for i := range out {
		out[i] = fmt.Sprintf("%s:%d", all, i)
	}
	return out
}

// inputs adds the features as inputs of a cluster.
func (t *tpuParts) inputs(c *composer, k *cluster, p TPUFeeds) stepInputs {
	var in stepInputs
	add := func(kind, fed string, dtype dtpb.DataType) string {
		if fed == "" {
			return ""
		}
		return k.input(k.name+"/input/"+kind, dtype, t.unpack(c, k.name+"/"+kind+"/replicas", fed, dtype)...)
	}
	in.ints, in.floats = add("int32", p.Ints, int32Type), add("float32", p.Floats, float32Type)
	return in
}

// stepInputs are the inputs of a replica's steps, or of one of them. "" means none.
type stepInputs struct {
	ints, floats, seed, scalars string
}

// of returns the inputs of step k.
func (in stepInputs) of(c *composer, k string) stepInputs {
	axis := c.Int32("own/axis", 0)
	row := func(name, all string, t dtpb.DataType) string {
		if all == "" {
			return ""
		}
		return c.Node("GatherV2", "own/"+name, []string{all, k, axis},
			build.Type("Tparams", t), build.Type("Tindices", int32Type), build.Type("Taxis", int32Type))
	}
	return stepInputs{row("ints", in.ints, int32Type), row("floats", in.floats, float32Type), row("seed", in.seed, int64Type), row("scalars", in.scalars, float32Type)}
}

// tpuCut splits a replica's values of one step into features.
func (c *composer) tpuCut(prefix string, p *TPUFeeds, in stepInputs) map[string]string {
	out := make(map[string]string)
	take := func(dtype string, t dtpb.DataType, from, to int, all string) {
		if to == from {
			return
		}
		var sizes []int64
		for _, shape := range p.Shapes[from:to] {
			sizes = append(sizes, elements(shape))
		}
		name := prefix + "features/" + dtype
		split := c.Node("SplitV", name, []string{all, c.Int64s(name+"/sizes", sizes), c.Int32(name+"/axis", 0)},
			build.Int("num_split", int64(to-from)), build.Type("T", t), build.Type("Tlen", int64Type))
		for i := from; i < to; i++ {
			feature := p.Features[i].Name
			out[feature] = c.Node("Reshape", prefix+"features/"+feature, []string{fmt.Sprintf("%s:%d", split, i-from), c.Int64s(prefix+"features/"+feature+"/shape", p.Shapes[i])},
				build.Type("T", t), build.Type("Tshape", int64Type))
		}
	}
	take("int32", int32Type, 0, p.Int32s, in.ints)
	take("float32", float32Type, p.Int32s, len(p.Features), in.floats)
	return out
}

// zeros adds a constant of zeros, or of true.
func (c *composer) zeros(name string, dtype dtpb.DataType, shape []int64, yes bool) string {
	value := &tpb.TensorProto{Dtype: dtype, TensorShape: new(tspb.TensorShapeProto)}
	for _, d := range shape {
		value.TensorShape.Dim = append(value.TensorShape.Dim, &tspb.TensorShapeProto_Dim{Size: d})
	}
	switch dtype { // one value stands for all
	case float32Type:
		value.FloatVal = []float32{0}
	case int64Type:
		value.Int64Val = []int64{0}
	case boolType:
		value.BoolVal = []bool{yes}
	}
	return c.Const(name, value)
}
