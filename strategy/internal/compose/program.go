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

// program is a function that XLA compiles as a whole: one call computes all of it. It has the variables
// of a replica as arguments, and changes them in place.
type program struct {
	name string
	out  []dtpb.DataType
}

// compiled reports whether the training step is a program. It is not where several replicas meet:
// whether their sums work inside of what XLA compiles was never tried on GPUs.
func (c *composer) compiled() bool { return c.export.Contract.XLA && len(c.replicas) == 1 }

// define adds a program with the given arguments. Body adds its nodes with a composer of the program,
// given the argument of each value, and returns the outputs and the nodes that change variables.
func (c *composer) define(name string, arguments []value, body func(*composer, *replica, map[build.Ref]build.Ref) (out []value, effects []build.Ref)) (*program, error) {
	f := c.Function(name)
	in, args := c.inside(f, arguments)
	r := in.replicas[0]
	r.device, r.host = "", "" // XLA places what it compiles
	r.inputs = make(map[string]build.Ref)
	for name, ref := range c.replicas[0].inputs {
		r.inputs[name] = args[ref]
	}
	out, effects := body(in, r, args)
	p := new(program)
	for i, v := range out {
		f.Return(fmt.Sprintf("out_%d", i), v.node, v.dtype)
		p.out = append(p.out, v.dtype)
	}
	for _, node := range effects {
		f.Effect(node)
	}
	var err error
	p.name, err = f.End()
	return p, err
}

// callProgram adds a call of a program.
func (c *composer) callProgram(name string, p *program, arguments []value, after ...build.Ref) build.Ref {
	var inputs []build.Ref
	var types []dtpb.DataType
	for _, v := range arguments {
		inputs, types = append(inputs, v.node), append(types, v.dtype)
	}
	c.OnDevice(c.replicas[0].device)
	return c.CallNamed(name, p.name, inputs, types, p.out, true, after...)
}

// fed are the arguments of a program that computes gradients: features and the seed of the replica, and
// the scalars.
func (c *composer) fed(seed, scalars build.Ref) []value {
	var out []value
	r := c.replicas[0]
	for _, name := range slices.Sorted(maps.Keys(r.inputs)) {
		out = append(out, value{r.inputs[name], typeOf(c.export.Contract.Feature(name).DType)})
	}
	return append(out, value{seed, int64Type}, value{scalars, float32Type})
}

// handles are the variables of the replica as arguments.
func (c *composer) handles() []value {
	var out []value
	r := c.replicas[0]
	for _, name := range slices.Sorted(maps.Keys(r.handles)) {
		out = append(out, value{r.handles[name], resourceType})
	}
	return out
}

// takeScalars makes the scalars of a step inputs of a replica.
func (c *composer) takeScalars(prefix string, r *replica, scalars []graphs.Hyperparameter, vector build.Ref) {
	all := c.Node("Unpack", prefix+"scalars", []build.Ref{vector}, build.Int("num", int64(len(scalars))), build.Int("axis", 0), build.Type("T", float32Type))
	for i, h := range scalars {
		r.inputs[h.Name] = all.Output(i)
	}
}

// passOf adds a replica's call of the gradients function inside of a program.
func (c *composer) passOf(prefix string, r *replica, gradients *graphs.Function) func(output string) build.Ref {
	own := *gradients
	own.XLA = false // XLA compiles the program around it
	call := c.Call(prefix+"gradients", &own, r.inputs, r.handles)
	return func(output string) build.Ref { return call.Output(gradients.Output(output)) }
}

// judged adds a replica's gradients and the decision on the step. Total adds what makes the total over
// all replicas of an output of gradients. Sums are the totals of those outputs.
func (c *composer) judged(prefix string, r *replica, gradients *graphs.Function, sums []string, total func(name string, own build.Ref) build.Ref) (made, map[string]build.Ref, decision) {
	output := c.passOf(prefix, r, gradients)
	m := made{grads: make(map[string]build.Ref)}
	for _, v := range c.backward(gradients) {
		m.grads[v.Name] = total(v.Name, output(outputOf(v)))
	}
	all := make(map[string]build.Ref)
	for _, name := range sums {
		all[name] = total(name, output(name))
	}
	m.weight, m.loss = all["weight_sum"], all["loss_sum"]
	return m, all, c.judge(prefix, r, c.squares(prefix+"squares", c.gradientsOf(m)), m)
}

// gradientsOf lists the gradients of the trained variables.
func (c *composer) gradientsOf(m made) []build.Ref {
	var out []build.Ref
	for _, v := range c.trained {
		out = append(out, m.grads[v.Name])
	}
	return out
}

// selected adds the updates of all variables inside of a program, and returns the nodes that change
// variables. XLA knows no dead tensors: the updates are computed in any case, and where the step is
// not applied every variable is assigned the value that it had. That is part of the kernel that
// computes the new value, where a branch would wait for the host of a GPU.
func (c *composer) selected(r *replica, m made, d decision) []build.Ref {
	applied := d.finite
	d.finite, d.average, d.shared = build.Ref{}, c.averaging("", d.iteration), c.shared("", r, d.iteration)
	types := make(map[string]dtpb.DataType)
	for _, v := range c.plan.Variables {
		types[v.Name] = v.DType
	}
	effects := []build.Ref{d.counted}
	pick := func(name string, updated, old build.Ref) {
		effects = append(effects, c.Assign("select/"+name, r.handles[name],
			c.Node("SelectV2", "selected/"+name, []build.Ref{applied, updated, old}, build.Type("T", types[name])), types[name]))
	}
	for _, v := range c.trained {
		names := []string{v.Name}
		for _, slot := range c.export.Contract.SlotsOf(v) {
			names = append(names, graphs.SlotName(slot.Name, v.Name))
		}
		if c.Average.on() {
			names = append(names, graphs.AveragePrefix+v.Name)
		}
		own := &replica{inputs: r.inputs, handles: make(map[string]build.Ref)}
		old := make(map[string]build.Ref)
		for _, name := range names {
			// After the gradients, as the new values are.
			old[name] = c.Read("old/"+name, r.handles[name], types[name], d.scale)
			own.handles[name] = c.Node("Identity", "kept/"+name, []build.Ref{r.handles[name], old[name].After()}, build.Type("T", resourceType))
		}
		updated := c.average("", own, v, c.update("", own, v, m.grads[v.Name], d), d.average)
		for _, name := range names {
			pick(name, c.Read("updated/"+name, r.handles[name], types[name], updated), old[name])
		}
	}
	for _, s := range c.export.Contract.UpdatedStates() {
		pick(s.Name, d.states[s.Name], c.Read("old/"+s.Name, r.handles[s.Name], types[s.Name], d.scale))
	}
	return effects
}

// programs adds the training step as programs: one for a step of one micro-batch; for one of several,
// those that clear the accumulators, add to them, and apply them.
func (c *composer) programs(t *Train, seeds build.Ref) error {
	c.plan.Programs = true
	c.KeepControlFlow()
	for _, a := range c.gradient.Outputs {
		if !strings.HasPrefix(a.Name, graphs.GradientPrefix) && !strings.HasPrefix(a.Name, graphs.StatePrefix) {
			t.Sums = append(t.Sums, a.Name)
		}
	}
	sumsOf := func(sum func(string) build.Ref) (out []value) {
		for _, name := range t.Sums {
			out = append(out, value{sum(name), c.gradient.Outputs[c.gradient.Output(name)].DType})
		}
		return out
	}
	seed := seeds.Output(0)
	arguments := slices.Concat(c.fed(seed, t.ScalarFeed), c.handles())
	var err error
	c.step, err = c.define("gorbit_step", arguments, func(in *composer, r *replica, args map[build.Ref]build.Ref) ([]value, []build.Ref) {
		in.takeScalars("", r, t.Scalars, args[t.ScalarFeed])
		r.inputs["seed"] = args[seed]
		m, sums, d := in.judged("", r, c.gradient, t.Sums, func(_ string, own build.Ref) build.Ref { return own })
		out := sumsOf(func(name string) build.Ref { return sums[name] })
		return append(out, decidedOf(d)...), in.selected(r, m, d)
	})
	if err != nil {
		return err
	}
	t.Step, t.SumFetches = c.stepCall(t, seed)
	return c.roundPrograms(t, seed, sumsOf)
}

// stepCall adds a call of the program of a step, and returns it with the sums.
func (c *composer) stepCall(t *Train, seed build.Ref) (Apply, []build.Ref) {
	call := c.callProgram("step", c.step, slices.Concat(c.fed(seed, t.ScalarFeed), c.handles()))
	return applyOf(call, len(t.Sums)), roundOf(call, len(t.Sums)).Sums
}

// decidedOf returns what is fetched of a decision, as Apply.Fetches has it.
func decidedOf(d decision) []value {
	return []value{{d.norm, float32Type}, {d.finite, boolType}, {d.iteration, int64Type}}
}

// applyOf returns a call of a program whose output i is the first of a decision's.
func applyOf(call build.Ref, i int) Apply {
	return Apply{Fetches: []build.Ref{call.Output(i), call.Output(i + 1), call.Output(i + 2)}, Done: call}
}

// roundPrograms adds the programs of a step of several micro-batches.
func (c *composer) roundPrograms(t *Train, seed build.Ref, sumsOf func(func(string) build.Ref) []value) error {
	r := c.replicas[0]
	c.OnDevice(r.device)
	all := slices.Concat(c.trained, c.stateChanges())
	handles := make(map[string]build.Ref)
	var accumulators []value
	for _, v := range all {
		handles[v.Name] = c.Variable("accumulator/"+v.Name, float32Type, v.Shape)
		accumulators = append(accumulators, value{handles[v.Name], resourceType})
	}
	clear, err := c.define("gorbit_clear", accumulators, func(in *composer, _ *replica, args map[build.Ref]build.Ref) (_ []value, effects []build.Ref) {
		for _, v := range all {
			effects = append(effects, in.Assign("clear/"+v.Name, args[handles[v.Name]], in.zeros("zero/"+v.Name, float32Type, v.Shape, false), float32Type))
		}
		return nil, effects
	})
	if err != nil {
		return err
	}
	arguments := slices.Concat(c.fed(seed, t.ScalarFeed), c.handles(), accumulators)
	round, err := c.define("gorbit_round", arguments, func(in *composer, r *replica, args map[build.Ref]build.Ref) (_ []value, effects []build.Ref) {
		in.takeScalars("", r, t.Scalars, args[t.ScalarFeed])
		r.inputs["seed"] = args[seed]
		output := in.passOf("", r, c.gradient)
		for _, v := range all {
			effects = append(effects, in.Node("AssignAddVariableOp", "add/"+v.Name, []build.Ref{args[handles[v.Name]], output(outputOf(v))}, build.Type("dtype", float32Type)))
		}
		return sumsOf(output), effects
	})
	if err != nil {
		return err
	}
	t.First = roundOf(c.callProgram("accumulate/first", round, arguments, c.callProgram("accumulate/clear", clear, accumulators)), len(t.Sums))
	t.Next = roundOf(c.callProgram("accumulate/next", round, arguments), len(t.Sums))

	c.OnDevice(r.host)
	t.Totals = c.Placeholder("totals", float32Type, []int64{2})
	arguments = slices.Concat([]value{{t.ScalarFeed, float32Type}, {t.Totals, float32Type}}, c.handles(), accumulators)
	apply, err := c.define("gorbit_apply", arguments, func(in *composer, r *replica, args map[build.Ref]build.Ref) ([]value, []build.Ref) {
		in.takeScalars("", r, t.Scalars, args[t.ScalarFeed])
		sums := in.Node("Unpack", "totals", []build.Ref{args[t.Totals]}, build.Int("num", 2), build.Int("axis", 0), build.Type("T", float32Type))
		m := made{grads: make(map[string]build.Ref), weight: sums.Output(0), loss: sums.Output(1)}
		for _, v := range all {
			m.grads[v.Name] = in.Read("accumulated/"+v.Name, args[handles[v.Name]], float32Type)
		}
		d := in.judge("", r, in.squares("squares", in.gradientsOf(m)), m)
		return decidedOf(d), in.selected(r, m, d)
	})
	if err != nil {
		return err
	}
	t.Apply = applyOf(c.callProgram("apply", apply, arguments), 0)
	return nil
}

// roundOf returns a call of a round's program.
func roundOf(call build.Ref, sums int) Round {
	out := Round{Done: call}
	for i := range sums {
		out.Sums = append(out.Sums, call.Output(i))
	}
	return out
}
