package compose

import (
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// Averages says which averages of the trained variables there are: moving ones with a decay, or, from
// an update on, means with equal weights of the variables after every so many updates. The zero value
// means none.
type Averages struct {
	Decay       float64
	From, Every int64
}

func (a Averages) on() bool { return a != Averages{} }

// check returns an error if the settings are invalid, or if slots of the contract have the names of the
// averages.
func (a Averages) check(contract *graphs.Contract) error {
	switch {
	case !(a.Decay >= 0 && a.Decay < 1):
		return fault.Usagef("the decay of moving averages is %v; expected 0 (off) or more and less than 1", a.Decay)
	case a.From < 0 || a.Every < 0:
		return fault.Usagef("averages with equal weights begin at update %d and take every %d; expected 0 (off) or more", a.From, a.Every)
	case a.From == 0 && a.Every > 0, a.From > 0 && a.Decay > 0:
		return fault.Usagef("averages have decay %v, and begin at update %d and take every %d; expected a decay, or an update from which on their weights are equal", a.Decay, a.From, a.Every)
	}
	for _, name := range contract.SlotNames() {
		if a.on() && graphs.SlotName(name, "") == graphs.AveragePrefix {
			return fault.Usagef("the optimizer %s has a slot with the name %s, which averages have as well; turn them off, or export the graph with another name of the slot", contract.Optimizer.Name, name)
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
	if !c.Average.on() {
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

// averaging adds the factors of averages after an iteration.
func (c *composer) averaging(prefix string, iteration build.Ref) factors {
	switch {
	case !c.Average.on():
		return factors{}
	case c.Average.From > 0:
		return c.equalWeights(prefix+"average/", iteration)
	}
	typeT := build.Type("T", float32Type)
	later := c.Node("Greater", prefix+"average/later", []build.Ref{iteration, c.Int64(prefix+"average/first", 1)}, build.Type("T", int64Type))
	on := c.Node("Cast", prefix+"average/on", []build.Ref{later}, build.Type("SrcT", dtpb.DataType_DT_BOOL), build.Type("DstT", float32Type))
	// As in Keras, the first update replaces the average.
	keep := c.Node("Mul", prefix+"average/keep", []build.Ref{on, c.Float(prefix+"average/decay", float32(c.Average.Decay))}, typeT)
	return factors{keep, c.Node("Sub", prefix+"average/take", []build.Ref{c.Float(prefix+"average/one", 1), keep}, typeT)}
}

// equalWeights adds the factors of means: after n variables were taken, n / (n + 1) and 1 / (n + 1), but
// 1 and 0 after an update that is not taken.
func (c *composer) equalWeights(prefix string, iteration build.Ref) factors {
	whole, typeT := build.Type("T", int64Type), build.Type("T", float32Type)
	toFloat := func(name string, x build.Ref, from dtpb.DataType) build.Ref {
		return c.Node("Cast", prefix+name, []build.Ref{x}, build.Type("SrcT", from), build.Type("DstT", float32Type))
	}
	every, zero, one := c.Int64(prefix+"every", max(1, c.Average.Every)), c.Int64(prefix+"zero", 0), c.Float(prefix+"one", 1)
	since := c.Node("Sub", prefix+"since", []build.Ref{iteration, c.Int64(prefix+"from", c.Average.From)}, whole)
	since = c.Node("Maximum", prefix+"later", []build.Ref{since, zero}, whole)
	n := toFloat("n", c.Node("FloorDiv", prefix+"taken", []build.Ref{since, every}, whole), int64Type)
	rest := c.Node("FloorMod", prefix+"rest", []build.Ref{since, every}, whole)
	due := toFloat("due", c.Node("Equal", prefix+"is_due", []build.Ref{rest, zero}, whole), dtpb.DataType_DT_BOOL)
	take := c.Node("RealDiv", prefix+"take", []build.Ref{due, c.Node("AddV2", prefix+"all", []build.Ref{n, one}, typeT)}, typeT)
	return factors{c.Node("Sub", prefix+"keep", []build.Ref{one, take}, typeT), take}
}

// average adds the update of the average of a replica's variable, after a node that has set the
// variable. It returns the last node: that one, if there are no averages. Where the step is not
// applied, that node does not run, and neither do these.
func (c *composer) average(prefix string, r *replica, v graphs.Variable, updated build.Ref, f factors) build.Ref {
	if !c.Average.on() {
		return updated
	}
	name, handle := prefix+"average/"+v.Name, r.handles[graphs.AveragePrefix+v.Name]
	old, value := c.Read(name+"/old", handle, float32Type, updated), c.Read(name+"/value", r.handles[v.Name], float32Type, updated)
	if c.inFiles(v) {
		return c.Node(kernels.AverageMapped, name, []build.Ref{old, value, f.keep, f.take})
	}
	return c.Assign(name, handle, c.averaged(name, old, value, f), float32Type)
}

// averaged adds the average that follows an old one and a new value.
func (c *composer) averaged(name string, old, value build.Ref, f factors) build.Ref {
	typeT := build.Type("T", float32Type)
	kept := c.Node("Mul", name+"/kept", []build.Ref{f.keep, old}, typeT)
	taken := c.Node("Mul", name+"/taken", []build.Ref{f.take, value}, typeT)
	return c.Node("AddV2", name+"/sum", []build.Ref{kept, taken}, typeT)
}
