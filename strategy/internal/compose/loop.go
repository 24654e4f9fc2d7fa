package compose

import (
	"fmt"
	"maps"
	"slices"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
)

// loop adds the call of several steps: a While whose body is the training step with one micro-batch
// per replica. Its inputs are the feeds of all steps, and the body takes those of its own step. The
// results go to a variable, so that those of the finished steps are not lost if a later one fails.
func (c *composer) loop() error {
	gradients := c.gradient
	p := &Loop{Steps: c.Steps}
	if len(c.replicas) > 1 {
		p.Rows = c.rowFeatures()
	}
	c.plan.Loop = p
	if err := p.sizes(c, gradients); err != nil {
		return err
	}
	host := c.replicas[0].host
	c.OnDevice(host)
	results := value{c.Variable("loop/results", float64Type, []int64{int64(p.Steps), p.width()}), resourceType}
	done := value{c.Variable("loop/done", int64Type, []int64{2}), resourceType}
	zero := c.Node("Fill", "loop/zero", []build.Ref{c.Int64s("loop/zero/shape", []int64{int64(p.Steps), p.width()}),
		c.Node("Cast", "loop/zero/value", []build.Ref{c.Float("loop/zero/float", 0)}, build.Type("SrcT", float32Type), build.Type("DstT", float64Type))},
		build.Type("T", float64Type), build.Type("index_type", int64Type))
	begin := []build.Ref{
		c.Assign("loop/results/zero", results.node, zero, float64Type),
		c.Assign("loop/done/zero", done.node, c.Int64s("loop/done/none", []int64{0, 0}), int64Type),
	}
	c.plan.Fills["loop"] = begin
	c.plan.Init = c.Group("loop/init", c.plan.Init, begin[0], begin[1])

	in := c.loopInputs(p, results, done)
	types := make([]dtpb.DataType, len(in))
	nodes := make([]build.Ref, len(in))
	for i, v := range in {
		nodes[i], types[i] = v.node, v.dtype
	}
	body, err := c.loopBody(p, gradients, in)
	if err != nil {
		return err
	}
	more, err := c.loopCondition(in)
	if err != nil {
		return err
	}
	c.OnDevice(host)
	while := c.Loop("loop", more, body, nodes, types, nil, build.Bool("_lower_using_switch_merge", true))
	p.Results = c.Read("loop/results/after", results.node, float64Type, while)
	p.Done = c.Read("loop/done/after", done.node, int64Type, while)
	p.ReadResults = c.Read("loop/results/read", results.node, float64Type)
	p.ReadDone = c.Read("loop/done/read", done.node, int64Type)
	return nil
}

// sizes sets what the loop's feeds and results consist of.
func (p *Loop) sizes(c *composer, gradients *graphs.Function) error {
	p.Feeds = c.features(gradients)
	p.Feeds.Replicas = len(c.replicas)
	for _, a := range gradients.Outputs {
		if !slices.Contains(c.plan.Train.Sums, a.Name) {
			continue
		}
		if !a.Ranked || slices.Contains(a.Shape, -1) {
			return fmt.Errorf("function gradients: output %s has no known shape; several steps in a call need one; set the steps per call to 1", a)
		}
		p.SumSizes = append(p.SumSizes, int(elements(a.Shape)))
		p.sumTypes = append(p.sumTypes, a.DType)
	}
	if c.timed() {
		p.Clocks = clockReadings
	}
	return nil
}

// The inputs of the loop, in this order, are followed by the stacked feeds and the handles.
const (
	loopStep  = iota // int64 [], the step
	loopGoing        // bool [], whether all steps so far were applied
	loopCall         // int64 [], the number of the call
	loopSteps        // int64 [], the number of steps of the call
)

// loopInputs adds the loop's placeholders, and returns everything that the loop takes from the graph.
func (c *composer) loopInputs(p *Loop, handles ...value) []value {
	p.Call = c.Placeholder("loop/call", int64Type, []int64{2})
	call := c.Node("Unpack", "loop/call/unpack", []build.Ref{p.Call}, build.Int("num", 2), build.Int("axis", 0), build.Type("T", int64Type))
	p.Numbers = c.Placeholder("loop/numbers", int64Type, []int64{-1, p.numbers()})
	p.ScalarFeed = c.Placeholder("loop/scalars", float32Type, []int64{-1, int64(len(c.plan.Train.Scalars))})
	in := []value{
		loopStep:  {c.Int64("loop/first", 0), int64Type},
		loopGoing: {c.Bool("loop/going", true), boolType},
		loopCall:  {call.Output(0), int64Type},
		loopSteps: {call.Output(1), int64Type},
	}
	in = append(in, value{p.Numbers, int64Type}, value{p.ScalarFeed, float32Type})
	for _, kind := range p.Feeds.Kinds {
		placeholder, t := build.Ref{}, typeOf(kind.DType)
		if kind.To > kind.From {
			placeholder = c.Placeholder("loop/"+kind.DType, t, []int64{-1})
			in = append(in, value{placeholder, t})
		}
		p.Feeds.Values = append(p.Feeds.Values, placeholder)
	}
	for _, feature := range p.Rows {
		rows := c.Placeholder("loop/rows/"+feature, int32Type, []int64{-1})
		p.RowFeeds = append(p.RowFeeds, rows)
		in = append(in, value{rows, int32Type})
	}
	in = append(in, handles...)
	for i, r := range c.replicas {
		if c.Shared && i > 0 {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(r.handles)) {
			in = append(in, value{r.handles[name], resourceType})
		}
	}
	return in
}

// loopCondition adds the function that tells whether there is one more step to make.
func (c *composer) loopCondition(in []value) (string, error) {
	f := c.Function("gorbit_loop_condition")
	args := make([]build.Ref, len(in))
	for i, v := range in {
		args[i] = f.Arg(fmt.Sprintf("in_%d", i), v.dtype)
	}
	f.OnDevice(c.replicas[0].host)
	left := f.Node("Less", "left", []build.Ref{args[loopStep], args[loopSteps]}, build.Type("T", int64Type))
	f.Return("more", f.Node("LogicalAnd", "more", []build.Ref{left, args[loopGoing]}), boolType)
	return f.End()
}

// loopBody adds the function that makes one step, and returns its name.
func (c *composer) loopBody(p *Loop, gradients *graphs.Function, values []value) (string, error) {
	f := c.Function("gorbit_loop_body")
	in, args := c.inside(f, values)
	k := args[values[loopStep].node]
	inputs, seeds, scalars := in.takeStep(p, k, args)
	t := &Train{Scalars: c.plan.Train.Scalars, ScalarFeed: scalars}
	for i, r := range in.replicas {
		r.inputs = inputs[i]
	}
	step, ended := in.loopedStep(t, gradients, seeds)
	row := in.resultRow(p, t, step)

	in.OnDevice(in.replicas[0].host)
	results, done := args[build.Ref{Node: "loop/results"}], args[build.Ref{Node: "loop/done"}]
	write := in.Node("ResourceScatterUpdate", "write", []build.Ref{results, k, row}, build.Type("dtype", float64Type), build.Type("Tindices", int64Type))
	next := in.Node("AddV2", "next", append([]build.Ref{k, in.Int64("one", 1), write.After()}, ended...), build.Type("T", int64Type))
	progress := in.Node("Pack", "progress", []build.Ref{args[values[loopCall].node], next}, build.Type("T", int64Type), build.Int("N", 2), build.Int("axis", 0))
	written := in.Assign("progress/write", done, progress, int64Type)
	f.Return("out_0", in.Node("Identity", "next/step", []build.Ref{next, written.After()}, build.Type("T", int64Type)), int64Type)
	f.Return("out_1", step.Fetches[1], boolType)
	for i, v := range values[loopGoing+1:] {
		f.Return(fmt.Sprintf("out_%d", i+2), args[v.node], v.dtype)
	}
	return f.End()
}

// loopedStep adds a step. It returns the nodes after which its variables have changed.
func (c *composer) loopedStep(t *Train, gradients *graphs.Function, seeds []build.Ref) (step Apply, ended []build.Ref) {
	if c.step != nil {
		t.Sums = c.plan.Train.Sums
		step, t.SumFetches = c.stepCall(t, seeds[0])
		return step, []build.Ref{step.Done.After()}
	}
	m := make([]made, len(c.replicas))
	for i, r := range c.replicas {
		m[i] = c.gradients(t, gradients, r, seeds[i])
	}
	step, outcomes := c.apply("", c.backward(gradients), c.stored(m), false)
	return step, c.ended(outcomes)
}

// takeStep takes the inputs of step k from those of all steps. It returns the nodes of the features
// and of the seed of each replica, and that of the scalars.
func (c *composer) takeStep(p *Loop, k build.Ref, args map[build.Ref]build.Ref) (inputs []map[string]build.Ref, seeds []build.Ref, scalars build.Ref) {
	c.OnDevice(c.replicas[0].host)
	axis := c.Int32("step/axis", 0)
	gather := func(name string, from build.Ref, t dtpb.DataType) build.Ref {
		return c.Node("GatherV2", name, []build.Ref{from, k, axis}, build.Type("Tparams", t), build.Type("Tindices", int64Type), build.Type("Taxis", int32Type))
	}
	scalars = gather("step/scalars", args[p.ScalarFeed], float32Type)
	sizes := p.numberSizes()
	numbers := c.Node("SplitV", "step/numbers", []build.Ref{gather("step/numbers/row", args[p.Numbers], int64Type), c.Int64s("step/numbers/sizes", sizes), axis},
		build.Int("num_split", int64(len(sizes))), build.Type("T", int64Type), build.Type("Tlen", int64Type))
	number := numbers.Output
	slice := func(name string, from build.Ref, t dtpb.DataType, at int) build.Ref {
		if from.IsZero() {
			return build.Ref{}
		}
		return c.Node("Slice", name, []build.Ref{args[from], number(at), number(at + 1)}, build.Type("T", t), build.Type("Index", int64Type))
	}
	for i, r := range c.replicas {
		at := i * p.replicaNumbers()
		c.OnDevice(c.replicas[0].host)
		name := r.prefix + "features"
		var values []build.Ref
		for k, kind := range p.Feeds.Kinds {
			values = append(values, slice(name+"/"+kind.DType, p.Feeds.Values[k], typeOf(kind.DType), at+2*k))
		}
		last := at + 2*len(p.Feeds.Kinds)
		seeds = append(seeds, number(last))
		inputs = append(inputs, c.cut(name, p.Feeds, r, values, number(last+1)))
	}
	c.OnDevice(c.replicas[0].host)
	for i, feature := range p.Rows {
		at := len(c.replicas)*p.replicaNumbers() + i*rowNumbers
		class := c.Node("Cast", "rows/class/"+feature, []build.Ref{number(at + 2)}, build.Type("SrcT", int64Type), build.Type("DstT", int32Type))
		c.rows[feature] = RowFeed{
			Rows: slice("rows/"+feature, p.RowFeeds[i], int32Type, at),
			Class: c.Node("Reshape", "rows/class/scalar/"+feature, []build.Ref{class, c.Int64s("rows/class/shape/"+feature, nil)},
				build.Type("T", int32Type), build.Type("Tshape", int64Type)),
		}
	}
	return inputs, seeds, scalars
}

// resultRow adds the vector of a step's results, see Loop.Results.
func (c *composer) resultRow(p *Loop, t *Train, step Apply) build.Ref {
	flat := func(name string, node build.Ref, from dtpb.DataType, n int) build.Ref {
		if from != float64Type {
			node = c.Node("Cast", name, []build.Ref{node}, build.Type("SrcT", from), build.Type("DstT", float64Type))
		}
		return c.Node("Reshape", name+"/flat", []build.Ref{node, c.Int64s(name+"/shape", []int64{int64(n)})}, build.Type("T", float64Type), build.Type("Tshape", int64Type))
	}
	concat := func(name string, parts []build.Ref) build.Ref {
		return c.Node("ConcatV2", name, append(slices.Clone(parts), c.Int32(name+"/axis", 0)), build.Type("T", float64Type),
			build.Int("N", int64(len(parts))), build.Type("Tidx", int32Type))
	}
	var row []build.Ref
	for i, r := range c.replicas {
		c.OnDevice(r.host)
		var parts []build.Ref
		for j, n := range p.SumSizes {
			parts = append(parts, flat(r.prefix+"result/"+t.Sums[j], t.SumFetches[i*len(p.SumSizes)+j], p.sumTypes[j], n))
		}
		if p.Clocks > 0 {
			parts = append(parts, step.Clocks[i])
		}
		row = append(row, concat(r.prefix+"result", parts))
	}
	c.OnDevice(c.replicas[0].host)
	for i, dtype := range []dtpb.DataType{float32Type, boolType, int64Type} {
		row = append(row, flat(fmt.Sprintf("result/decided/%d", i), step.Fetches[i], dtype, 1))
	}
	return concat("result/all", row)
}

// ended returns control inputs that wait until the step has changed all variables, or none because it
// is not applied. Nodes after the updates of a step that is not applied do not run, unless variables
// are updated in groups.
func (c *composer) ended(outcomes []outcome) []build.Ref {
	typeT := build.Type("T", int64Type)
	var out []build.Ref
	for _, o := range outcomes {
		c.OnDevice(o.replica.host)
		name := o.replica.prefix + "ended"
		one := c.Int64(name+"/one", 1)
		if c.Together > 0 {
			out = append(out, c.Group(name, o.done...).After())
			continue
		}
		updated := c.Node("Identity", name+"/updated", []build.Ref{one, c.Group(name+"/updates", o.done...).After()}, typeT)
		counted := c.Node("Identity", name+"/counted", []build.Ref{one, o.decision.counted.After()}, typeT)
		refused := c.Node("Switch", name+"/refused", []build.Ref{counted, o.decision.finite}, typeT).Output(0)
		out = append(out, c.Node("Merge", name, []build.Ref{updated, refused}, typeT, build.Int("N", 2)).After())
	}
	return out
}
