package compose

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
)

// made holds the outputs of the gradients function by replica.
type made struct {
	grads           []map[string]string // by variable, and changes of states by output
	weights, losses []string
	began           [][]string // clock readings at the start and after the gradients
}

func newMade(replicas int) made {
	return made{make([]map[string]string, replicas), make([]string, replicas), make([]string, replicas), make([][]string, replicas)}
}

// trainStep adds the training step: the replicas' gradients, and their paths to the variables.
func (c *composer) trainStep() error {
	contract := c.export.Contract
	c.gradient = c.withoutFrozen(c.export.Functions["gradients"])
	gradients := c.gradient
	t := &Train{Rows: make(map[string]RowFeed)}
	c.plan.Train, c.rows = t, t.Rows
	var inputs []map[string]string
	var err error
	if c.Local != nil {
		t.Local, inputs, err = c.readLocally(gradients)
	} else {
		t.Feeds, inputs = c.feed("features", gradients, c.replicas)
	}
	if err != nil {
		return err
	}

	c.OnDevice(c.replicas[0].host)
	t.Scalars = append([]graphs.Hyperparameter{{Name: "learning_rate"}, {Name: "weight_decay"}, {Name: "clip_norm", Default: 1}},
		contract.AllHyperparameters()...)
	t.ScalarFeed = c.Placeholder("scalars", float32Type, []int64{int64(len(t.Scalars))})
	t.Seeds = c.Placeholder("seed", int64Type, []int64{int64(len(c.replicas)), 2})
	seeds := c.Node("Unpack", "seed/unpack", []string{t.Seeds},
		build.Int("num", int64(len(c.replicas))), build.Int("axis", 0), build.Type("T", int64Type))

	if len(c.replicas) > 1 {
		for _, feature := range c.rowFeatures() {
			t.Rows[feature] = RowFeed{c.Placeholder("rows/"+feature, dtpb.DataType_DT_INT32, []int64{-1}),
				c.Placeholder("rows/class/"+feature, dtpb.DataType_DT_INT32, nil)}
		}
	}
	m := newMade(len(c.replicas))
	for i, r := range c.replicas {
		r.inputs = inputs[i]
		c.gradients(t, gradients, i, fmt.Sprintf("%s:%d", seeds, i), &m)
	}
	order := c.backward(gradients)
	t.Step, _ = c.apply("", order, m.grads, m.weights, m.losses, false, m.began)
	c.accumulate(t, order, m.grads)
	return nil
}

// withoutFrozen returns the gradients function without the gradients of frozen variables, so that the
// backward pass ends where no variable is trained.
func (c *composer) withoutFrozen(gradients *graphs.Function) *graphs.Function {
	return c.Without(gradients, func(output string) bool {
		name, ok := strings.CutPrefix(output, graphs.GradientPrefix)
		return ok && !slices.ContainsFunc(c.trained, func(v graphs.Variable) bool { return v.Name == name })
	})
}

// gradients adds replica i's call of the gradients function and stores its outputs in m. The
// replica's inputs must hold the features.
func (c *composer) gradients(t *Train, gradients *graphs.Function, i int, seed string, m *made) {
	r := c.replicas[i]
	c.OnDevice(r.host)
	unpacked := c.Node("Unpack", r.prefix+"scalars/unpack", []string{t.ScalarFeed},
		build.Int("num", int64(len(t.Scalars))), build.Int("axis", 0), build.Type("T", float32Type))
	for j, h := range t.Scalars {
		r.inputs[h.Name] = fmt.Sprintf("%s:%d", unpacked, j)
	}
	r.inputs["seed"] = seed

	c.OnDevice(r.device)
	var after []string
	if c.looped { // the step before has changed the variables
		after = append(after, unpacked)
	}
	call := c.Call(r.prefix+"gradients", gradients, r.inputs, r.handles, after...)
	out := func(name string) string { return fmt.Sprintf("%s:%d", call, gradients.Output(name)) }
	m.grads[i] = make(map[string]string)
	for _, a := range gradients.Outputs {
		if name, ok := strings.CutPrefix(a.Name, graphs.GradientPrefix); ok {
			m.grads[i][name] = out(a.Name)
			continue
		}
		if strings.HasPrefix(a.Name, graphs.StatePrefix) {
			m.grads[i][a.Name] = out(a.Name)
			continue
		}
		if i == 0 {
			t.Sums = append(t.Sums, a.Name)
		}
		t.SumFetches = append(t.SumFetches, out(a.Name))
	}
	m.weights[i], m.losses[i] = out("weight_sum"), out("loss_sum")
	if c.timed() {
		// If TensorFlow inlines the call, its node completes before its outputs.
		var made []string
		for _, v := range c.trained {
			made = append(made, c.Node("Identity", r.prefix+"clock/made/"+v.Name, []string{m.grads[i][v.Name]}, build.Type("T", float32Type)))
		}
		m.began[i] = []string{c.clock(r.prefix+"clock/began", r, "", slices.Collect(maps.Values(r.inputs))...), c.clock(r.prefix+"clock/computed", r, m.weights[i], made...)}
		t.Clocks = append(t.Clocks, c.clocks(r.prefix+"clock", r, m.began[i]...))
	}
}

// accumulate adds the path through accumulators, which sum the gradients and the changes of states of
// several micro-batches before they are applied.
func (c *composer) accumulate(t *Train, order []graphs.Variable, grads []map[string]string) {
	var first, next []string
	m := newMade(len(c.replicas))
	for i, r := range c.replicas {
		c.OnDevice(r.device)
		m.grads[i] = make(map[string]string)
		for _, v := range slices.Concat(c.trained, c.stateChanges()) {
			name := r.prefix + "accumulator/" + v.Name
			handle := c.Variable(name, float32Type, v.Shape)
			first = append(first, c.Node("AssignVariableOp", r.prefix+"accumulate/first/"+v.Name,
				[]string{handle, grads[i][v.Name]}, build.Type("dtype", float32Type)))
			next = append(next, c.Node("AssignAddVariableOp", r.prefix+"accumulate/next/"+v.Name,
				[]string{handle, grads[i][v.Name]}, build.Type("dtype", float32Type)))
			m.grads[i][v.Name] = c.Read(r.prefix+"accumulated/"+v.Name, handle, float32Type)
		}
	}
	c.OnDevice(c.replicas[0].host)
	t.First, t.Next = c.Group("accumulate/first", first...), c.Group("accumulate/next", next...)
	t.Totals = c.Placeholder("totals", float32Type, []int64{2})
	for i, r := range c.replicas {
		c.OnDevice(r.host)
		totals := c.Node("Unpack", r.prefix+"totals/unpack", []string{t.Totals},
			build.Int("num", 2), build.Int("axis", 0), build.Type("T", float32Type))
		m.weights[i], m.losses[i] = totals+":0", totals+":1"
		if c.timed() {
			begin := c.clock(r.prefix+"apply/clock/began", r, "", totals)
			m.began[i] = []string{begin, begin}
		}
	}
	t.Apply, _ = c.apply("apply/", order, m.grads, m.weights, m.losses, true, m.began)
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
