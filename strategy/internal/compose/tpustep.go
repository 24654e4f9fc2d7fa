package compose

import (
	"fmt"
	"slices"
	"strings"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
)

// The results of a step, in the order of TPUTrain.Fetches.
var resultNames = []string{"sums", "norm", "applied", "iterations"}
var resultTypes = []dtpb.DataType{float32Type, float32Type, boolType, int64Type}

// compileTime lets constants be constants inside of a conditional call and a loop. TensorFlow's
// Python gives it to both.
var compileTime = build.Bool("_xla_propagate_compile_time_consts", true)

// tpuTrain adds the training steps of a call.
func (c *composer) tpuTrain(t *tpuParts) (*TPUTrain, error) {
	gradients := t.function("gradients")
	p := &TPUTrain{Name: "train" + t.suffix}
	p.Feeds = t.feeds(c, p.Name, gradients, t.layout.Steps)
	p.Scalars = append([]graphs.Hyperparameter{{Name: "learning_rate"}, {Name: "weight_decay"}, {Name: "clip_norm", Default: 1}},
		c.export.Contract.AllHyperparameters()...)
	for _, a := range gradients.Outputs {
		if strings.HasPrefix(a.Name, graphs.GradientPrefix) || strings.HasPrefix(a.Name, graphs.StatePrefix) {
			continue
		}
		if !a.Ranked || slices.Contains(a.Shape, -1) || a.DType != float32Type {
			return nil, fmt.Errorf("output %s of gradients: expected float32 of a known shape", a)
		}
		p.Sums = append(p.Sums, TPUSum{a.Name, int(elements(a.Shape))})
	}
	steps, replicas := int64(p.Feeds.Steps), int64(p.Feeds.Replicas)
	stacked := func(dims ...int64) []int64 {
		if steps == 1 {
			return dims
		}
		return append([]int64{steps}, dims...)
	}
	c.OnDevice(t.host)
	p.ScalarFeed = c.Placeholder(p.Name+"/scalars", float32Type, stacked(int64(len(p.Scalars))))
	p.Seeds = c.Placeholder(p.Name+"/seeds", int64Type, append([]int64{replicas}, stacked(2)...))
	seeds := t.unpack(c, p.Name+"/seeds/replicas", p.Seeds, int64Type)
	if steps > 1 {
		p.Count = c.Placeholder(p.Name+"/steps", int32Type, nil)
	}

	k := newCluster(c.Builder, p.Name, t.layout.Topology, t.assignment)
	in := t.inputs(c, k, p.Feeds)
	in.seed = k.input(p.Name+"/input/seeds", int64Type, seeds...)
	in.scalars = k.input(p.Name+"/input/scalars", float32Type, p.ScalarFeed)
	handles := make(map[string]build.Ref)
	for _, v := range c.plan.Variables {
		handles[v.Name] = k.variable(p.Name+"/variable/"+v.Name, t.handles(c, v.Name))
	}
	var count build.Ref
	if steps > 1 {
		count = k.input(p.Name+"/input/steps", int32Type, p.Count)
	}
	k.inside()
	r := &replica{handles: handles}
	var results []build.Ref
	var last []build.Ref // operations that change variables
	var err error
	if steps == 1 {
		results, last, err = c.tpuStep(t, p, r, p.Name+"/", in)
	} else {
		var loop build.Ref
		loop, err = c.tpuLoop(t, p, r, in, count)
		for i := range resultNames {
			results = append(results, loop.Output(loopResults+i))
		}
		results, last = append(results, loop), []build.Ref{loop}
	}
	if err != nil {
		return nil, err
	}
	var values []tensor
	for i, name := range resultNames {
		values = append(values, tensor{p.Name + "/output/" + name, results[i], resultTypes[i]})
	}
	if steps > 1 {
		values = append(values, tensor{p.Name + "/output/made", results[len(resultNames)], int32Type})
	}
	out := k.outputs(values, last...)[0]
	p.Fetches, p.Compiled = out[:len(resultNames)], k.status
	if steps > 1 {
		p.Made = out[len(resultNames)]
	}
	return p, nil
}

// tpuStep adds a step of a replica: gradients, their sums over the replicas, the norm, the decision
// and the updates. It returns the results and the operations that change variables.
func (c *composer) tpuStep(t *tpuParts, p *TPUTrain, r *replica, prefix string, in stepInputs) (results, effects []build.Ref, err error) {
	r.inputs = c.tpuCut(prefix, &p.Feeds, in)
	c.takeScalars(prefix, r, p.Scalars, in.scalars)
	r.inputs["seed"] = in.seed
	var names []string
	for _, s := range p.Sums {
		names = append(names, s.Name)
	}
	m, sums, d := c.judged(prefix, r, t.function("gradients"), names, func(name string, own build.Ref) build.Ref {
		return crossReplicaSum(c.Builder, prefix+"total/"+name, own, p.Feeds.Replicas)
	})
	flat := c.Int32s(prefix+"sums/flat", []int32{-1})
	var parts []build.Ref
	for _, name := range names {
		parts = append(parts, c.Node("Reshape", prefix+"sums/flat/"+name, []build.Ref{sums[name], flat}, build.Type("T", float32Type), build.Type("Tshape", int32Type)))
	}
	updated, err := c.tpuUpdate(t, prefix, r, m.grads, d)
	if err != nil {
		return nil, nil, err
	}
	vector := c.Node("ConcatV2", prefix+"sums", append(parts, c.Int32(prefix+"sums/axis", 0)),
		build.Type("T", float32Type), build.Int("N", int64(len(parts))), build.Type("Tidx", int32Type))
	results = []build.Ref{vector, d.norm, updated, d.iteration}
	for i, name := range resultNames {
		results[i] = c.Node("Identity", prefix+"result/"+name, []build.Ref{results[i], updated.After()}, build.Type("T", resultTypes[i]))
	}
	return results, []build.Ref{updated, d.counted}, nil
}

// tpuUpdate adds the updates of all variables, which are made if the step is applied, and returns
// whether it is. The compiler knows no dead tensors, so it is a conditional call of a function with
// all updates.
func (c *composer) tpuUpdate(t *tpuParts, prefix string, r *replica, grads map[string]build.Ref, d decision) (build.Ref, error) {
	var inputs []build.Ref
	var types []dtpb.DataType
	f, none := c.Function(t.name("update")), c.Function(t.name("keep"))
	capture := func(ref build.Ref, dtype dtpb.DataType) build.Ref {
		name := fmt.Sprintf("a%d", len(inputs))
		inputs, types = append(inputs, ref), append(types, dtype)
		none.Arg(name, dtype)
		return f.Arg(name, dtype)
	}
	own := &replica{handles: make(map[string]build.Ref), inputs: make(map[string]build.Ref)}
	for _, v := range c.plan.Variables {
		if v.Name != c.export.Contract.Optimizer.Iterations {
			own.handles[v.Name] = capture(r.handles[v.Name], resourceType)
		}
	}
	for _, h := range append([]graphs.Hyperparameter{{Name: "weight_decay"}}, c.export.Contract.Optimizer.Hyperparameters...) {
		own.inputs[h.Name] = capture(r.inputs[h.Name], float32Type)
	}
	inner := decision{scale: capture(d.scale, float32Type), rate: capture(d.rate, float32Type), iteration: capture(d.iteration, int64Type)}
	inner.states = make(map[string]build.Ref)
	for _, v := range c.trained {
		if v.Assigned {
			inner.states[v.Name] = capture(d.states[v.Name], float32Type)
		}
	}
	in := *c
	in.Builder = f.Builder
	applied := capture(d.finite, boolType)
	inner.average = in.averaging("", inner.iteration)
	inner.shared = in.shared("", own, inner.iteration)
	var updates []build.Ref
	for _, v := range c.trained {
		updates = append(updates, in.average("", own, v, in.update("", own, v, capture(grads[v.Name], float32Type), inner), inner.average))
	}
	for _, s := range c.export.Contract.UpdatedStates() {
		updates = append(updates, in.Assign("update/"+s.Name, own.handles[s.Name], capture(d.states[s.Name], float32Type), float32Type))
	}
	all := f.Group("updated", updates...)
	f.Effect(all)
	f.Return("applied", f.Node("Identity", "applied", []build.Ref{applied, all.After()}, build.Type("T", boolType)), boolType)
	none.Return("applied", none.Node("Identity", "applied", []build.Ref{applied}, build.Type("T", boolType)), boolType)
	then, err := f.End()
	if err != nil {
		return build.Ref{}, err
	}
	otherwise, err := none.End()
	if err != nil {
		return build.Ref{}, err
	}
	return c.Branch(prefix+"update", d.finite, then, otherwise, inputs, types, []dtpb.DataType{boolType}, build.Shapes("output_shapes", [][]int64{nil}), compileTime), nil
}

// The arguments of the loop, in order: the number of steps made, whether all of them were applied,
// the number of steps to make, the results, the inputs, and the variables.
const loopResults = 3

// loopArgument is an argument of the loop. Its value in the first step is ref.
type loopArgument struct {
	name  string
	ref   build.Ref
	dtype dtpb.DataType
	shape []int64
}

// tpuLoopArguments returns the arguments of the loop, in order.
func (c *composer) tpuLoopArguments(p *TPUTrain, r *replica, in stepInputs, count build.Ref) []loopArgument {
	steps := int64(p.Feeds.Steps)
	size := int64(0)
	for _, s := range p.Sums {
		size += int64(s.Size)
	}
	arguments := []loopArgument{
		{"made", c.Int32(p.Name+"/loop/made", 0), int32Type, nil},
		{"go", c.zeros(p.Name+"/loop/go", boolType, nil, true), boolType, nil},
		{"count", count, int32Type, nil},
	}
	for i, name := range resultNames {
		shape := []int64{steps}
		if name == "sums" {
			shape = append(shape, size)
		}
		arguments = append(arguments, loopArgument{name, c.zeros(p.Name+"/loop/"+name, resultTypes[i], shape, false), resultTypes[i], shape})
	}
	for i, kind := range p.Feeds.Kinds {
		if !in.values[i].IsZero() {
			arguments = append(arguments, loopArgument{loopName(kind), in.values[i], typeOf(kind.DType), []int64{steps, p.Feeds.Sizes[i]}})
		}
	}
	arguments = append(arguments,
		loopArgument{"seeds", in.seed, int64Type, []int64{steps, 2}},
		loopArgument{"scalars", in.scalars, float32Type, []int64{steps, int64(len(p.Scalars))}})
	for i, v := range c.plan.Variables {
		arguments = append(arguments, loopArgument{fmt.Sprintf("v%d", i), r.handles[v.Name], resourceType, nil})
	}
	return arguments
}

// tpuLoop adds the loop that makes count steps, or fewer if one of them is not applied. It returns
// the node of the loop.
func (c *composer) tpuLoop(t *tpuParts, p *TPUTrain, r *replica, in stepInputs, count build.Ref) (build.Ref, error) {
	arguments := c.tpuLoopArguments(p, r, in, count)
	test, body := c.Function(t.name("more")), c.Function(t.name("step"))
	refs := make(map[string]build.Ref) // the same in both
	var inputs []build.Ref
	var types []dtpb.DataType
	var shapes [][]int64
	for _, a := range arguments {
		test.Arg(a.name, a.dtype)
		refs[a.name] = body.Arg(a.name, a.dtype)
		inputs, types, shapes = append(inputs, a.ref), append(types, a.dtype), append(shapes, a.shape)
	}
	test.Return("more", test.Node("LogicalAnd", "both", []build.Ref{
		test.Node("Less", "less", []build.Ref{refs["made"], refs["count"]}, build.Type("T", int32Type)), refs["go"]}), boolType)

	own := *c
	own.Builder = body.Builder
	one := &replica{handles: make(map[string]build.Ref)}
	for i, v := range c.plan.Variables {
		one.handles[v.Name] = refs[fmt.Sprintf("v%d", i)]
	}
	all := stepInputs{seed: refs["seeds"], scalars: refs["scalars"]}
	for _, kind := range p.Feeds.Kinds {
		all.values = append(all.values, refs[loopName(kind)])
	}
	mine := all.of(&own, p.Feeds.Kinds, refs["made"])
	results, effects, err := own.tpuStep(t, p, one, "", mine)
	if err != nil {
		return build.Ref{}, err
	}
	for _, node := range effects {
		body.Effect(node)
	}
	next := map[string]build.Ref{
		"made": body.Node("AddV2", "next/made", []build.Ref{refs["made"], body.Int32("next/one", 1)}, build.Type("T", int32Type)),
		"go":   results[2],
	}
	at := body.Node("Reshape", "next/at", []build.Ref{refs["made"], body.Int32s("next/at/shape", []int32{1, 1})}, build.Type("T", int32Type), build.Type("Tshape", int32Type))
	for i, name := range resultNames {
		row := body.Node("ExpandDims", "next/row/"+name, []build.Ref{results[i], body.Int32("next/row/"+name+"/axis", 0)},
			build.Type("T", resultTypes[i]), build.Type("Tdim", int32Type))
		next[name] = body.Node("TensorScatterUpdate", "next/"+name, []build.Ref{refs[name], at, row}, build.Type("T", resultTypes[i]), build.Type("Tindices", int32Type))
	}
	for i, a := range arguments {
		value, ok := next[a.name]
		if !ok {
			value = refs[a.name]
		}
		body.Return(fmt.Sprintf("o%d", i), value, a.dtype)
	}
	more, err := test.End()
	if err != nil {
		return build.Ref{}, err
	}
	step, err := body.End()
	if err != nil {
		return build.Ref{}, err
	}
	return c.Loop(p.Name+"/loop", more, step, inputs, types, shapes, compileTime), nil
}
