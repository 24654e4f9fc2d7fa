package compose

import (
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// checkAverage returns an error if the average of variables has no valid decay, or if slots of the
// contract have its names.
func checkAverage(contract *graphs.Contract, decay float64) error {
	if !(decay >= 0 && decay < 1) {
		return fault.Usagef("the decay of moving averages is %v; expected 0 (off) or more and less than 1", decay)
	}
	for _, name := range contract.SlotNames() {
		if decay > 0 && graphs.SlotName(name, "") == graphs.AveragePrefix {
			return fault.Usagef("the optimizer %s has a slot with the name %s, which moving averages have as well; turn them off, or export the graph with another name of the slot", contract.Optimizer.Name, name)
		}
	}
	return nil
}

// passed returns the name of the variable whose value evaluations and predictions take for one of the
// model's: that of its average, if it has one.
func (c *composer) passed(variable string) string {
	if _, ok := c.replicas[0].handles[graphs.AveragePrefix+variable]; ok {
		return graphs.AveragePrefix + variable
	}
	return variable
}

// passHandles returns the handles of a replica's variables for evaluations and predictions.
func (c *composer) passHandles(r *replica) map[string]build.Ref {
	if c.Average == 0 {
		return r.handles
	}
	out := make(map[string]build.Ref, len(r.handles))
	for name := range r.handles {
		out[name] = r.handles[c.passed(name)]
	}
	return out
}

// factors are those of the old average and of the new value in the next average.
type factors struct{ keep, take build.Ref }

// averaging adds the factors of moving averages after an iteration. As in Keras, the first update
// replaces the average.
func (c *composer) averaging(prefix string, iteration build.Ref) factors {
	if c.Average == 0 {
		return factors{}
	}
	typeT := build.Type("T", float32Type)
	later := c.Node("Greater", prefix+"average/later", []build.Ref{iteration, c.Int64(prefix+"average/first", 1)}, build.Type("T", int64Type))
	on := c.Node("Cast", prefix+"average/on", []build.Ref{later}, build.Type("SrcT", dtpb.DataType_DT_BOOL), build.Type("DstT", float32Type))
	keep := c.Node("Mul", prefix+"average/keep", []build.Ref{on, c.Float(prefix+"average/decay", float32(c.Average))}, typeT)
	return factors{keep, c.Node("Sub", prefix+"average/take", []build.Ref{c.Float(prefix+"average/one", 1), keep}, typeT)}
}

// average adds the update of the moving average of a replica's variable, after a node that has set the
// variable. It returns the last node: that one, if there are no averages. Where the step is not
// applied, that node does not run, and neither do these.
func (c *composer) average(prefix string, r *replica, v graphs.Variable, updated build.Ref, f factors) build.Ref {
	if c.Average == 0 {
		return updated
	}
	name, handle := prefix+"average/"+v.Name, r.handles[graphs.AveragePrefix+v.Name]
	old, value := c.Read(name+"/old", handle, float32Type, updated), c.Read(name+"/value", r.handles[v.Name], float32Type, updated)
	return c.Assign(name, handle, c.averaged(name, old, value, f), float32Type)
}

// averaged adds the average that follows an old one and a new value.
func (c *composer) averaged(name string, old, value build.Ref, f factors) build.Ref {
	typeT := build.Type("T", float32Type)
	kept := c.Node("Mul", name+"/kept", []build.Ref{f.keep, old}, typeT)
	taken := c.Node("Mul", name+"/taken", []build.Ref{f.take, value}, typeT)
	return c.Node("AddV2", name+"/sum", []build.Ref{kept, taken}, typeT)
}
