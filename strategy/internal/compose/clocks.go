package compose

import (
	"cmp"
	"slices"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs/build"
)

// clockReadings is the number of readings of a replica's clock in a step that is one call.
const clockReadings = 4

// timed reports whether the graph measures the time of each replica.
func (c *composer) timed() bool { return len(c.replicas) > 1 && !c.Shared }

// clock adds a reading of a replica's clock, in seconds, after the tensors in after are computed.
// Sign is a tensor of the replica's device, or the zero Ref.
func (c *composer) clock(name string, r *replica, sign build.Ref, after ...build.Ref) build.Ref {
	var nodes []build.Ref
	for _, output := range after {
		nodes = append(nodes, output.Output(0))
	}
	slices.SortFunc(nodes, func(a, b build.Ref) int { return cmp.Compare(a.Node, b.Node) })
	onGPU := r.device != r.host && !sign.IsZero()
	c.OnDevice(r.host)
	if onGPU {
		c.OnDevice(r.device)
	}
	done := c.Group(name+"/after", slices.Compact(nodes)...)
	if onGPU {
		// An operation that follows a GPU operation starts when that is queued, not when it
		// is done. A copy to the host waits until it is done. It is assigned to a variable,
		// since TensorFlow removes what nobody takes.
		sign = c.Node("Identity", name+"/sign", []build.Ref{sign, done.After()}, build.Type("T", float32Type))
		c.OnDevice(r.host)
		done = c.Assign(name+"/host", c.Variable(name+"/done", float32Type, nil), sign, float32Type)
	}
	return c.Node("Timestamp", name, []build.Ref{done.After()})
}

// clocks packs readings of a replica's clock into one tensor.
func (c *composer) clocks(name string, r *replica, readings ...build.Ref) build.Ref {
	c.OnDevice(r.host)
	return c.Node("Pack", name, readings, build.Type("T", dtpb.DataType_DT_DOUBLE), build.Int("N", int64(len(readings))), build.Int("axis", 0))
}
