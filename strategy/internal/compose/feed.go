package compose

import (
	"slices"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/flat"
)

// feed adds placeholders for a function's features and splits them among the replicas. It returns
// the nodes of the features of each replica.
func (c *composer) feed(name string, f *graphs.Function, replicas []*replica) (*Feeds, []map[string]build.Ref) {
	p := c.features(f)
	p.Replicas = len(replicas)
	length := p.layoutLength()

	c.OnDevice(replicas[0].host)
	n := int64(len(replicas))
	p.Layout = c.Placeholder(name+"/layout", int64Type, []int64{n, length})
	layouts := c.Node("Unpack", name+"/layouts", []build.Ref{p.Layout}, build.Int("num", n), build.Int("axis", 0), build.Type("T", int64Type))
	axis := c.Int32(name+"/axis", 0)
	var totals build.Ref
	if n > 1 {
		kinds := int64(len(p.Kinds))
		p.Totals = c.Placeholder(name+"/totals", int64Type, []int64{kinds, n})
		totals = c.Node("Unpack", name+"/totals/unpack", []build.Ref{p.Totals}, build.Int("num", kinds), build.Int("axis", 0), build.Type("T", int64Type))
	}
	values := make([][]build.Ref, len(replicas)) // by kind
	for k, kind := range p.Kinds {
		if kind.From == kind.To {
			p.Values = append(p.Values, build.Ref{})
			for i := range replicas {
				values[i] = append(values[i], build.Ref{})
			}
			continue
		}
		t := typeOf(kind.DType)
		placeholder := c.Placeholder(name+"/"+kind.DType, t, []int64{-1})
		p.Values = append(p.Values, placeholder)
		if n == 1 {
			values[0] = append(values[0], placeholder)
			continue
		}
		split := c.Node("SplitV", name+"/"+kind.DType+"/split", []build.Ref{placeholder, totals.Output(k), axis},
			build.Int("num_split", n), build.Type("T", t), build.Type("Tlen", int64Type))
		for i := range replicas {
			values[i] = append(values[i], split.Output(i))
		}
	}

	out := make([]map[string]build.Ref, len(replicas))
	for i, r := range replicas {
		own := name
		if n > 1 {
			own = r.prefix + name + "/own"
		}
		out[i] = c.cut(own, p, r, values[i], layouts.Output(i))
	}
	return p, out
}

// features returns the features that a function takes, kind by kind.
func (c *composer) features(f *graphs.Function) *Feeds {
	p := new(Feeds)
	for _, feature := range flat.Sort(c.export.Contract.Features, func(f graphs.Feature) string { return f.DType }) {
		if slices.ContainsFunc(f.Inputs, func(a graphs.Arg) bool { return a.Name == feature.Name }) {
			p.Features = append(p.Features, feature)
		}
	}
	p.Kinds = flat.Kinds(Flat(p.Features))
	return p
}

// Flat returns features as package flat describes them.
func Flat(features []graphs.Feature) []flat.Feature {
	out := make([]flat.Feature, len(features))
	for i, f := range features {
		out[i] = flat.Feature{Name: f.Name, DType: f.DType, Axes: len(f.Axes)}
	}
	return out
}

// cut splits a replica's flat values, by kind, into features according to its layout. It returns the nodes
// of the features.
func (c *composer) cut(own string, p *Feeds, r *replica, values []build.Ref, layout build.Ref) map[string]build.Ref {
	var parts []int64
	for _, kind := range p.Kinds {
		parts = append(parts, int64(kind.To-kind.From))
	}
	for _, feature := range p.Features {
		parts = append(parts, int64(len(feature.Axes)))
	}
	c.OnDevice(r.host)
	out := make(map[string]build.Ref)
	axis := c.Int32(own+"/axis", 0)
	layouts := c.Node("SplitV", own+"/layout/split", []build.Ref{layout, c.Int64s(own+"/layout/sizes", parts), axis},
		build.Int("num_split", int64(len(parts))), build.Type("T", int64Type), build.Type("Tlen", int64Type))
	for k, kind := range p.Kinds {
		if kind.From == kind.To {
			continue
		}
		t := typeOf(kind.DType)
		split := c.Node("SplitV", own+"/"+kind.DType+"/features", []build.Ref{values[k], layouts.Output(k), axis},
			build.Int("num_split", int64(kind.To-kind.From)), build.Type("T", t), build.Type("Tlen", int64Type))
		for j := kind.From; j < kind.To; j++ {
			feature := p.Features[j].Name
			out[feature] = c.Node("Reshape", own+"/"+feature, []build.Ref{split.Output(j - kind.From), layouts.Output(len(p.Kinds) + j)},
				build.Type("T", t), build.Type("Tshape", int64Type))
		}
	}
	return out
}
