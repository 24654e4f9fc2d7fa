package compose

import (
	"fmt"
	"slices"
	"strings"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
)

// variables adds all variables, the nodes that read and assign them, and the initialization of
// those that start at a given value, the optimizer's.
func (c *composer) variables(train bool) error {
	contract := c.export.Contract
	copies := len(c.replicas)
	if c.Shared {
		copies = 1
	}
	c.plan.SlotBytes = make([]int64, copies)
	var fills []string
	add := func(name, dtype string, shape []int64, initial *float64, has func(int) bool) error {
		slot := initial != nil
		t, ok := dtypes[dtype]
		if !ok {
			return fmt.Errorf("variable %s has dtype %s; expected float32, int32, int64, uint8 or bool", name, dtype)
		}
		spec := Variable{Name: name, DType: t.proto, Shape: shape, Slot: slot}
		c.plan.Variables = append(c.plan.Variables, spec)
		c.OnDevice(c.replicas[0].host)
		value := c.Placeholder("value/"+name, t.proto, shape)
		var assigns []string
		filled := make(map[string]string) // initial values by device
		for i, r := range c.replicas {
			if c.Shared && i > 0 {
				r.handles = c.replicas[0].handles
				continue
			}
			if !has(i) {
				continue
			}
			c.OnDevice(r.device)
			handle := c.Variable(r.prefix+name, t.proto, shape)
			r.handles[name] = handle
			c.plan.Reads[name] = append(c.plan.Reads[name], c.Read(r.prefix+"read/"+name, handle, t.proto))
			assigns = append(assigns, c.Assign(r.prefix+"assign/"+name, handle, value, t.proto))
			if !slot {
				continue
			}
			c.plan.SlotBytes[i] += elements(shape) * int64(t.size)
			fills = append(fills, c.fill(r, spec, *initial, handle, filled))
		}
		assign := assigns[0]
		if len(assigns) > 1 {
			c.OnDevice(c.replicas[0].host)
			assign = c.Group("assigned/"+name, assigns...)
		}
		c.plan.Assigns[name] = Assignment{value, assign, spec}
		return nil
	}
	everywhere := func(int) bool { return true }
	for _, v := range contract.Variables {
		if err := add(v.Name, v.DType, v.Shape, nil, everywhere); err != nil {
			return err
		}
	}
	for _, s := range contract.States {
		if err := add(s.Name, s.DType, s.Shape, nil, everywhere); err != nil {
			return err
		}
	}
	if train {
		for _, v := range c.trained {
			for _, slot := range contract.SlotsOf(v) {
				has := func(i int) bool { return c.Shared || c.keeps(i, v.Name) }
				if err := add(graphs.SlotName(slot.Name, v.Name), v.DType, slot.Shape, &slot.Initial, has); err != nil {
					return err
				}
			}
		}
		for _, v := range c.trained {
			if c.Average == 0 {
				break
			}
			if err := add(graphs.AveragePrefix+v.Name, v.DType, v.Shape, new(float64), everywhere); err != nil {
				return err
			}
		}
		// If one replica decides for all, only that one needs the count.
		has := func(i int) bool { return !c.Shard || i == 0 }
		if err := add(contract.Optimizer.Iterations, "int64", nil, new(float64), has); err != nil {
			return err
		}
	}
	c.OnDevice(c.replicas[0].host)
	c.plan.Init = c.Group("init", fills...)
	slices.SortFunc(c.plan.Variables, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// fill adds the node that sets all elements of a replica's slot to its initial value. Filled holds
// such tensors by device. A TPU core has no operation for them outside of a program, so its host
// makes them, once for all of its cores.
func (c *composer) fill(r *replica, v Variable, initial float64, handle string, filled map[string]string) string {
	at := r.device
	if c.Hosted {
		at = r.host
	}
	if filled[at] == "" {
		c.OnDevice(at)
		value := c.Int64(r.prefix+"zero/value/"+v.Name, 0)
		if v.DType == float32Type {
			value = c.Float(r.prefix+"zero/value/"+v.Name, float32(initial))
		}
		filled[at] = c.Node("Fill", r.prefix+"zero/fill/"+v.Name, []string{c.Int64s(r.prefix+"zero/shape/"+v.Name, v.Shape), value},
			build.Type("T", v.DType), build.Type("index_type", int64Type))
	}
	c.OnDevice(r.device)
	return c.Assign(r.prefix+"zero/"+v.Name, handle, filled[at], v.DType)
}

// dtypes are the dtypes of variables and features, and the bytes of an element.
var dtypes = map[string]struct {
	proto dtpb.DataType
	size  int
}{
	"float32": {dtpb.DataType_DT_FLOAT, 4},
	"int32":   {dtpb.DataType_DT_INT32, 4},
	"int64":   {dtpb.DataType_DT_INT64, 8},
	"uint8":   {dtpb.DataType_DT_UINT8, 1},
	"bool":    {dtpb.DataType_DT_BOOL, 1},
}
