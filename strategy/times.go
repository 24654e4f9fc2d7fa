package strategy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
)

// Times implements Strategy.
func (m *Model) Times() []Times {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Times(nil), m.times...)
}

// timed reports whether the graph tells the replicas' times apart.
func (c *composer) timed() bool { return len(c.replicas) > 1 && !c.shared }

// clock adds a reading of a replica's clock, in seconds, once some tensors are there.
// Of what its device makes, sign is one.
func (c *composer) clock(name string, r *replica, sign string, after ...string) string {
	var nodes []string
	for _, output := range after {
		node, _, _ := strings.Cut(output, ":")
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	c.OnDevice(r.host)
	done := c.Group(name+"/after", slices.Compact(nodes)...)
	if r.device != r.host && sign != "" {
		// What follows an operation of a GPU begins when that has been queued, not when
		// it is done. What has come to the host is done.
		c.OnDevice(r.device)
		sign = c.Node("Identity", name+"/sign", []string{sign, "^" + done}, graphs.Type("T", float32Type))
		c.OnDevice(r.host)
		done = c.Node("Identity", name+"/host", []string{sign}, graphs.Type("T", float32Type))
	}
	return c.Node("Timestamp", name, []string{"^" + done})
}

// clocks puts readings of a replica's clock together.
func (c *composer) clocks(name string, r *replica, readings ...string) string {
	c.OnDevice(r.host)
	return c.Node("Pack", name, readings, graphs.Type("T", dtpb.DataType_DT_DOUBLE), graphs.Int("N", int64(len(readings))), graphs.Int("axis", 0))
}

// applied adds the clocks of an update to those before it: once the sums are there, and
// once the new values are. No value is new where the step is not applied.
func (c *composer) applied(prefix string, r *replica, began []string, d decision, sums, updates []string) string {
	name := r.prefix + prefix + "clock/"
	typeT := graphs.Type("T", dtpb.DataType_DT_DOUBLE)
	reduced := c.clock(name+"reduced", r, d.scale, sums...)
	updated := c.clock(name+"updated", r, d.scale, updates...)
	refused := c.Node("Switch", name+"refused", []string{reduced, d.finite}, typeT) + ":0"
	ended := c.Node("Merge", name+"ended", []string{updated, refused}, typeT, graphs.Int("N", 2))
	return c.clocks(name+"all", r, append(slices.Clone(began), reduced, ended)...)
}

// tally adds up what the calls of a step took on every replica.
type tally []Times

// take adds the clocks that stand before a call's other results, and returns these. A
// replica's are those of a micro-batch, its beginning and its last gradient, with those
// of the update, or without.
func (t tally) take(out []*tf.Tensor) ([]*tf.Tensor, error) {
	for i := range t {
		at, ok := out[i].Value().([]float64)
		if !ok || len(at) != 2 && len(at) != 4 {
			return nil, fmt.Errorf("clock of replica %d: %v of shape %v", i, out[i].DataType(), out[i].Shape())
		}
		t[i].Compute += seconds(at[1] - at[0])
		if len(at) == 4 {
			t[i].Reduce += seconds(at[2] - at[1])
			t[i].Update += seconds(at[3] - at[2])
		}
	}
	return out[len(t):], nil
}

// seconds is a duration, none where a clock was put back.
func seconds(s float64) time.Duration { return max(0, time.Duration(s*float64(time.Second))) }

// took adds a step's times to the model's.
func (m *Model) took(t tally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range t {
		m.times[i].Compute += t[i].Compute
		m.times[i].Reduce += t[i].Reduce
		m.times[i].Update += t[i].Update
	}
}
