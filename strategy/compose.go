package strategy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/kernels"
	"github.com/gorbit-ml/gorbit/internal/shardinput"
)

const (
	float32Type = dtpb.DataType_DT_FLOAT
	int64Type   = dtpb.DataType_DT_INT64
)

// layout says what a graph is composed for.
type layout struct {
	// devices of the replicas, one each.
	devices   []string
	functions Functions
	// own puts the package's own kernels in.
	own bool
	// shard gives every variable an owner among the replicas, which alone keeps
	// its slots.
	shard bool
	// shared has all replicas on one device with the same variables, so that they
	// are lanes of one copy of the model. It goes with shard.
	shared bool
	// bucket is how many bytes of gradients are reduced together.
	bucket int64
	// hint is CollectiveReduceV2's communication_hint.
	hint string
	// local has the workers read the training features; nil feeds them.
	local *shardinput.Data
}

// plan is a composed graph with the names of the nodes that calls go through.
type plan struct {
	builder *graphs.Builder
	// init sets the variables that start at zero. It is the first thing to run.
	init      string
	variables []VariableSpec
	// reads has the reading of every variable on every replica that has it, the
	// first one's first.
	reads   map[string][]string
	assigns map[string]assignment
	train   *trainPlan
	// evaluate and predict have a call on every replica.
	evaluate []*callPlan
	predict  []*callPlan
	kernels  []string // the kernels of ours that stand for functions, one each
	// slotBytes is the size of the optimizer's slots on every replica.
	slotBytes []int64
}

// longRow bounds what is quadratic in the examples of a row.
const longRow = 4096

// longRows is Runtime.LongRows.
func (p *plan) longRows() int {
	if slices.Contains(p.kernels, kernels.Attention) {
		return longRow
	}
	return 0
}

// assignment sets a variable on all replicas that have it.
type assignment struct {
	value, assign string
	spec          VariableSpec
}

// trainPlan is the training step. A step of one micro-batch per replica is one
// call; a step of several is a call for each, which adds to the accumulators, and
// then the application of these.
type trainPlan struct {
	feeds      *feedPlan
	local      *localPlan // in place of feeds, where workers read the features
	scalars    []graphs.Hyperparameter
	scalarFeed string
	seeds      string
	sums       []string
	// sumFetches are the sums of all replicas, replica after replica.
	sumFetches []string
	// clocks are each replica's of a micro-batch, none where there is one replica.
	clocks []string
	step   applyPlan
	// first sets the accumulators, next adds to them.
	first, next string
	// rows are fed with the numbers of the rows that gradients have, by feature.
	rows map[string]rowFeed
	// totals is fed with the sums of weights and of losses that apply needs.
	totals string
	apply  applyPlan
}

// applyPlan is a way to the variables' new values.
type applyPlan struct {
	fetches []string // gradient norm, applied, iterations
	clocks  []string // each replica's, none where there is one
	done    string
}

type callPlan struct {
	name    string
	feeds   *feedPlan
	outputs []string
	fetches []string
}

// replica is one copy of the model in the graph.
type replica struct {
	prefix       string // of its nodes' names
	device, host string // host is the CPU beside the device
	handles      map[string]string
	inputs       map[string]string // of gradients and update
}

// composer holds what the parts of a graph share.
type composer struct {
	*graphs.Builder
	layout
	export   *graphs.Export
	replicas []*replica
	// owners of the variables, by name, where the optimizer is sharded.
	owners map[string]int
	plan   *plan
	// instance counts the collectives of the graph.
	instance int32
}

// compose builds the graph of all replicas.
func compose(export *graphs.Export, l layout) (*plan, error) {
	train := l.functions == FunctionsTrain
	functions := []string{"evaluate", "predict"}
	if train {
		functions = append(functions, "gradients", "update")
	}
	c := &composer{
		Builder: export.NewBuilder(functions...),
		layout:  l,
		export:  export,
		plan:    &plan{reads: make(map[string][]string), assigns: make(map[string]assignment)},
	}
	for i, device := range l.devices {
		r := &replica{device: device, host: hostOf(device), handles: make(map[string]string)}
		if i > 0 {
			r.prefix = fmt.Sprintf("replica_%d/", i)
		}
		c.replicas = append(c.replicas, r)
	}
	if l.shard { // of lanes, too: what is done for the variables of each goes on side by side
		c.owners = owners(export.Contract, len(l.devices))
	}
	if l.own {
		c.substitute()
	}
	c.plan.builder = c.Builder
	if err := c.variables(train); err != nil {
		return nil, err
	}
	for i, r := range c.replicas {
		if l.shared && i > 0 {
			break
		}
		c.plan.evaluate = append(c.plan.evaluate, c.call(r, "evaluate"))
		c.plan.predict = append(c.plan.predict, c.call(r, "predict"))
	}
	if train {
		if err := c.trainStep(); err != nil {
			return nil, err
		}
	}
	return c.plan, nil
}

// hostOf returns the CPU beside a device: the device itself if it is one.
func hostOf(device string) string {
	i := strings.LastIndex(strings.ToUpper(device), "DEVICE:")
	if i < 0 || strings.HasPrefix(strings.ToUpper(device[i:]), "DEVICE:CPU:") {
		return device
	}
	return device[:i] + "device:CPU:0"
}

// owners gives every variable to a replica: largest first, each to the one that
// has the fewest bytes.
func owners(contract *graphs.Contract, replicas int) map[string]int {
	order := slices.Clone(contract.Variables)
	slices.SortStableFunc(order, func(a, b graphs.Variable) int { return int(elements(b.Shape) - elements(a.Shape)) })
	loads := make([]int64, replicas)
	out := make(map[string]int, len(order))
	for _, v := range order {
		least := 0
		for i, load := range loads {
			if load < loads[least] {
				least = i
			}
		}
		loads[least] += elements(v.Shape)
		out[v.Name] = least
	}
	return out
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
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

// keeps reports whether a replica has a slot of a variable.
func (c *composer) keeps(replica int, variable string) bool {
	return !c.shard || c.owners[variable] == replica
}

// variables adds every variable with its reading and assignment, and the
// initialization of those that start at zero.
func (c *composer) variables(train bool) error {
	contract := c.export.Contract
	copies := len(c.replicas)
	if c.shared {
		copies = 1
	}
	c.plan.slotBytes = make([]int64, copies)
	var zeros []string
	add := func(name, dtype string, shape []int64, slot bool, has func(int) bool) error {
		t, ok := dtypes[dtype]
		if !ok {
			return fmt.Errorf("variable %s is of dtype %s, which is not trained", name, dtype)
		}
		spec := VariableSpec{Name: name, DType: t.tf, Shape: shape, Slot: slot}
		c.plan.variables = append(c.plan.variables, spec)
		c.OnDevice(c.replicas[0].host)
		value := c.Placeholder("value/"+name, t.proto, shape)
		var assigns []string
		for i, r := range c.replicas {
			if c.shared && i > 0 {
				r.handles = c.replicas[0].handles
				continue
			}
			if !has(i) {
				continue
			}
			c.OnDevice(r.device)
			handle := c.Variable(r.prefix+name, t.proto, shape)
			r.handles[name] = handle
			c.plan.reads[name] = append(c.plan.reads[name], c.Read(r.prefix+"read/"+name, handle, t.proto))
			assigns = append(assigns, c.Assign(r.prefix+"assign/"+name, handle, value, t.proto))
			if !slot {
				continue
			}
			c.plan.slotBytes[i] += elements(shape) * int64(t.size)
			zero := c.Int64(r.prefix+"zero/value/"+name, 0)
			if t.proto == float32Type {
				zero = c.Float(r.prefix+"zero/value/"+name, 0)
			}
			fill := c.Node("Fill", r.prefix+"zero/fill/"+name, []string{c.Int64s(r.prefix+"zero/shape/"+name, shape), zero},
				graphs.Type("T", t.proto), graphs.Type("index_type", int64Type))
			zeros = append(zeros, c.Assign(r.prefix+"zero/"+name, handle, fill, t.proto))
		}
		assign := assigns[0]
		if len(assigns) > 1 {
			c.OnDevice(c.replicas[0].host)
			assign = c.Group("assigned/"+name, assigns...)
		}
		c.plan.assigns[name] = assignment{value, assign, spec}
		return nil
	}
	everywhere := func(int) bool { return true }
	for _, v := range contract.Variables {
		if err := add(v.Name, v.DType, v.Shape, false, everywhere); err != nil {
			return err
		}
	}
	if train {
		for _, v := range contract.Variables {
			for _, slot := range contract.Optimizer.Slots {
				has := func(i int) bool { return c.shared || c.keeps(i, v.Name) }
				if err := add(graphs.SlotName(slot, v.Name), v.DType, v.Shape, true, has); err != nil {
					return err
				}
			}
		}
		// One count is enough where one replica decides for all.
		has := func(i int) bool { return !c.shard || i == 0 }
		if err := add(contract.Optimizer.Iterations, "int64", nil, true, has); err != nil {
			return err
		}
	}
	c.OnDevice(c.replicas[0].host)
	c.plan.init = c.Group("init", zeros...)
	slices.SortFunc(c.plan.variables, func(a, b VariableSpec) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// call adds a replica's call of a function that takes features alone.
func (c *composer) call(r *replica, name string) *callPlan {
	f := c.export.Functions[name]
	feeds, inputs := c.feed(r.prefix+name+"/features", f, []*replica{r})
	c.OnDevice(r.device)
	node := c.Call(r.prefix+name, f, inputs[0], r.handles)
	p := &callPlan{name: name, feeds: feeds}
	for i, a := range f.Outputs {
		p.outputs = append(p.outputs, a.Name)
		p.fetches = append(p.fetches, fmt.Sprintf("%s:%d", node, i))
	}
	return p
}

// trainStep adds the step: the replicas' gradients, and the ways from there to
// the variables.
func (c *composer) trainStep() error {
	contract := c.export.Contract
	gradients := c.export.Functions["gradients"]
	t := &trainPlan{rows: make(map[string]rowFeed)}
	c.plan.train = t
	var inputs []map[string]string
	var err error
	if c.local != nil {
		t.local, inputs, err = c.readLocally(gradients)
	} else {
		t.feeds, inputs = c.feed("features", gradients, c.replicas)
	}
	if err != nil {
		return err
	}

	c.OnDevice(c.replicas[0].host)
	t.scalars = append([]graphs.Hyperparameter{{Name: "learning_rate"}, {Name: "weight_decay"}, {Name: "clip_norm", Default: 1}},
		contract.AllHyperparameters()...)
	t.scalarFeed = c.Placeholder("scalars", float32Type, []int64{int64(len(t.scalars))})
	t.seeds = c.Placeholder("seed", int64Type, []int64{int64(len(c.replicas)), 2})
	seeds := c.Node("Unpack", "seed/unpack", []string{t.seeds},
		graphs.Int("num", int64(len(c.replicas))), graphs.Int("axis", 0), graphs.Type("T", int64Type))

	if len(c.replicas) > 1 {
		for _, feature := range c.rowFeatures() {
			t.rows[feature] = rowFeed{c.Placeholder("rows/"+feature, dtpb.DataType_DT_INT32, []int64{-1}),
				c.Placeholder("rows/class/"+feature, dtpb.DataType_DT_INT32, nil)}
		}
	}
	began := make([][]string, len(c.replicas)) // clocks at the beginning and behind the gradients
	grads := make([]map[string]string, len(c.replicas))
	weights, losses := make([]string, len(c.replicas)), make([]string, len(c.replicas))
	for i, r := range c.replicas {
		r.inputs = inputs[i]
		c.OnDevice(r.host)
		unpacked := c.Node("Unpack", r.prefix+"scalars/unpack", []string{t.scalarFeed},
			graphs.Int("num", int64(len(t.scalars))), graphs.Int("axis", 0), graphs.Type("T", float32Type))
		for j, h := range t.scalars {
			r.inputs[h.Name] = fmt.Sprintf("%s:%d", unpacked, j)
		}
		r.inputs["seed"] = fmt.Sprintf("%s:%d", seeds, i)

		c.OnDevice(r.device)
		call := c.Call(r.prefix+"gradients", gradients, r.inputs, r.handles)
		out := func(name string) string { return fmt.Sprintf("%s:%d", call, gradients.Output(name)) }
		grads[i] = make(map[string]string)
		for _, a := range gradients.Outputs {
			if name, ok := strings.CutPrefix(a.Name, graphs.GradientPrefix); ok {
				grads[i][name] = out(a.Name)
				continue
			}
			if i == 0 {
				t.sums = append(t.sums, a.Name)
			}
			t.sumFetches = append(t.sumFetches, out(a.Name))
		}
		weights[i], losses[i] = out("weight_sum"), out("loss_sum")
		if c.timed() {
			// A call is done before its outputs are where TensorFlow inlines it.
			var made []string
			for _, v := range contract.Variables {
				made = append(made, c.Node("Identity", r.prefix+"clock/made/"+v.Name, []string{grads[i][v.Name]}, graphs.Type("T", float32Type)))
			}
			began[i] = []string{c.clock(r.prefix+"clock/began", r, "", slices.Collect(maps.Values(inputs[i]))...), c.clock(r.prefix+"clock/computed", r, weights[i], made...)}
			t.clocks = append(t.clocks, c.clocks(r.prefix+"clock", r, began[i]...))
		}
	}
	order := c.backward(gradients)
	t.step = c.apply("", order, grads, weights, losses, false, began)

	// The same by way of accumulators.
	var first, next []string
	accumulated := make([]map[string]string, len(c.replicas))
	for i, r := range c.replicas {
		c.OnDevice(r.device)
		accumulated[i] = make(map[string]string)
		for _, v := range contract.Variables {
			name := r.prefix + "accumulator/" + v.Name
			handle := c.Variable(name, float32Type, v.Shape)
			first = append(first, c.Node("AssignVariableOp", r.prefix+"accumulate/first/"+v.Name,
				[]string{handle, grads[i][v.Name]}, graphs.Type("dtype", float32Type)))
			next = append(next, c.Node("AssignAddVariableOp", r.prefix+"accumulate/next/"+v.Name,
				[]string{handle, grads[i][v.Name]}, graphs.Type("dtype", float32Type)))
			accumulated[i][v.Name] = c.Read(r.prefix+"accumulated/"+v.Name, handle, float32Type)
		}
	}
	c.OnDevice(c.replicas[0].host)
	t.first, t.next = c.Group("accumulate/first", first...), c.Group("accumulate/next", next...)
	t.totals = c.Placeholder("totals", float32Type, []int64{2})
	for i, r := range c.replicas {
		c.OnDevice(r.host)
		totals := c.Node("Unpack", r.prefix+"totals/unpack", []string{t.totals},
			graphs.Int("num", 2), graphs.Int("axis", 0), graphs.Type("T", float32Type))
		weights[i], losses[i] = totals+":0", totals+":1"
		if c.timed() {
			begin := c.clock(r.prefix+"apply/clock/began", r, "", totals)
			began[i] = []string{begin, begin}
		}
	}
	t.apply = c.apply("apply/", order, accumulated, weights, losses, true, began)
	return nil
}

// backward returns the trained variables in the order in which a function makes
// their gradients.
func (c *composer) backward(gradients *graphs.Function) []graphs.Variable {
	order := slices.Clone(c.export.Contract.Variables)
	depth := c.Depths(gradients)
	slices.SortStableFunc(order, func(a, b graphs.Variable) int {
		return depth[graphs.GradientPrefix+a.Name] - depth[graphs.GradientPrefix+b.Name]
	})
	return order
}

// apply adds a way from the replicas' gradients to new values of the variables.
// Weights and losses are the replicas' sums, or already those of all where total
// says so. The replicas' clocks so far are handed on.
func (c *composer) apply(prefix string, order []graphs.Variable, grads []map[string]string, weights, losses []string, total bool, began [][]string) applyPlan {
	switch {
	case len(c.replicas) == 1:
		return c.mirrored(prefix, grads, weights, losses, began)
	case c.shard:
		return c.sharded(prefix, grads, weights, losses, total, began)
	}
	grads, weights, losses = c.reduce(prefix, order, grads, weights, losses, total)
	return c.mirrored(prefix, grads, weights, losses, began)
}

// mirrored lets every replica apply the same update. Gradients and sums are those of
// all replicas.
func (c *composer) mirrored(prefix string, grads []map[string]string, weights, losses []string, began [][]string) applyPlan {
	contract := c.export.Contract
	var p applyPlan
	var done []string
	for i, r := range c.replicas {
		c.OnDevice(r.device)
		var all []string
		for _, v := range contract.Variables {
			all = append(all, grads[i][v.Name])
		}
		d := c.decide(r.prefix+prefix, r, c.squares(r.prefix+prefix+"squares", all), weights[i], losses[i])
		updates := []string{d.counted}
		for _, v := range contract.Variables {
			updates = append(updates, c.update(r.prefix+prefix, r, v, grads[i][v.Name], d))
		}
		done = append(done, updates...)
		if c.timed() {
			p.clocks = append(p.clocks, c.applied(prefix, r, began[i], d, append(all, weights[i], losses[i]), updates))
		}
		if i == 0 {
			p.fetches = []string{d.norm, d.finite, d.iteration}
		}
	}
	c.OnDevice(c.replicas[0].host)
	p.done = c.Group(prefix+"done", done...)
	return p
}

// sharded lets every variable's owner update it and hand the value on, unless all
// have the same variables. The first replica decides for all.
func (c *composer) sharded(prefix string, grads []map[string]string, weights, losses []string, total bool, began [][]string) applyPlan {
	contract := c.export.Contract
	typeT, n := graphs.Type("T", float32Type), graphs.Int("N", int64(len(c.replicas)))
	totals := make(map[string]string)
	owned := make([][]string, len(c.replicas))
	for _, v := range contract.Variables {
		owner := c.owners[v.Name]
		var parts []string
		for i, r := range c.replicas {
			c.OnDevice(r.device)
			parts = append(parts, c.rowsOf(r.prefix+prefix+"rows/"+v.Name, v, grads[i][v.Name]))
		}
		c.OnDevice(c.replicas[owner].device)
		total := c.Node("AddN", prefix+"reduced/"+v.Name, parts, n, typeT)
		totals[v.Name] = c.withRows(prefix+"rows/"+v.Name, v, grads[owner][v.Name], total)
		owned[owner] = append(owned[owner], totals[v.Name])
	}
	var squares []string
	for i, r := range c.replicas {
		if len(owned[i]) > 0 {
			c.OnDevice(r.device)
			squares = append(squares, c.squares(r.prefix+prefix+"squares", owned[i]))
		}
	}
	first := c.replicas[0]
	c.OnDevice(first.device)
	all := squares[0]
	if len(squares) > 1 {
		all = c.Node("AddN", prefix+"squares/all", squares, graphs.Int("N", int64(len(squares))), typeT)
	}
	weight, loss := weights[0], losses[0]
	if !total {
		weight = c.Node("AddN", prefix+"reduced/weight_sum", weights, n, typeT)
		loss = c.Node("AddN", prefix+"reduced/loss_sum", losses, n, typeT)
	}
	d := c.decide(prefix, first, all, weight, loss)
	done := make([][]string, len(c.replicas))
	done[0] = []string{d.counted}
	for _, v := range contract.Variables {
		owner := c.owners[v.Name]
		handle := c.replicas[owner].handles[v.Name]
		c.OnDevice(c.replicas[owner].device)
		updated := c.update(prefix, c.replicas[owner], v, totals[v.Name], d)
		done[owner] = append(done[owner], updated)
		if c.shared {
			continue
		}
		value := c.Read(prefix+"updated/"+v.Name, handle, float32Type, updated)
		for i, r := range c.replicas {
			if i != owner {
				c.OnDevice(r.device)
				done[i] = append(done[i], c.Assign(r.prefix+prefix+"take/"+v.Name, r.handles[v.Name], value, float32Type))
			}
		}
	}
	p := applyPlan{fetches: []string{d.norm, d.finite, d.iteration}}
	if c.timed() {
		for i, r := range c.replicas {
			// One that owns nothing waits for the decision.
			p.clocks = append(p.clocks, c.applied(prefix, r, began[i], d, append(owned[i], d.scale), done[i]))
		}
	}
	c.OnDevice(first.host)
	p.done = c.Group(prefix+"done", slices.Concat(done...)...)
	return p
}

// squares adds the sum of all elements' squares.
func (c *composer) squares(name string, tensors []string) string {
	n, typeT := graphs.Int("N", int64(len(tensors))), graphs.Type("T", float32Type)
	if c.own {
		return c.Node(kernels.Squares, name, tensors, n)
	}
	var halves []string
	for i, t := range tensors {
		halves = append(halves, c.Node("L2Loss", fmt.Sprintf("%s/%d", name, i), []string{t}, typeT))
	}
	half := c.Node("AddN", name+"/half", halves, n, typeT)
	return c.Node("Mul", name, []string{half, c.Float(name+"/two", 2)}, typeT)
}

// decision is what the updates of a replica depend on.
type decision struct {
	norm, finite, counted, iteration string
	scale, rate                      string
}

// decide adds the norm of the mean loss' gradient (the sum's, over the weight),
// the clipping, and whether the step is applied at all. Every update waits for it,
// so no variable changes while a gradient is computed.
func (c *composer) decide(prefix string, r *replica, squares, weight, loss string) decision {
	typeT := graphs.Type("T", float32Type)
	unit := c.Node("Reciprocal", prefix+"unit", []string{weight}, typeT)
	root := c.Node("Sqrt", prefix+"squares/root", []string{squares}, typeT)
	norm := c.Node("Mul", prefix+"norm", []string{root, unit}, typeT)

	// clip_norm / max(norm, clip_norm), or 1 where clip_norm is 0 or less.
	clip := r.inputs["clip_norm"]
	larger := c.Node("Maximum", prefix+"clip/larger", []string{norm, clip}, typeT)
	ratio := c.Node("RealDiv", prefix+"clip/ratio", []string{clip, larger}, typeT)
	on := c.Node("Greater", prefix+"clip/on", []string{clip, c.Float(prefix+"clip/zero", 0)}, typeT)
	factor := c.Node("SelectV2", prefix+"clip/factor", []string{on, ratio, c.Float(prefix+"clip/one", 1)}, typeT)
	scale := c.Node("Mul", prefix+"scale", []string{unit, factor}, typeT)

	// A dead learning rate stops the updates of a step that is not finite.
	finite := c.Node("LogicalAnd", prefix+"applied", []string{
		c.Node("IsFinite", prefix+"applied/norm", []string{norm}, typeT),
		c.Node("IsFinite", prefix+"applied/loss", []string{loss}, typeT),
	})
	rate := c.Node("Switch", prefix+"applied/rate", []string{r.inputs["learning_rate"], finite}, typeT) + ":1"

	iterations := r.handles[c.export.Contract.Optimizer.Iterations]
	one := c.Node("Cast", prefix+"applied/count", []string{finite}, graphs.Type("SrcT", dtpb.DataType_DT_BOOL), graphs.Type("DstT", int64Type))
	counted := c.Node("AssignAddVariableOp", prefix+"count", []string{iterations, one}, graphs.Type("dtype", int64Type))
	iteration := c.Read(prefix+"iteration", iterations, int64Type, counted)
	return decision{norm, finite, counted, iteration, scale, rate}
}

// update adds the update of one variable of a replica.
func (c *composer) update(prefix string, r *replica, v graphs.Variable, gradient string, d decision) string {
	contract := c.export.Contract
	arguments := map[string]string{
		"variable":       r.handles[v.Name],
		"gradient":       gradient,
		"gradient_scale": d.scale,
		"iteration":      d.iteration,
		"learning_rate":  d.rate,
		"weight_decay":   r.inputs["weight_decay"],
	}
	if !v.WeightDecay {
		arguments["weight_decay"] = c.Float(prefix+"no_decay/"+v.Name, 0)
	}
	for _, slot := range contract.Optimizer.Slots {
		arguments[slot] = r.handles[graphs.SlotName(slot, v.Name)]
	}
	for _, h := range contract.Optimizer.Hyperparameters {
		arguments[h.Name] = r.inputs[h.Name]
	}
	return c.Call(prefix+"update/"+v.Name, c.export.Functions["update"], arguments, nil)
}

var dtypes = map[string]struct {
	proto dtpb.DataType
	tf    tf.DataType
	size  int
}{
	"float32": {dtpb.DataType_DT_FLOAT, tf.Float, 4},
	"int32":   {dtpb.DataType_DT_INT32, tf.Int32, 4},
	"int64":   {dtpb.DataType_DT_INT64, tf.Int64, 8},
}
