package compose

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	tpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
)

const (
	float32Type  = dtpb.DataType_DT_FLOAT
	float64Type  = dtpb.DataType_DT_DOUBLE
	int32Type    = dtpb.DataType_DT_INT32
	int64Type    = dtpb.DataType_DT_INT64
	boolType     = dtpb.DataType_DT_BOOL
	resourceType = dtpb.DataType_DT_RESOURCE
)

// replica is one copy of the model in the graph.
type replica struct {
	prefix       string // of the names of its nodes
	device, host string // host is the CPU of the device's machine
	handles      map[string]build.Ref
	inputs       map[string]build.Ref // of the functions gradients and update
}

// composer holds the state shared by the parts of a graph.
type composer struct {
	*build.Builder
	Layout
	export   *graphs.Export
	replicas []*replica
	// owners of the variables, by name, if the optimizer is sharded, and the first rows of the replicas' parts
	// of those that are divided, with the number of rows at the end.
	owners map[string]int
	parts  map[string][]int64
	// trained are the contract's variables that are not frozen, with the factors of this graph.
	trained []graphs.Variable
	// phase is the part of the step that is composed, and trained are its variables then.
	phase graphs.Phase
	// gradient is its function gradients, without the gradients of other variables.
	gradient *graphs.Function
	// step is the training step as one program; nil if it is none.
	step *program
	plan *Plan
	// rows are the rows in which gradients are not 0, by feature.
	rows map[string]RowFeed
	// updates are the functions that update variables, by name.
	updates map[string]update
	// offloaded are the operations that make updates where slots are offloaded, by update.
	offloaded map[string]build.Op
	// looped is set while the step is composed as the body of a loop.
	looped bool
	// instance is the number of collectives in the graph so far.
	instance int32
}

// update is a function that updates variables, in two parts.
type update struct {
	// shared gives what does not depend on the variable, such as the correction of Adam's moments;
	// nil if there is nothing. A step calls it once, and the function with its outputs.
	shared, function *graphs.Function
	// waits tells whether all that the function does waits for the learning rate.
	waits bool
}

// divideUpdates divides the functions that update variables in their parts.
func (c *composer) divideUpdates() {
	arguments := []string{"iteration"}
	for _, h := range c.export.Contract.Optimizer.Hyperparameters {
		arguments = append(arguments, h.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.export.Contract.Updates)) {
		var u update
		u.shared, u.function = c.Share(c.export.Functions[name], arguments...)
		u.waits = c.WritesWait(u.function, "learning_rate")
		c.updates[name] = u
	}
}

// hostOf returns the CPU of a device's machine, which is the device itself if it is a CPU.
func hostOf(device string) string {
	i := strings.LastIndex(strings.ToUpper(device), "DEVICE:")
	if i < 0 || strings.HasPrefix(strings.ToUpper(device[i:]), "DEVICE:CPU:") {
		return device
	}
	return device[:i] + "device:CPU:0"
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// keeps reports whether a replica has a slot of a variable, or its part of one.
func (c *composer) keeps(replica int, variable string) bool {
	return !c.Shard || c.parts[variable] != nil || c.owners[variable] == replica
}

// stateChanges returns what gradients gives for the states that are updated and the trained variables
// that passes assign, as if they were gradients of variables of these names.
func (c *composer) stateChanges() []graphs.Variable {
	var out []graphs.Variable
	for _, s := range c.changes() {
		out = append(out, graphs.Variable{Name: graphs.StatePrefix + s.Name, Shape: s.Shape, DType: s.DType})
	}
	return out
}

// changes returns what the gradients function gives changes of: updated states, and trained variables
// that passes assign.
func (c *composer) changes() []graphs.State { return c.changed(c.export.Contract.Changes(c.trained)) }

// updatedStates returns the states that the gradients function gives changes of.
func (c *composer) updatedStates() []graphs.State {
	return c.changed(c.export.Contract.UpdatedStates())
}

// changed returns the states of which the gradients function gives changes: that of a phase need not give
// those of all.
func (c *composer) changed(states []graphs.State) []graphs.State {
	if c.phase.Name == "" {
		return states
	}
	var out []graphs.State
	for _, s := range states {
		if c.gradient.Output(graphs.StatePrefix+s.Name) >= 0 {
			out = append(out, s)
		}
	}
	return out
}

// rowFeatures returns the features that list the rows of gradients.
func (c *composer) rowFeatures() []string {
	var out []string
	for _, v := range c.trained {
		if v.Rows != "" && !slices.Contains(out, v.Rows) {
			out = append(out, v.Rows)
		}
	}
	return out
}

// value is an output of a node with its dtype.
type value struct {
	node  build.Ref
	dtype dtpb.DataType
}

// inside returns a composer of a function, in which the given values are arguments, and the argument
// of each value.
func (c *composer) inside(f *build.Function, values []value) (*composer, map[build.Ref]build.Ref) {
	args := make(map[build.Ref]build.Ref, len(values))
	for i, v := range values {
		args[v.node] = f.Arg(fmt.Sprintf("in_%d", i), v.dtype)
	}
	in := *c
	in.Builder, in.looped, in.rows, in.replicas = f.Builder, true, make(map[string]RowFeed), nil
	for _, r := range c.replicas {
		own := &replica{prefix: r.prefix, device: r.device, host: r.host, handles: make(map[string]build.Ref, len(r.handles))}
		for name, handle := range r.handles {
			own.handles[name] = args[handle]
		}
		in.replicas = append(in.replicas, own)
	}
	return &in, args
}

// backward returns the variables that are trained, and the changes of states, in the order in which a function
// computes their gradients.
func (c *composer) backward(gradients *graphs.Function) []graphs.Variable {
	order := slices.Concat(c.trained, c.stateChanges())
	depth := c.Depths(gradients)
	slices.SortStableFunc(order, func(a, b graphs.Variable) int { return depth[outputOf(a)] - depth[outputOf(b)] })
	return order
}

// outputOf returns the output of gradients with the gradient of a variable or the change of a state.
func outputOf(v graphs.Variable) string {
	if strings.HasPrefix(v.Name, graphs.StatePrefix) {
		return v.Name
	}
	return graphs.GradientPrefix + v.Name
}

// zeros adds a constant of zeros, or of true.
func (c *composer) zeros(name string, dtype dtpb.DataType, shape []int64, yes bool) build.Ref {
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
