package compose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/kernelops"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// Compose builds the graph of all replicas.
func Compose(export *graphs.Export, l Layout) (*Plan, error) {
	if err := cmp.Or(l.Factors.check(export.Contract), l.Average.check(export.Contract), l.checkPhases(export.Contract)); err != nil {
		return nil, err
	}
	functions := passFunctions(export.Contract)
	if l.Train {
		functions = append(functions, trainingFunctions(export.Contract)...)
	}
	generates := (!l.Train || l.Generate) && export.Contract.Generation != nil
	if generates {
		functions = append(functions, "generate")
		if export.Contract.Generation.Source != nil {
			functions = append(functions, "encode")
		}
	}
	c := newComposer(export, l, functions)
	if l.Shard { // also for lanes: the work for their variables then runs in parallel
		c.share()
	}
	if l.Own {
		c.substitute()
	}
	if err := c.checkOffload(); err != nil {
		return nil, err
	}
	if l.Train {
		c.divideUpdates()
	}
	if err := c.variables(l.Train); err != nil {
		return nil, err
	}
	for i, r := range c.replicas {
		if l.Shared && i > 0 {
			break
		}
		c.plan.Evaluate = append(c.plan.Evaluate, c.call(r, "evaluate"))
		c.plan.Predict = append(c.plan.Predict, c.call(r, "predict"))
	}
	c.results()
	c.merge()
	if generates {
		c.generate()
	}
	if !l.Train {
		return c.plan, nil
	}
	if err := c.trainSteps(); err != nil {
		return nil, err
	}
	if c.Steps > 1 {
		if err := c.loop(); err != nil {
			return nil, err
		}
	}
	return c.plan, nil
}

// passFunctions returns the functions that every graph has.
func passFunctions(contract *graphs.Contract) []string {
	out := []string{"evaluate", "predict"}
	if len(contract.Results) > 0 {
		out = append(out, "results")
	}
	if len(contract.Merge) > 0 {
		out = append(out, "merge")
	}
	return out
}

// trainingFunctions returns the functions of a training step.
func trainingFunctions(contract *graphs.Contract) []string {
	var out []string
	for _, p := range contract.StepPhases() {
		out = append(out, p.Gradients())
	}
	return append(out, slices.Sorted(maps.Keys(contract.Updates))...)
}

// newComposer begins a graph that can call the named functions of the export.
func newComposer(export *graphs.Export, l Layout, functions []string) *composer {
	c := &composer{
		Builder:   build.New(export.Library(functions...), export.Versions()),
		Layout:    l,
		export:    export,
		trained:   l.Factors.apply(export.Contract.Variables),
		updates:   make(map[string]update),
		offloaded: make(map[string]build.Op),
		plan:      &Plan{Reads: make(map[string][]build.Ref), Assigns: make(map[string]Assignment)},
	}
	c.plan.builder = c.Builder
	for i, device := range l.Devices {
		r := &replica{device: device, host: hostOf(device), handles: make(map[string]build.Ref)}
		if i > 0 {
			r.prefix = fmt.Sprintf("replica_%d/", i)
		}
		if r.device != r.host && !l.Hosted && l.Together == 0 {
			c.Together = togetherBytes
		}
		c.replicas = append(c.replicas, r)
	}
	return c
}

// substitute replaces functions by our kernels. TensorFlow does not allow a function with side
// effects to have an _implements attribute, so update is found by the optimizer's name and the names
// of its arguments.
func (c *composer) substitute() {
	ops := kernelops.Ops()
	c.Declare(kernels.Squares, "sum")
	c.Declare(kernels.StoreMapped, "y")
	c.Declare(kernels.AddMapped, "y")
	c.plan.Kernels = c.Substitute(ops)
	// Targets attend to the rows of the sources.
	c.plan.withinSequences = kernels.WithinSequences(c.plan.Kernels) && !c.export.Contract.HasTargets()
	for _, op := range ops {
		same := func(a, b graphs.Arg) bool { return a.Name == b.Name }
		if f := c.export.Functions["update"]; f != nil && op.Implements == "gorbit."+c.export.Contract.Optimizer.Name && slices.EqualFunc(f.Inputs, op.Inputs, same) {
			if c.SubstituteFunction(f, op) && c.Offload != "" {
				c.offloaded["update"] = op
			}
		}
	}
}

// results adds the call that computes metrics from sums, on the first replica's host.
func (c *composer) results() {
	f := c.export.Functions["results"]
	if f == nil {
		return
	}
	p := &Results{Sums: c.export.Contract.Results}
	c.OnDevice(c.replicas[0].host)
	inputs := make(map[string]build.Ref)
	for _, a := range f.Inputs {
		name := "results/" + a.Name
		inputs[a.Name] = c.Node("Reshape", name+"/shaped", []build.Ref{c.Placeholder(name, float32Type, []int64{-1}), c.Int64s(name+"/shape", a.Shape)},
			build.Type("T", float32Type), build.Type("Tshape", int64Type))
	}
	evaluate := c.export.Functions["evaluate"]
	for i, sum := range p.Sums {
		p.Feeds = append(p.Feeds, build.Ref{Node: fmt.Sprintf("results/sum_%d", i)})
		p.Sizes = append(p.Sizes, int(elements(evaluate.Outputs[evaluate.Output(sum)].Shape)))
	}
	node := c.Call("results", f, inputs, nil)
	for i, a := range f.Outputs {
		p.Metrics = append(p.Metrics, a.Name)
		p.Fetches = append(p.Fetches, node.Output(i))
	}
	c.plan.Results = p
}

// merge adds the call that gives variables as they are served, on the first replica.
func (c *composer) merge() {
	f := c.export.Functions["merge"]
	if f == nil {
		return
	}
	c.OnDevice(c.replicas[0].device)
	node := c.Call("merge", f, nil, c.replicas[0].handles)
	for i, a := range f.Outputs {
		c.plan.Reads[graphs.MergePrefix+a.Name] = []build.Ref{node.Output(i)}
	}
}

// call adds a replica's call of a function whose only arguments are features.
func (c *composer) call(r *replica, name string) *Call {
	f := c.export.Functions[name]
	feeds, inputs := c.feed(r.prefix+name+"/features", f, []*replica{r})
	c.OnDevice(r.device)
	node := c.Call(r.prefix+name, f, inputs[0], c.passHandles(r))
	p := &Call{Name: name, Feeds: feeds}
	for i, a := range f.Outputs {
		p.Outputs = append(p.Outputs, a.Name)
		p.Fetches = append(p.Fetches, node.Output(i))
	}
	return p
}
