package strategy

import (
	"fmt"
	"slices"
	"strings"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/kernels"
)

const (
	float32Type = dtpb.DataType_DT_FLOAT
	int64Type   = dtpb.DataType_DT_INT64
)

// group is a feed: the features of one dtype and one set of axes, stacked.
type group struct {
	placeholder string
	features    []string
	dtype       tf.DataType
	rank        int
}

// plan is a composed graph with the names of the nodes that calls go through.
type plan struct {
	builder *graphs.Builder
	// init sets the variables that start at zero. It is the first thing to run.
	init      string
	variables []VariableSpec
	reads     map[string]string
	assigns   map[string]assignment
	train     *trainPlan
	evaluate  *callPlan
	predict   *callPlan
	kernels   int // functions that are kernels of ours
}

type assignment struct {
	value, assign string
	spec          VariableSpec
}

type trainPlan struct {
	groups     []group
	scalars    []graphs.Hyperparameter
	scalarFeed string
	seed       string
	sums       []string
	fetches    []string // sums, gradient norm, applied, iterations
	done       string
}

type callPlan struct {
	name    string
	groups  []group
	outputs []string
	fetches []string
}

// composer holds what the parts of a graph share.
type composer struct {
	*graphs.Builder
	export  *graphs.Export
	handles map[string]string
	feeds   map[string]string // node of each feature
	groups  []group
	plan    *plan
	kernels bool
}

// compose builds the graph of one replica, with the package's own kernels in it or not.
func compose(export *graphs.Export, config Config, own bool) (*plan, error) {
	functions := []string{"evaluate", "predict"}
	if config.Functions == FunctionsTrain {
		functions = append(functions, "gradients", "update")
	}
	c := &composer{
		Builder: export.NewBuilder(functions...),
		export:  export,
		handles: make(map[string]string),
		feeds:   make(map[string]string),
		plan:    &plan{reads: make(map[string]string), assigns: make(map[string]assignment)},
		kernels: own,
	}
	if own {
		c.substitute()
	}
	c.plan.builder = c.Builder
	c.OnDevice(config.Device)
	if err := c.variables(config.Functions == FunctionsTrain); err != nil {
		return nil, err
	}
	c.features()
	c.plan.evaluate = c.call("evaluate")
	c.plan.predict = c.call("predict")
	if config.Functions == FunctionsTrain {
		c.trainStep()
	}
	return c.plan, nil
}

// substitute puts the package's kernels in the place of the functions that they do.
// TensorFlow lets no function with side effects say what it implements: the
// update is known by the optimizer's name.
func (c *composer) substitute() {
	ops := kernels.Ops()
	c.plan.kernels = c.Substitute(ops)
	for _, op := range ops {
		if op.Implements == "gorbit."+c.export.Contract.Optimizer.Name {
			c.SubstituteFunction(c.export.Functions["update"], op)
		}
	}
}

// variables adds every variable with its reading and assignment, and the
// initialization of those that start at zero.
func (c *composer) variables(train bool) error {
	contract := c.export.Contract
	var zeros []string
	add := func(name, dtype string, shape []int64, slot bool) error {
		t, ok := dtypes[dtype]
		if !ok {
			return fmt.Errorf("variable %s is of dtype %s, which is not trained", name, dtype)
		}
		handle := c.Variable(name, t.proto, shape)
		spec := VariableSpec{Name: name, DType: t.tf, Shape: shape, Slot: slot}
		c.handles[name] = handle
		c.plan.variables = append(c.plan.variables, spec)
		c.plan.reads[name] = c.Read("read/"+name, handle, t.proto)
		value := c.Placeholder("value/"+name, t.proto, shape)
		c.plan.assigns[name] = assignment{value, c.Assign("assign/"+name, handle, value, t.proto), spec}
		if !slot {
			return nil
		}
		zero := c.Int64("zero/value/"+name, 0)
		if t.proto == float32Type {
			zero = c.Float("zero/value/"+name, 0)
		}
		fill := c.Node("Fill", "zero/fill/"+name, []string{c.Int64s("zero/shape/"+name, shape), zero},
			graphs.Type("T", t.proto), graphs.Type("index_type", int64Type))
		zeros = append(zeros, c.Assign("zero/"+name, handle, fill, t.proto))
		return nil
	}
	for _, v := range contract.Variables {
		if err := add(v.Name, v.DType, v.Shape, false); err != nil {
			return err
		}
	}
	if train {
		for _, v := range contract.Variables {
			for _, slot := range contract.Optimizer.Slots {
				if err := add(graphs.SlotName(slot, v.Name), v.DType, v.Shape, true); err != nil {
					return err
				}
			}
		}
		if err := add(contract.Optimizer.Iterations, "int64", nil, true); err != nil {
			return err
		}
	}
	c.plan.init = c.Group("init", zeros...)
	slices.SortFunc(c.plan.variables, func(a, b VariableSpec) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// features adds one placeholder per group and takes it apart. Labels are groups
// of their own: prediction does without them.
func (c *composer) features() {
	type key struct {
		dtype, axes string
		label       bool
	}
	index := make(map[key]int)
	for _, f := range c.export.Contract.Features {
		k := key{f.DType, strings.Join(f.Axes, ","), f.Label}
		i, ok := index[k]
		if !ok {
			i = len(c.groups)
			index[k] = i
			c.groups = append(c.groups, group{dtype: dtypes[f.DType].tf, rank: len(f.Axes)})
		}
		c.groups[i].features = append(c.groups[i].features, f.Name)
	}
	for i := range c.groups {
		g := &c.groups[i]
		shape := []int64{int64(len(g.features))}
		for range g.rank {
			shape = append(shape, -1)
		}
		t := float32Type
		if g.dtype == tf.Int32 {
			t = dtpb.DataType_DT_INT32
		}
		g.placeholder = c.Placeholder(fmt.Sprintf("features/%d", i), t, shape)
		parts := c.Node("Unpack", g.placeholder+"/unpack", []string{g.placeholder},
			graphs.Int("num", int64(len(g.features))), graphs.Int("axis", 0), graphs.Type("T", t))
		for j, name := range g.features {
			c.feeds[name] = fmt.Sprintf("%s:%d", parts, j)
		}
	}
}

// groupsOf returns the groups that a function's inputs come from.
func (c *composer) groupsOf(f *graphs.Function) []group {
	var out []group
	for _, g := range c.groups {
		if slices.ContainsFunc(f.Inputs, func(a graphs.Arg) bool { return slices.Contains(g.features, a.Name) }) {
			out = append(out, g)
		}
	}
	return out
}

// call adds a call of a function that takes features alone.
func (c *composer) call(name string) *callPlan {
	f := c.export.Functions[name]
	node := c.Call(name, f, c.feeds, c.handles)
	p := &callPlan{name: name, groups: c.groupsOf(f)}
	for i, a := range f.Outputs {
		p.outputs = append(p.outputs, a.Name)
		p.fetches = append(p.fetches, fmt.Sprintf("%s:%d", node, i))
	}
	return p
}

// squares adds the sum of all elements' squares.
func (c *composer) squares(tensors []string) string {
	n, typeT := graphs.Int("N", int64(len(tensors))), graphs.Type("T", float32Type)
	if c.kernels {
		return c.Node(kernels.Squares, "squares", tensors, n)
	}
	var halves []string
	for i, t := range tensors {
		halves = append(halves, c.Node("L2Loss", fmt.Sprintf("squares/%d", i), []string{t}, typeT))
	}
	half := c.Node("AddN", "squares/half", halves, n, typeT)
	return c.Node("Mul", "squares", []string{half, c.Float("squares/two", 2)}, typeT)
}

// trainStep adds the step: gradients, the global norm, one update per variable.
func (c *composer) trainStep() {
	contract := c.export.Contract
	gradients, update := c.export.Functions["gradients"], c.export.Functions["update"]
	t := &trainPlan{groups: c.groupsOf(gradients)}
	c.plan.train = t

	t.scalars = append([]graphs.Hyperparameter{{Name: "learning_rate"}, {Name: "weight_decay"}, {Name: "clip_norm", Default: 1}},
		contract.AllHyperparameters()...)
	t.scalarFeed = c.Placeholder("scalars", float32Type, []int64{int64(len(t.scalars))})
	unpacked := c.Node("Unpack", "scalars/unpack", []string{t.scalarFeed},
		graphs.Int("num", int64(len(t.scalars))), graphs.Int("axis", 0), graphs.Type("T", float32Type))
	inputs := make(map[string]string)
	for i, h := range t.scalars {
		inputs[h.Name] = fmt.Sprintf("%s:%d", unpacked, i)
	}
	for name, node := range c.feeds {
		inputs[name] = node
	}
	t.seed = c.Placeholder("seed", int64Type, []int64{2})
	inputs["seed"] = t.seed

	call := c.Call("gradients", gradients, inputs, c.handles)
	out := func(name string) string { return fmt.Sprintf("%s:%d", call, gradients.Output(name)) }
	for _, a := range gradients.Outputs {
		if !strings.HasPrefix(a.Name, graphs.GradientPrefix) {
			t.sums = append(t.sums, a.Name)
			t.fetches = append(t.fetches, out(a.Name))
		}
	}

	// The norm of the mean loss' gradient: the sum's, over the weight. Every
	// update waits for it, so no variable changes while a gradient is computed.
	typeT := graphs.Type("T", float32Type)
	unit := c.Node("Reciprocal", "unit", []string{out("weight_sum")}, typeT)
	var all []string
	for _, v := range contract.Variables {
		all = append(all, out(graphs.GradientPrefix+v.Name))
	}
	root := c.Node("Sqrt", "squares/root", []string{c.squares(all)}, typeT)
	norm := c.Node("Mul", "norm", []string{root, unit}, typeT)

	// clip_norm / max(norm, clip_norm), or 1 where clip_norm is 0 or less.
	clip := inputs["clip_norm"]
	larger := c.Node("Maximum", "clip/larger", []string{norm, clip}, typeT)
	ratio := c.Node("RealDiv", "clip/ratio", []string{clip, larger}, typeT)
	on := c.Node("Greater", "clip/on", []string{clip, c.Float("clip/zero", 0)}, typeT)
	factor := c.Node("SelectV2", "clip/factor", []string{on, ratio, c.Float("clip/one", 1)}, typeT)
	scale := c.Node("Mul", "scale", []string{unit, factor}, typeT)

	// A dead learning rate stops the updates of a step that is not finite.
	finite := c.Node("LogicalAnd", "applied", []string{
		c.Node("IsFinite", "applied/norm", []string{norm}, typeT),
		c.Node("IsFinite", "applied/loss", []string{out("loss_sum")}, typeT),
	})
	rate := c.Node("Switch", "applied/rate", []string{inputs["learning_rate"], finite}, typeT) + ":1"

	iterations := c.handles[contract.Optimizer.Iterations]
	one := c.Node("Cast", "applied/count", []string{finite}, graphs.Type("SrcT", dtpb.DataType_DT_BOOL), graphs.Type("DstT", int64Type))
	counted := c.Node("AssignAddVariableOp", "count", []string{iterations, one}, graphs.Type("dtype", int64Type))
	iteration := c.Read("iteration", iterations, int64Type, counted)

	var updates []string
	for _, v := range contract.Variables {
		arguments := map[string]string{
			"variable":       c.handles[v.Name],
			"gradient":       out(graphs.GradientPrefix + v.Name),
			"gradient_scale": scale,
			"iteration":      iteration,
			"learning_rate":  rate,
			"weight_decay":   inputs["weight_decay"],
		}
		if !v.WeightDecay {
			arguments["weight_decay"] = c.Float("no_decay/"+v.Name, 0)
		}
		for _, slot := range contract.Optimizer.Slots {
			arguments[slot] = c.handles[graphs.SlotName(slot, v.Name)]
		}
		for _, h := range contract.Optimizer.Hyperparameters {
			arguments[h.Name] = inputs[h.Name]
		}
		updates = append(updates, c.Call("update/"+v.Name, update, arguments, nil))
	}
	t.done = c.Group("done", append(updates, counted)...)
	t.fetches = append(t.fetches, norm, finite, iteration)
}
