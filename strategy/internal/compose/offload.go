package compose

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// checkOffload returns an error if slots are to be in files and no operation updates them there, or if
// variables are to be in files of which there would be several copies.
func (c *composer) checkOffload() error {
	if c.Offload == "" || !c.Train && !c.Whole {
		return nil
	}
	what := "the slots of the optimizer"
	switch {
	case !c.Train:
		what = "variables"
	case c.Whole:
		what = "variables, gradients and slots"
	}
	what += " cannot be in files on disk (offloaded)"
	without := func(v graphs.Variable) bool { _, ok := c.offloaded[v.Update]; return !ok }
	switch {
	case !c.Own:
		return fault.Usagef("%s: only gorbit's kernels keep them there, which are for CPUs, without XLA; turn offloading off, or train on CPUs with the kernels on", what)
	case c.Train && slices.ContainsFunc(c.trained, without):
		return fault.Usagef("%s: the optimizer %s has no kernel that updates them there; expected adamw, sgd or lion, as exported by gorbit_export; turn offloading off, or export the graph with another optimizer", what, c.export.Contract.Optimizer.Name)
	case c.Whole && len(c.replicas) > 1 && !c.Shared:
		return fault.Usagef("%s: each of the %d devices would have a copy of the variables; expected one device, which may have several lanes", what, len(c.replicas))
	}
	return nil
}

// inFiles reports whether a variable, its gradient and its average are offloaded. Passes of a training assign
// ordinary memory to those that they change.
func (c *composer) inFiles(v graphs.Variable) bool {
	return c.Whole && v.DType == "float32" && !v.Assigned && !strings.HasPrefix(v.Name, graphs.StatePrefix)
}

// inFile adds a tensor of a shape in the memory of a file: of a value, or of a scalar in all elements.
func (c *composer) inFile(name string, value build.Ref, shape []int64) build.Ref {
	return c.Node(kernels.Mapped, name, []build.Ref{value, c.Int64s(name+"/shape", shape)}, build.String("folder", c.Offload))
}

// gradientFiles adds variables in files for the gradients of each replica, or the sums of those of several
// micro-batches. It returns the nodes that make the files.
func (c *composer) gradientFiles() []build.Ref {
	var made []build.Ref
	for _, r := range c.replicas {
		c.OnDevice(r.device)
		for _, v := range c.trained {
			if !c.inFiles(v) {
				continue
			}
			name := gradientFile(r, v)
			handle := c.Variable(name, float32Type, v.Shape)
			r.handles[name] = handle
			made = append(made, c.Assign(name+"/zero", handle, c.inFile(name+"/file", c.Float(name+"/value", 0), v.Shape), float32Type))
			c.plan.FileBytes += 4 * elements(v.Shape)
		}
	}
	return made
}

// gradientFile names the variable with a replica's gradient of another one, also where replicas share
// their variables.
func gradientFile(r *replica, v graphs.Variable) string { return r.prefix + "gradient_file/" + v.Name }

// intoFile adds the node that takes a replica's gradient of a variable into its file, by an operation, and
// returns the gradient there. That in memory is then free, before those of other layers are computed.
func (c *composer) intoFile(op, name string, r *replica, v graphs.Variable, gradient build.Ref) build.Ref {
	memory := c.Read(name+"/memory", r.handles[gradientFile(r, v)], float32Type)
	return c.Node(op, name, []build.Ref{memory, gradient})
}

// stored takes the gradients of a step into files, where variables are offloaded.
func (c *composer) stored(m []made) []made {
	if !c.Whole {
		return m
	}
	out := slices.Clone(m)
	for i, r := range c.replicas {
		c.OnDevice(r.device)
		out[i].grads = maps.Clone(m[i].grads)
		for _, v := range c.trained {
			if c.inFiles(v) {
				out[i].grads[v.Name] = c.intoFile(kernels.StoreMapped, r.prefix+"stored/"+v.Name, r, v, m[i].grads[v.Name])
			}
		}
	}
	return out
}

// sumInFile adds tensors in files to the first of them, in their order, as sum does in memory.
func (c *composer) sumInFile(name string, tensors []build.Ref) build.Ref {
	total := tensors[0]
	for i, t := range tensors[1:] {
		total = c.Node(kernels.AddMapped, fmt.Sprintf("%s/%d", name, i), []build.Ref{total, t})
	}
	return total
}

// afterSums makes the learning rate, for which all updates wait, wait for all sums of a step: they may be
// computed of the variables, in whose memory the updates write.
func (c *composer) afterSums(prefix string, rate build.Ref, sums []build.Ref) build.Ref {
	inputs := []build.Ref{rate}
	for _, s := range sums {
		inputs = append(inputs, s.After())
	}
	return c.Node("Identity", prefix+"sums/rate", inputs, build.Type("T", float32Type))
}

// updateInFile adds the update of one variable by an operation on values whose memory is offloaded. They
// are read without a copy, and the operation writes into their memory: an assignment would move them out
// of the files.
func (c *composer) updateInFile(prefix string, v graphs.Variable, op build.Op, arguments map[string]build.Ref) build.Ref {
	for _, slot := range c.export.Contract.SlotsOf(v) {
		arguments[slot.Name] = c.Read(prefix+"slot/"+slot.Name+"/"+v.Name, arguments[slot.Name], float32Type)
	}
	if c.inFiles(v) {
		arguments["variable"] = c.Read(prefix+"value/"+v.Name, arguments["variable"], float32Type)
	}
	var inputs []build.Ref
	for _, a := range op.Inputs {
		inputs = append(inputs, arguments[a.Name])
	}
	return c.Node(op.Name, prefix+"update/"+v.Name, inputs)
}
