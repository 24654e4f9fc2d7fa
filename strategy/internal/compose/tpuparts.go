package compose

import (
	"fmt"
	"slices"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/flat"
	"github.com/gorbit-ml/gorbit/tpu"
)

// tpuParts is what the clusters of a TPU's graph share.
type tpuParts struct {
	layout     TPULayout
	assignment *tpu.Assignment
	host       string // of feeds
	export     *graphs.Export
	functions  int // added so far

	// axes are those of the programs that are being added, and suffix belongs to their names.
	axes   map[string]int64
	suffix string
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
func (t *tpuParts) handles(c *composer, variable string) []build.Ref {
	var out []build.Ref
	for _, r := range c.replicas {
		out = append(out, r.handles[variable])
	}
	return out
}

// feeds adds the placeholders of a function's features.
func (t *tpuParts) feeds(c *composer, name string, f *graphs.Function, steps int) TPUFeeds {
	features := c.features(f)
	p := TPUFeeds{Features: features.Features, Kinds: features.Kinds, Replicas: len(c.replicas), Steps: steps}
	for _, feature := range p.Features {
		shape := slices.Clone(feature.Shape)
		for j, axis := range feature.Axes {
			if shape[j] < 0 {
				shape[j] = t.axes[axis]
			}
		}
		p.Shapes = append(p.Shapes, shape)
	}
	for _, kind := range p.Kinds {
		size := int64(0)
		for _, shape := range p.Shapes[kind.From:kind.To] {
			size += elements(shape)
		}
		p.Sizes = append(p.Sizes, size)
	}
	c.OnDevice(t.host)
	add := func(kind string, dtype dtpb.DataType, values int64) build.Ref {
		if values == 0 {
			return build.Ref{}
		}
		shape := []int64{int64(p.Replicas), values}
		if steps > 1 {
			shape = []int64{int64(p.Replicas), int64(steps), values}
		}
		return c.Placeholder(name+"/"+kind, dtype, shape)
	}
	for k, kind := range p.Kinds {
		p.Values = append(p.Values, add(kind.DType, typeOf(kind.DType), p.Sizes[k]))
	}
	return p
}

// unpack divides a fed tensor among the replicas.
func (t *tpuParts) unpack(c *composer, name string, fed build.Ref, dtype dtpb.DataType) []build.Ref {
	c.OnDevice(t.host)
	all := c.Node("Unpack", name, []build.Ref{fed}, build.Int("num", int64(len(c.replicas))), build.Int("axis", 0), build.Type("T", dtype))
	out := make([]build.Ref, len(c.replicas))
	for i := range out {
		out[i] = all.Output(i)
	}
	return out
}

// inputs adds the features as inputs of a cluster.
func (t *tpuParts) inputs(c *composer, k *cluster, p TPUFeeds) stepInputs {
	var in stepInputs
	add := func(kind string, fed build.Ref, dtype dtpb.DataType) build.Ref {
		if fed.IsZero() {
			return build.Ref{}
		}
		return k.input(k.name+"/input/"+kind, dtype, t.unpack(c, k.name+"/"+kind+"/replicas", fed, dtype)...)
	}
	for k, kind := range p.Kinds {
		in.values = append(in.values, add(kind.DType, p.Values[k], typeOf(kind.DType)))
	}
	return in
}

// stepInputs are the inputs of a replica's steps, or of one of them. The zero Ref means none.
type stepInputs struct {
	values        []build.Ref // of the features, by kind
	seed, scalars build.Ref
}

// loopName returns the name of the argument of a loop with the values of a kind.
func loopName(kind flat.Kind) string {
	switch kind.DType {
	case "int32":
		return "ints"
	case "float32":
		return "floats"
	}
	return kind.DType + "s"
}

// of returns the inputs of step k.
func (in stepInputs) of(c *composer, kinds []flat.Kind, k build.Ref) stepInputs {
	axis := c.Int32("own/axis", 0)
	row := func(name string, all build.Ref, t dtpb.DataType) build.Ref {
		if all.IsZero() {
			return build.Ref{}
		}
		return c.Node("GatherV2", "own/"+name, []build.Ref{all, k, axis},
			build.Type("Tparams", t), build.Type("Tindices", int32Type), build.Type("Taxis", int32Type))
	}
	var own stepInputs
	for i, kind := range kinds {
		own.values = append(own.values, row(loopName(kind), in.values[i], typeOf(kind.DType)))
	}
	own.seed, own.scalars = row("seed", in.seed, int64Type), row("scalars", in.scalars, float32Type)
	return own
}

// tpuCut splits a replica's values of one step into features.
func (c *composer) tpuCut(prefix string, p *TPUFeeds, in stepInputs) map[string]build.Ref {
	out := make(map[string]build.Ref)
	take := func(dtype string, t dtpb.DataType, from, to int, all build.Ref) {
		if to == from {
			return
		}
		var sizes []int64
		for _, shape := range p.Shapes[from:to] {
			sizes = append(sizes, elements(shape))
		}
		name := prefix + "features/" + dtype
		split := c.Node("SplitV", name, []build.Ref{all, c.Int64s(name+"/sizes", sizes), c.Int32(name+"/axis", 0)},
			build.Int("num_split", int64(to-from)), build.Type("T", t), build.Type("Tlen", int64Type))
		for i := from; i < to; i++ {
			feature := p.Features[i].Name
			out[feature] = c.Node("Reshape", prefix+"features/"+feature, []build.Ref{split.Output(i - from), c.Int64s(prefix+"features/"+feature+"/shape", p.Shapes[i])},
				build.Type("T", t), build.Type("Tshape", int64Type))
		}
	}
	for k, kind := range p.Kinds {
		take(kind.DType, typeOf(kind.DType), kind.From, kind.To, in.values[k])
	}
	return out
}
