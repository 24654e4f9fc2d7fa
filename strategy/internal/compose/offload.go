package compose

import (
	"slices"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// checkOffload returns an error if slots are to be in files and no operation updates them there.
func (c *composer) checkOffload() error {
	if c.Offload == "" {
		return nil
	}
	const what = "the slots of the optimizer cannot be in files on disk (offloaded)"
	without := func(v graphs.Variable) bool { _, ok := c.offloaded[v.Update]; return !ok }
	switch {
	case !c.Own:
		return fault.Usagef("%s: only gorbit's kernels update them there, which are for CPUs, without XLA; turn offloading off, or train on CPUs with the kernels on", what)
	case slices.ContainsFunc(c.trained, without):
		return fault.Usagef("%s: the optimizer %s has no kernel that updates them there; expected adamw, sgd or lion, as exported by gorbit_export; turn offloading off, or export the graph with another optimizer", what, c.export.Contract.Optimizer.Name)
	}
	return nil
}

// inFile adds a tensor of a shape in the memory of a file: of a value, or of a scalar in all elements.
func (c *composer) inFile(name string, value build.Ref, shape []int64) build.Ref {
	return c.Node(kernels.Mapped, name, []build.Ref{value, c.Int64s(name+"/shape", shape)}, build.String("folder", c.Offload))
}

// updateInFile adds the update of one variable whose slots are offloaded. Their values are read without
// a copy, and the operation writes into their memory: an assignment would move them out of the files.
func (c *composer) updateInFile(prefix string, v graphs.Variable, op build.Op, arguments map[string]build.Ref) build.Ref {
	for _, slot := range c.export.Contract.SlotsOf(v) {
		arguments[slot.Name] = c.Read(prefix+"slot/"+slot.Name+"/"+v.Name, arguments[slot.Name], float32Type)
	}
	var inputs []build.Ref
	for _, a := range op.Inputs {
		inputs = append(inputs, arguments[a.Name])
	}
	return c.Node(op.Name, prefix+"update/"+v.Name, inputs)
}
