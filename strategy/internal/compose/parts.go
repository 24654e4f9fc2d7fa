package compose

import (
	"cmp"
	"fmt"
	"slices"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
)

// share divides the optimizer's work and slots among the replicas. A variable of more than an eighth of an equal share
// is divided by rows, so that each replica has as many. The others are given away whole, the largest first, each
// to the replica that has the fewest elements so far.
func (c *composer) share() {
	replicas, total := int64(len(c.replicas)), int64(0)
	for _, v := range c.trained {
		total += elements(v.Shape)
	}
	c.owners, c.parts = make(map[string]int), make(map[string][]int64)
	var whole []graphs.Variable
	loads := make([]int64, replicas)
	for _, v := range c.trained {
		if !c.divisible(v) || 8*replicas*elements(v.Shape) <= total {
			whole = append(whole, v)
			continue
		}
		for i := range replicas + 1 {
			c.parts[v.Name] = append(c.parts[v.Name], i*v.Shape[0]/replicas)
		}
		for i := range loads {
			loads[i] += elements(c.partOf(v.Name, v.Shape, i))
		}
	}
	slices.SortStableFunc(whole, func(a, b graphs.Variable) int { return cmp.Compare(elements(b.Shape), elements(a.Shape)) })
	for _, v := range whole {
		least := slices.Index(loads, slices.Min(loads))
		loads[least] += elements(v.Shape)
		c.owners[v.Name] = least
	}
}

// divisible reports whether rows of a variable can be updated by themselves. Lanes share all slots, groups
// of variables (Layout.Together) are vectors, and slots in files are of one process.
func (c *composer) divisible(v graphs.Variable) bool {
	return !c.Shared && c.Together == 0 && c.Offload == "" && !v.Assigned && c.export.Contract.Updates[v.Update].Elementwise &&
		len(v.Shape) > 0 && v.Shape[0] >= int64(len(c.replicas))
}

// partOf returns the shape of a replica's part of a variable, or of one of its slots: all of it if it is not
// divided.
func (c *composer) partOf(variable string, shape []int64, replica int) []int64 {
	at := c.parts[variable]
	if at == nil {
		return shape
	}
	return append([]int64{at[replica+1] - at[replica]}, shape[1:]...)
}

// part adds the rows of a tensor that are a replica's part.
func (c *composer) part(name, variable string, tensor build.Ref, dtype dtpb.DataType, shape []int64, replica int) build.Ref {
	begin := make([]int64, len(shape))
	begin[0] = c.parts[variable][replica]
	return c.Node("Slice", name, []build.Ref{tensor, c.Int64s(name+"/begin", begin), c.Int64s(name+"/size", c.partOf(variable, shape, replica))},
		build.Type("T", dtype), build.Type("Index", int64Type))
}

// assembled adds the whole tensor of its parts.
func (c *composer) assembled(name string, parts []build.Ref, dtype dtpb.DataType) build.Ref {
	return c.Node("ConcatV2", name, append(slices.Clone(parts), c.Int32(name+"/axis", 0)),
		build.Type("T", dtype), build.Int("N", int64(len(parts))), build.Type("Tidx", int32Type))
}

// partSums adds, on each replica, the sum of all replicas' gradients of its part of a variable.
func (c *composer) partSums(prefix string, v graphs.Variable, m []made) []build.Ref {
	of := func(r *replica, gradient build.Ref, i int) build.Ref {
		return c.part(fmt.Sprintf("%s%spart/%d/%s", r.prefix, prefix, i, v.Name), v.Name, gradient, float32Type, v.Shape, i)
	}
	var rows []build.Ref // as long as they are few, they cost less than parts
	if v.Rows != "" {
		for i, r := range c.replicas {
			c.OnDevice(r.device)
			rows = append(rows, c.rowsOf(r.prefix+prefix+"rows/"+v.Name, v, m[i].grads[v.Name]))
		}
	}
	var out []build.Ref
	for i, owner := range c.replicas {
		name := owner.prefix + prefix + "reduced/" + v.Name
		if rows != nil {
			c.OnDevice(owner.device)
			out = append(out, of(owner, c.withRows(name, v, m[i].grads[v.Name], c.sum(name, rows)), i))
			continue
		}
		var parts []build.Ref
		for k, r := range c.replicas {
			c.OnDevice(r.device)
			parts = append(parts, of(r, m[k].grads[v.Name], i))
		}
		c.OnDevice(owner.device)
		out = append(out, c.sum(name, parts))
	}
	return out
}

// updateParts makes each replica update its part of a variable, in a temporary variable, and send it to the
// others. It returns the nodes that change variables, by replica.
func (c *composer) updateParts(prefix string, v graphs.Variable, grads []build.Ref, d decision) []build.Ref {
	var parts, done []build.Ref
	for i, r := range c.replicas {
		c.OnDevice(r.device)
		name := r.prefix + prefix + "part/" + v.Name
		temporary := c.Variable(name, float32Type, c.partOf(v.Name, v.Shape, i))
		old := c.part(name+"/old", v.Name, c.Read(name+"/whole", r.handles[v.Name], float32Type, d.scale), float32Type, v.Shape, i)
		set := c.Assign(name+"/begin", temporary, old, float32Type)
		begun := c.Node("Identity", name+"/begun", []build.Ref{temporary, set.After()}, build.Type("T", resourceType))
		updated := c.updateOf(r.prefix+prefix, r, v, begun, grads[i], d)
		made := c.Read(name+"/made", begun, float32Type, updated)
		freed := c.Node("DestroyResourceOp", name+"/freed", []build.Ref{temporary, made.After()}, build.Bool("ignore_lookup_error", false))
		parts = append(parts, c.Node("Identity", name+"/value", []build.Ref{made, freed.After()}, build.Type("T", float32Type)))
	}
	for _, r := range c.replicas {
		c.OnDevice(r.device)
		value := c.assembled(r.prefix+prefix+"updated/"+v.Name, parts, float32Type)
		taken := c.Assign(r.prefix+prefix+"take/"+v.Name, r.handles[v.Name], value, float32Type)
		done = append(done, c.average(r.prefix+prefix, r, v, taken, d.average))
	}
	return done
}
