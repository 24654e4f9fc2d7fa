package compose

import (
	"fmt"
	"strings"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/shardinput"
)

// readLocally adds the operations with which every worker reads the features of its replicas. It
// returns the nodes of the features of each replica.
func (c *composer) readLocally(f *graphs.Function) (*Local, []map[string]build.Ref, error) {
	features := c.features(f)
	p := &Local{Rows: c.rowFeatures()}
	config := shardinput.Config{Data: *c.Local, Features: Flat(features.Features), Rows: p.Rows, LongRows: c.plan.LongRows()}
	c.OnDevice(c.replicas[0].host)
	p.Request = c.Placeholder("draw/request", int64Type, []int64{shardinput.DrawNumbers})
	p.Take = c.Placeholder("take/request", int64Type, []int64{shardinput.TakeNumbers})
	out := make([]map[string]build.Ref, len(c.replicas))
	for from := 0; from < len(c.replicas); {
		to := from + 1
		for to < len(c.replicas) && taskOf(c.replicas[to].device) == taskOf(c.replicas[from].device) {
			to++
		}
		config.Part, config.Replicas = dataset.Part{From: from, To: to, Of: len(c.replicas)}, to-from
		text, err := config.JSON()
		if err != nil {
			return nil, nil, err
		}
		p.Replicas = append(p.Replicas, to-from)
		name := fmt.Sprintf("draw/%d", config.Worker)
		c.OnDevice(c.replicas[from].host)
		draw := c.Node(shardinput.Draw, name, []build.Ref{c.Bytes(name+"/config", text), p.Request})
		p.Fetches = append(p.Fetches, draw.Output(0), draw.Output(1))
		for i, r := range c.replicas[from:to] {
			own := r.prefix + "take"
			c.OnDevice(r.host)
			take := c.Node(shardinput.Take, own, []build.Ref{p.Take, c.Int64s(own+"/place", []int64{int64(i), int64(to - from)})})
			values := make([]build.Ref, len(features.Kinds))
			for k, kind := range features.Kinds {
				values[k] = take.Output(shardinput.TakeOutput(kind.DType))
			}
			out[from+i] = c.cut(own, features, r, values, take.Output(shardinput.TakeLayout))
		}
		from = to
		config.Worker++
	}
	return p, out, nil
}

// taskOf returns the task part of a device's full name.
func taskOf(device string) string {
	return device[:max(0, strings.LastIndex(strings.ToLower(device), "/device:"))]
}
