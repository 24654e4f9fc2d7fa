package compose

import (
	"maps"
	"slices"
	"strings"

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
	// owners of the variables, by name, if the optimizer is sharded.
	owners map[string]int
	// trained are the contract's variables that are not frozen, with the factors of this graph.
	trained []graphs.Variable
	// gradient is the function gradients, without the gradients of other variables.
	gradient *graphs.Function
	plan     *Plan
	// rows are the rows in which gradients are not 0, by feature.
	rows map[string]RowFeed
	// updates are the functions that update variables, by name.
	updates map[string]update
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

// keeps reports whether a replica has a slot of a variable.
func (c *composer) keeps(replica int, variable string) bool {
	return !c.Shard || c.owners[variable] == replica
}

// stateChanges returns what gradients gives for the states that are updated and the trained variables
// that passes assign, as if they were gradients of variables of these names.
func (c *composer) stateChanges() []graphs.Variable {
	var out []graphs.Variable
	for _, s := range c.export.Contract.Changes(c.trained) {
		out = append(out, graphs.Variable{Name: graphs.StatePrefix + s.Name, Shape: s.Shape, DType: s.DType})
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
