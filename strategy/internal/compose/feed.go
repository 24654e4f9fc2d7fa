package compose

import (
	"fmt"
	"slices"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
)

// feed adds placeholders for a function's features and splits them among the replicas. It returns
// the nodes of the features of each replica.
func (c *composer) feed(name string, f *graphs.Function, replicas []*replica) (*Feeds, []map[string]string) {
	p := c.features(f)
	p.Replicas = len(replicas)
	length := p.layoutLength()

	c.OnDevice(replicas[0].host)
	n := int64(len(replicas))
	p.Layout = c.Placeholder(name+"/layout", int64Type, []int64{n, length})
	layouts := c.Node("Unpack", name+"/layouts", []string{p.Layout}, build.Int("num", n), build.Int("axis", 0), build.Type("T", int64Type))
	axis := c.Int32(name+"/axis", 0)
	var totals string
	if n > 1 {
		p.Totals = c.Placeholder(name+"/totals", int64Type, []int64{2, n})
		totals = c.Node("Unpack", name+"/totals/unpack", []string{p.Totals}, build.Int("num", 2), build.Int("axis", 0), build.Type("T", int64Type))
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
			build.Int("num_split", n), build.Type("T", t), build.Type("Tlen", int64Type))
		return placeholder, func(i int) string { return fmt.Sprintf("%s:%d", split, i) }
	}
	var ints, floats func(int) string
	p.Ints, ints = numbers("int32", dtpb.DataType_DT_INT32, 0, p.Int32s)
	p.Floats, floats = numbers("float32", float32Type, 1, len(p.Features)-p.Int32s)

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

// features returns the features that a function takes, with those of int32 first.
func (c *composer) features(f *graphs.Function) *Feeds {
	p := new(Feeds)
	for _, dtype := range []string{"int32", "float32"} {
		for _, feature := range c.export.Contract.Features {
			takes := slices.ContainsFunc(f.Inputs, func(a graphs.Arg) bool { return a.Name == feature.Name })
			if takes && feature.DType == dtype {
				p.Features = append(p.Features, feature)
			}
		}
		if dtype == "int32" {
			p.Int32s = len(p.Features)
		}
	}
	return p
}

// cut splits a replica's flat values into features according to its layout. It returns the nodes
// of the features.
func (c *composer) cut(own string, p *Feeds, r *replica, ints, floats, layout string) map[string]string {
	parts := []int64{int64(p.Int32s), int64(len(p.Features) - p.Int32s)}
	for _, feature := range p.Features {
		parts = append(parts, int64(len(feature.Axes)))
	}
	c.OnDevice(r.host)
	out := make(map[string]string)
	axis := c.Int32(own+"/axis", 0)
	layouts := c.Node("SplitV", own+"/layout/split", []string{layout, c.Int64s(own+"/layout/sizes", parts), axis},
		build.Int("num_split", int64(len(parts))), build.Type("T", int64Type), build.Type("Tlen", int64Type))
	take := func(dtype string, t dtpb.DataType, kind, from, to int, all string) {
		if to == from {
			return
		}
		split := c.Node("SplitV", own+"/"+dtype+"/features", []string{all, fmt.Sprintf("%s:%d", layouts, kind), axis},
			build.Int("num_split", int64(to-from)), build.Type("T", t), build.Type("Tlen", int64Type))
		for j := from; j < to; j++ {
			feature := p.Features[j].Name
			out[feature] = c.Node("Reshape", own+"/"+feature, []string{fmt.Sprintf("%s:%d", split, j-from), fmt.Sprintf("%s:%d", layouts, 2+j)},
				build.Type("T", t), build.Type("Tshape", int64Type))
		}
	}
	take("int32", dtpb.DataType_DT_INT32, 0, 0, p.Int32s, ints)
	take("float32", float32Type, 1, p.Int32s, len(p.Features), floats)
	return out
}
