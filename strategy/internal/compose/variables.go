package compose

import (
	"fmt"
	"slices"
	"strings"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
)

// declared is a variable to add.
type declared struct {
	Variable
	dtype   string
	initial float64        // of slots
	has     func(int) bool // whether a replica has it
	of      string         // the variable, of a slot; parts of both are of the same rows
}

// declared lists all variables, in the order in which they are added.
func (c *composer) declared(train bool) []declared {
	contract := c.export.Contract
	var out []declared
	everywhere := func(int) bool { return true }
	for _, v := range contract.Variables {
		own := Variable{Name: v.Name, Shape: v.Shape, Offloaded: c.inFiles(v)}
		out = append(out, declared{own, v.DType, 0, everywhere, ""})
	}
	for _, s := range contract.States {
		out = append(out, declared{Variable{Name: s.Name, Shape: s.Shape}, s.DType, 0, everywhere, ""})
	}
	if !train {
		return out
	}
	for _, v := range c.trained {
		for _, slot := range contract.SlotsOf(v) {
			has := func(i int) bool { return c.Shared || c.keeps(i, v.Name) }
			own := Variable{Name: graphs.SlotName(slot.Name, v.Name), Shape: slot.Shape, Slot: true, Offloaded: c.Offload != ""}
			out = append(out, declared{own, v.DType, slot.Initial, has, v.Name})
		}
	}
	if c.Average.on() {
		for _, v := range c.trained {
			own := Variable{Name: graphs.AveragePrefix + v.Name, Shape: v.Shape, Slot: true, Offloaded: c.inFiles(v)}
			out = append(out, declared{own, v.DType, 0, everywhere, ""})
		}
	}
	// If one replica decides for all, only that one needs the count.
	has := func(i int) bool { return !c.Shard || i == 0 }
	for _, p := range contract.Phases {
		out = append(out, declared{Variable{Name: p.Iterations(), Slot: true}, "int64", 0, has, ""})
	}
	return append(out, declared{Variable{Name: contract.Optimizer.Iterations, Slot: true}, "int64", 0, has, ""})
}

// variables adds all variables, the nodes that read and assign them, and the initialization of
// those that start at a given value, the optimizer's.
func (c *composer) variables(train bool) error {
	copies := len(c.replicas)
	if c.Shared {
		copies = 1
	}
	c.plan.SlotBytes = make([]int64, copies)
	var fills []build.Ref
	c.plan.Fills = make(map[string][]build.Ref)
	for _, v := range c.declared(train) {
		t := dtype.Of(v.dtype)
		switch t {
		case dtype.Float32, dtype.Int32, dtype.Int64, dtype.Uint8, dtype.Bool:
		default:
			return fmt.Errorf("variable %s has dtype %s; expected float32, int32, int64, uint8 or bool", v.Name, v.dtype)
		}
		v.DType = dtpb.DataType(t)
		if nodes := c.add(v, t.Size()); len(nodes) > 0 {
			c.plan.Fills[v.Name] = nodes
			fills = append(fills, nodes...)
		}
	}
	if train && c.Whole {
		c.plan.Fills["gradients"] = c.gradientFiles()
		fills = append(fills, c.plan.Fills["gradients"]...)
	}
	c.OnDevice(c.replicas[0].host)
	c.plan.Init = c.Group("init", fills...)
	slices.SortFunc(c.plan.Variables, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// add adds a variable, whose elements have so many bytes, to the replicas that have it. It returns the
// nodes that set it to its first value.
func (c *composer) add(v declared, size int64) (fills []build.Ref) {
	c.plan.Variables = append(c.plan.Variables, v.Variable)
	c.OnDevice(c.replicas[0].host)
	value := c.Placeholder("value/"+v.Name, v.DType, v.Shape)
	var reads, assigns []build.Ref
	filled := make(map[string]build.Ref) // initial values by device
	for i, r := range c.replicas {
		if c.Shared && i > 0 {
			r.handles = c.replicas[0].handles
			continue
		}
		if !v.has(i) {
			continue
		}
		own, taken := v.Variable, value
		if own.Shape = c.partOf(v.of, v.Shape, i); c.parts[v.of] != nil {
			c.OnDevice(c.replicas[0].host)
			taken = c.part(r.prefix+"assign/part/"+v.Name, v.of, value, v.DType, v.Shape, i)
		}
		c.OnDevice(r.device)
		handle := c.Variable(r.prefix+v.Name, v.DType, own.Shape)
		r.handles[v.Name] = handle
		reads = append(reads, c.Read(r.prefix+"read/"+v.Name, handle, v.DType))
		if v.Offloaded {
			taken = c.inFile(r.prefix+"file/"+v.Name, taken, own.Shape)
		}
		assigns = append(assigns, c.Assign(r.prefix+"assign/"+v.Name, handle, taken, v.DType))
		if v.Offloaded {
			c.plan.FileBytes += elements(own.Shape) * size
		}
		if !v.Slot {
			continue
		}
		c.plan.SlotBytes[i] += elements(own.Shape) * size
		fills = append(fills, c.fill(r, own, v.initial, handle, filled))
	}
	if c.plan.Reads[v.Name] = reads; c.parts[v.of] != nil {
		c.OnDevice(c.replicas[0].host)
		c.plan.Reads[v.Name] = []build.Ref{c.assembled("read/whole/"+v.Name, reads, v.DType)}
	}
	assign := assigns[0]
	if len(assigns) > 1 {
		c.OnDevice(c.replicas[0].host)
		assign = c.Group("assigned/"+v.Name, assigns...)
	}
	c.plan.Assigns[v.Name] = Assignment{value, assign, v.Variable}
	return fills
}

// fill adds the node that sets all elements of a replica's slot to its initial value. Filled holds
// such tensors by device. A TPU core has no operation for them outside of a program, so its host
// makes them, once for all of its cores.
func (c *composer) fill(r *replica, v Variable, initial float64, handle build.Ref, filled map[string]build.Ref) build.Ref {
	if v.Offloaded {
		value := c.inFile(r.prefix+"zero/file/"+v.Name, c.Float(r.prefix+"zero/value/"+v.Name, float32(initial)), v.Shape)
		return c.Assign(r.prefix+"zero/"+v.Name, handle, value, v.DType)
	}
	at := r.device
	if c.Hosted {
		at = r.host
	}
	if filled[at].IsZero() {
		c.OnDevice(at)
		value := c.Int64(r.prefix+"zero/value/"+v.Name, 0)
		if v.DType == float32Type {
			value = c.Float(r.prefix+"zero/value/"+v.Name, float32(initial))
		}
		filled[at] = c.Node("Fill", r.prefix+"zero/fill/"+v.Name, []build.Ref{c.Int64s(r.prefix+"zero/shape/"+v.Name, v.Shape), value},
			build.Type("T", v.DType), build.Type("index_type", int64Type))
	}
	c.OnDevice(r.device)
	return c.Assign(r.prefix+"zero/"+v.Name, handle, filled[at], v.DType)
}

// typeOf returns the type of the elements of a variable or a feature, by its name.
func typeOf(name string) dtpb.DataType { return dtpb.DataType(dtype.Of(name)) }
