package compose

import (
	"fmt"
	"math"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
)

// togetherBytes is Layout.Together of GPUs. While a group is updated, its device holds about ten
// tensors of this size.
const togetherBytes = 96 << 20

// group is a set of variables that one call updates: of several, as one vector. New values are made
// in temporary variables and chosen if the step is applied, so that nothing waits for the decision
// but on the device.
type group struct {
	name      string // begins those of its nodes
	variables []graphs.Variable
	gradient  build.Ref
}

// gather divides variables into groups, and joins their gradients.
func (c *composer) gather(prefix string, variables []graphs.Variable, grads map[string]build.Ref) []group {
	type kind struct {
		update      string
		rate, decay float64
	}
	var out []group
	open, sizes := make(map[kind]int), make(map[kind]int64)
	for _, v := range variables {
		k, n := kind{v.Update, v.LearningRate, v.Decay}, 4*elements(v.Shape)
		// A large variable need not be copied into a vector.
		alone := !c.export.Contract.Updates[v.Update].Elementwise || 2*n > c.Together
		if i, ok := open[k]; ok && !alone && sizes[k]+n <= c.Together {
			out[i].variables = append(out[i].variables, v)
			sizes[k] += n
			continue
		}
		if !alone {
			open[k], sizes[k] = len(out), n
		}
		out = append(out, group{name: fmt.Sprintf("%supdate/group/%d", prefix, len(out)), variables: []graphs.Variable{v}})
	}
	for i, g := range out {
		out[i].gradient = g.join(c, "gradient", func(v graphs.Variable) build.Ref { return grads[v.Name] })
	}
	return out
}

// gradients returns the gradients of groups.
func gradients(groups []group) []build.Ref {
	var out []build.Ref
	for _, g := range groups {
		out = append(out, g.gradient)
	}
	return out
}

// join joins one tensor of each variable.
func (g group) join(c *composer, name string, tensor func(graphs.Variable) build.Ref) build.Ref {
	var parts []build.Ref
	for _, v := range g.variables {
		parts = append(parts, tensor(v))
	}
	return c.join(g.name+"/joined/"+name, parts)
}

// argumentOf returns the name of the variable that is an argument of a variable's update.
func argumentOf(argument string, v graphs.Variable) string {
	if argument == "variable" {
		return v.Name
	}
	return graphs.SlotName(argument, v.Name)
}

// assign adds the nodes that assign joined values to a replica's variables.
func (g group) assign(c *composer, name string, r *replica, argument string, values build.Ref) []build.Ref {
	var shapes [][]int64
	for _, v := range g.variables {
		shapes = append(shapes, v.Shape)
	}
	var done []build.Ref
	for i, value := range c.divide(name+"/divided/"+argument, values, shapes) {
		v := g.variables[i]
		done = append(done, c.Assign(name+"/assign/"+argument+"/"+v.Name, r.handles[argumentOf(argument, v)], value, float32Type))
	}
	return done
}

// updateGroups adds the updates of groups of a replica's variables, one after the other. It returns
// the values after the step, and the nodes that change variables.
func (c *composer) updateGroups(r *replica, groups []group, d decision) (values, done []build.Ref) {
	last := d.scale
	for _, g := range groups {
		value, changed := c.updateGroup(r, g, d, last)
		last = c.Group(g.name+"/done", changed...)
		values, done = append(values, value), append(done, changed...)
	}
	return values, done
}

func (c *composer) updateGroup(r *replica, g group, d decision, after build.Ref) (value build.Ref, done []build.Ref) {
	first := g.variables[0]
	slots := c.export.Contract.SlotsOf(first)
	shapes := map[string][]int64{"variable": first.Shape}
	names := []string{"variable"}
	for _, slot := range slots {
		names, shapes[slot.Name] = append(names, slot.Name), slot.Shape
	}
	if len(g.variables) > 1 {
		n := int64(0)
		for _, v := range g.variables {
			n += elements(v.Shape)
		}
		for name := range shapes {
			shapes[name] = []int64{n}
		}
	}
	arguments := c.arguments(g.name+"/", r, first, g.gradient, d)
	old, temporary := make(map[string]build.Ref), make(map[string]build.Ref)
	for _, name := range names {
		old[name] = g.begin(c, r, name, d, after)
		temporary[name] = c.Variable(g.name+"/"+name, float32Type, shapes[name])
		set := c.Assign(g.name+"/begin/"+name, temporary[name], old[name], float32Type)
		arguments[name] = c.Node("Identity", g.name+"/begun/"+name, []build.Ref{temporary[name], set.After()}, build.Type("T", resourceType))
	}
	call := c.Call(g.name+"/update", c.updates[first.Update].function, arguments, nil)
	for _, name := range names {
		made := c.Read(g.name+"/made/"+name, temporary[name], float32Type, call)
		freed := c.Node("DestroyResourceOp", g.name+"/freed/"+name, []build.Ref{temporary[name], made.After()}, build.Bool("ignore_lookup_error", false))
		chosen := c.choose(g.name+"/applied/"+name, d.finite, made, old[name], freed)
		done = append(done, g.assign(c, g.name, r, name, chosen)...)
		if name == "variable" {
			value = chosen
		}
	}
	return value, append(done, c.averageGroup(g.name, r, g, value, d)...)
}

// begin returns what an argument has before the update: of variables that passes assign, the new value.
func (g group) begin(c *composer, r *replica, argument string, d decision, after build.Ref) build.Ref {
	return g.join(c, argument, func(v graphs.Variable) build.Ref {
		if argument == "variable" && v.Assigned {
			return d.states[v.Name]
		}
		return c.Read(g.name+"/read/"+argument+"/"+v.Name, r.handles[argumentOf(argument, v)], float32Type, after)
	})
}

// choose adds the choice of a new value if the step is applied, else of the old one.
func (c *composer) choose(name string, applied, value, old build.Ref, after ...build.Ref) build.Ref {
	inputs := []build.Ref{applied, value, old}
	for _, node := range after {
		inputs = append(inputs, node.After())
	}
	return c.Node("Select", name, inputs, build.Type("T", float32Type))
}

// averageGroup adds the update of the moving averages of a group's variables on a replica, after the
// values that these have then.
func (c *composer) averageGroup(name string, r *replica, g group, value build.Ref, d decision) []build.Ref {
	if !c.Average.on() {
		return nil
	}
	old := g.join(c, "average", func(v graphs.Variable) build.Ref {
		return c.Read(name+"/read/average/"+v.Name, r.handles[graphs.AveragePrefix+v.Name], float32Type, value)
	})
	average := c.averaged(name+"/average", old, value, d.average)
	return g.assign(c, name, r, "average", c.choose(name+"/applied/average", d.finite, average, old))
}

// updateOwned makes each replica update the groups that it owns, and send the values to the others
// unless the replicas share their variables. It returns the nodes that change variables, by replica.
func (c *composer) updateOwned(prefix string, groups [][]group, d decision) [][]build.Ref {
	done := make([][]build.Ref, len(c.replicas))
	decisions := []decision{d}
	for i, r := range c.replicas[1:] {
		here := d
		if !c.Shared {
			c.OnDevice(r.device)
			here = c.decisionOn(r.prefix+prefix, c.replicas[i+1], d)
		}
		decisions = append(decisions, here)
	}
	for owner, r := range c.replicas {
		c.OnDevice(r.device)
		values, changed := c.updateGroups(r, groups[owner], decisions[owner])
		done[owner] = append(done[owner], changed...)
		for i, other := range c.replicas {
			if i == owner || c.Shared {
				continue
			}
			c.OnDevice(other.device)
			for k, g := range groups[owner] {
				name := other.prefix + g.name + "/taken"
				value := c.Node("Identity", name, []build.Ref{values[k]}, build.Type("T", float32Type))
				done[i] = append(done[i], g.assign(c, name, other, "variable", value)...)
				done[i] = append(done[i], c.averageGroup(name, other, g, value, decisions[i])...)
			}
		}
	}
	return done
}

// decisionOn returns another replica's decision on a replica's device.
func (c *composer) decisionOn(prefix string, r *replica, d decision) decision {
	here := func(name string, of build.Ref, dtype dtpb.DataType) build.Ref {
		return c.Node("Identity", prefix+"decided/"+name, []build.Ref{of}, build.Type("T", dtype))
	}
	out := decision{
		finite: here("applied", d.finite, boolType), scale: here("scale", d.scale, float32Type),
		iteration: here("iteration", d.iteration, int64Type), rate: r.inputs["learning_rate"], states: d.states,
	}
	out.average = c.averaging(prefix, out.iteration)
	out.shared = c.shared(prefix, r, out.iteration)
	return out
}

// join flattens several tensors into one vector.
func (c *composer) join(name string, tensors []build.Ref) build.Ref {
	if len(tensors) == 1 {
		return tensors[0]
	}
	typeT, flat := build.Type("T", float32Type), c.Int32s(name+"/flat", []int32{-1})
	var parts []build.Ref
	for i, t := range tensors {
		parts = append(parts, c.Node("Reshape", fmt.Sprintf("%s/flat/%d", name, i), []build.Ref{t, flat}, typeT, build.Type("Tshape", int32Type)))
	}
	return c.Node("ConcatV2", name, append(parts, c.Int32(name+"/axis", 0)), typeT,
		build.Int("N", int64(len(parts))), build.Type("Tidx", int32Type))
}

// divide divides what join has joined into tensors of the given shapes.
func (c *composer) divide(name string, joined build.Ref, shapes [][]int64) []build.Ref {
	if len(shapes) == 1 {
		return []build.Ref{joined}
	}
	var sizes []int64
	for _, shape := range shapes {
		sizes = append(sizes, elements(shape))
	}
	typeT := build.Type("T", float32Type)
	ints, t := c.sizes(name+"/sizes", sizes)
	split := c.Node("SplitV", name, []build.Ref{joined, ints, c.Int32(name+"/axis", 0)}, typeT,
		build.Int("num_split", int64(len(sizes))), build.Type("Tlen", t))
	var out []build.Ref
	for i, shape := range shapes {
		ints, t := c.sizes(fmt.Sprintf("%s/shape/%d", name, i), shape)
		out = append(out, c.Node("Reshape", fmt.Sprintf("%s/shaped/%d", name, i), []build.Ref{split.Output(i), ints}, typeT, build.Type("Tshape", t)))
	}
	return out
}

// sizes adds a constant of sizes: of int32 if they are small enough, which TensorFlow keeps in the
// memory of a GPU's host, where it needs them.
func (c *composer) sizes(name string, sizes []int64) (build.Ref, dtpb.DataType) {
	small := make([]int32, len(sizes))
	for i, n := range sizes {
		if n > math.MaxInt32 {
			return c.Int64s(name, sizes), int64Type
		}
		small[i] = int32(n)
	}
	return c.Int32s(name, small), int32Type
}
