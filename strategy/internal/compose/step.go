package compose

import (
	"maps"
	"slices"
	"strings"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// made is what the gradients function made on a replica.
type made struct {
	grads        map[string]build.Ref // by variable, and changes of states by output
	weight, loss build.Ref            // sums
	began        []build.Ref          // clock readings at the start and after the gradients
	sums         []build.Ref          // all that are fetched
}

// trainStep adds the training step, or one of its phases: the replicas' gradients, and their paths to the
// variables.
func (c *composer) trainStep() error {
	contract := c.export.Contract
	c.gradient = c.withoutFrozen(c.export.Functions[c.phase.Gradients()])
	gradients := c.gradient
	t := &Train{Phase: c.phase, Rows: make(map[string]RowFeed)}
	c.plan.Phases, c.rows = append(c.plan.Phases, t), t.Rows
	c.plan.Train = c.plan.Phases[0]
	var inputs []map[string]build.Ref
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
	seeds := c.Node("Unpack", "seed/unpack", []build.Ref{t.Seeds},
		build.Int("num", int64(len(c.replicas))), build.Int("axis", 0), build.Type("T", int64Type))
	if c.phase.Name != "" {
		t.Last = c.Placeholder("last", int64Type, nil)
	}

	if len(c.replicas) > 1 {
		for _, feature := range c.rowFeatures() {
			t.Rows[feature] = RowFeed{c.Placeholder("rows/"+feature, dtpb.DataType_DT_INT32, []int64{-1}),
				c.Placeholder("rows/class/"+feature, dtpb.DataType_DT_INT32, nil)}
		}
	}
	for i, r := range c.replicas {
		r.inputs = inputs[i]
	}
	if c.compiled() {
		return c.programs(t, seeds)
	}
	m := make([]made, len(c.replicas))
	for i, r := range c.replicas {
		m[i] = c.gradients(t, gradients, r, seeds.Output(i))
		own := make(map[string]build.Ref, len(c.trained))
		for _, v := range c.trained {
			own[v.Name] = m[i].grads[v.Name]
		}
		t.Gradients = append(t.Gradients, own)
	}
	order := c.backward(gradients)
	stored := c.stored(m)
	t.Step, _ = c.apply("", order, stored, false)
	c.accumulate(t, order, m, stored)
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

// gradients adds a replica's call of the gradients function. The replica's inputs must hold the
// features.
func (c *composer) gradients(t *Train, gradients *graphs.Function, r *replica, seed build.Ref) made {
	c.OnDevice(r.host)
	unpacked := c.Node("Unpack", r.prefix+"scalars/unpack", []build.Ref{t.ScalarFeed},
		build.Int("num", int64(len(t.Scalars))), build.Int("axis", 0), build.Type("T", float32Type))
	for j, h := range t.Scalars {
		r.inputs[h.Name] = unpacked.Output(j)
	}
	r.inputs["seed"] = seed

	c.OnDevice(r.device)
	var after []build.Ref
	if c.looped { // the step before has changed the variables
		after = append(after, unpacked)
	}
	call := c.Call(r.prefix+"gradients", gradients, r.inputs, r.handles, after...)
	out := func(name string) build.Ref { return call.Output(gradients.Output(name)) }
	m := made{grads: make(map[string]build.Ref), weight: out("weight_sum"), loss: out("loss_sum")}
	for _, a := range gradients.Outputs {
		if name, ok := strings.CutPrefix(a.Name, graphs.GradientPrefix); ok {
			m.grads[name] = out(a.Name)
			continue
		}
		if strings.HasPrefix(a.Name, graphs.StatePrefix) {
			m.grads[a.Name] = out(a.Name)
			continue
		}
		if r == c.replicas[0] {
			t.Sums, t.SumOutputs = append(t.Sums, a.Name), append(t.SumOutputs, gradients.Output(a.Name))
		}
		// TensorFlow gives a fetched call all its outputs at once: no gradient would be free before the end.
		sum := c.Node("Identity", r.prefix+"sums/"+a.Name, []build.Ref{out(a.Name)}, build.Type("T", a.DType))
		t.SumFetches = append(t.SumFetches, sum)
		m.sums = append(m.sums, sum)
	}
	if c.timed() {
		// If TensorFlow inlines the call, its node completes before its outputs.
		var grads []build.Ref
		for _, v := range c.trained {
			grads = append(grads, c.Node("Identity", r.prefix+"clock/made/"+v.Name, []build.Ref{m.grads[v.Name]}, build.Type("T", float32Type)))
		}
		m.began = []build.Ref{c.clock(r.prefix+"clock/began", r, build.Ref{}, slices.Collect(maps.Values(r.inputs))...), c.clock(r.prefix+"clock/computed", r, m.weight, grads...)}
		t.Clocks = append(t.Clocks, c.clocks(r.prefix+"clock", r, m.began...))
	}
	if r.device != r.host {
		c.OnDevice(r.device)
		c.scalarsOnDevice(t, r)
	}
	return m
}

// scalarsOnDevice copies the scalars of a replica's updates to its device, once for all variables.
func (c *composer) scalarsOnDevice(t *Train, r *replica) {
	unpacked := c.Node("Unpack", r.prefix+"scalars/device", []build.Ref{t.ScalarFeed},
		build.Int("num", int64(len(t.Scalars))), build.Int("axis", 0), build.Type("T", float32Type))
	for i, h := range t.Scalars {
		if !slices.ContainsFunc(c.export.Contract.Hyperparameters, func(own graphs.Hyperparameter) bool { return own.Name == h.Name }) {
			r.inputs[h.Name] = unpacked.Output(i)
		}
	}
}

// accumulate adds the path through accumulators, which sum the gradients and the changes of states of
// several micro-batches before they are applied. Where variables are offloaded, the accumulators are the
// files of the gradients, in which those of the first micro-batch are stored.
func (c *composer) accumulate(t *Train, order []graphs.Variable, m, stored []made) {
	var first, next []build.Ref
	totals := make([]made, len(c.replicas))
	for i, r := range c.replicas {
		c.OnDevice(r.device)
		totals[i].grads = make(map[string]build.Ref)
		for _, v := range slices.Concat(c.trained, c.stateChanges()) {
			if c.inFiles(v) {
				first = append(first, stored[i].grads[v.Name])
				next = append(next, c.intoFile(kernels.AddMapped, r.prefix+"accumulate/next/"+v.Name, r, v, m[i].grads[v.Name]))
				totals[i].grads[v.Name] = c.Read(r.prefix+"accumulated/"+v.Name, r.handles[gradientFile(r, v)], float32Type)
				continue
			}
			name := r.prefix + "accumulator/" + v.Name
			handle := c.Variable(name, float32Type, v.Shape)
			first = append(first, c.Node("AssignVariableOp", r.prefix+"accumulate/first/"+v.Name,
				[]build.Ref{handle, m[i].grads[v.Name]}, build.Type("dtype", float32Type)))
			next = append(next, c.Node("AssignAddVariableOp", r.prefix+"accumulate/next/"+v.Name,
				[]build.Ref{handle, m[i].grads[v.Name]}, build.Type("dtype", float32Type)))
			totals[i].grads[v.Name] = c.Read(r.prefix+"accumulated/"+v.Name, handle, float32Type)
		}
	}
	c.OnDevice(c.replicas[0].host)
	t.First, t.Next = Round{t.SumFetches, c.Group("accumulate/first", first...)}, Round{t.SumFetches, c.Group("accumulate/next", next...)}
	t.Totals = c.Placeholder("totals", float32Type, []int64{2})
	for i, r := range c.replicas {
		c.OnDevice(r.host)
		sums := c.Node("Unpack", r.prefix+"totals/unpack", []build.Ref{t.Totals},
			build.Int("num", 2), build.Int("axis", 0), build.Type("T", float32Type))
		totals[i].weight, totals[i].loss = sums.Output(0), sums.Output(1)
		if c.timed() {
			begin := c.clock(r.prefix+"apply/clock/began", r, build.Ref{}, sums)
			totals[i].began = []build.Ref{begin, begin}
		}
	}
	t.Apply, _ = c.apply("apply/", order, totals, true)
}
