package compose

import (
	"fmt"
	"maps"
	"slices"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/kernelops"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// outcome is the end of a replica's update.
type outcome struct {
	replica  *replica
	decision decision
	// done are all nodes that change variables. If the step is not applied, those that compute
	// new values do not run.
	done []build.Ref
}

// apply adds a path from what the replicas made to new values of the variables. Weights and losses are
// the sums of each replica or, if total is set, of all replicas.
func (c *composer) apply(prefix string, order []graphs.Variable, m []made, total bool) (Apply, []outcome) {
	switch {
	case len(c.replicas) == 1:
		return c.mirrored(prefix, m)
	case c.Shard:
		return c.sharded(prefix, m, total)
	}
	return c.mirrored(prefix, c.reduce(prefix, order, m, total))
}

// mirrored makes every replica apply the same update. Gradients and sums are totals over all
// replicas.
func (c *composer) mirrored(prefix string, m []made) (Apply, []outcome) {
	var p Apply
	var outcomes []outcome
	var done []build.Ref
	for i, r := range c.replicas {
		c.OnDevice(r.device)
		var all []build.Ref
		var groups []group
		if c.Together > 0 {
			groups = c.gather(r.prefix+prefix, c.trained, m[i].grads)
			all = gradients(groups)
		} else {
			all = c.gradientsOf(m[i])
		}
		d := c.decide(r.prefix+prefix, r, c.squares(r.prefix+prefix+"squares", all), m[i])
		updates := []build.Ref{d.counted}
		if c.Together > 0 {
			_, changed := c.updateGroups(r, groups, d)
			updates = append(updates, changed...)
		} else {
			for _, v := range c.trained {
				updates = append(updates, c.average(r.prefix+prefix, r, v, c.update(r.prefix+prefix, r, v, m[i].grads[v.Name], d), d.average))
			}
		}
		for _, s := range c.updatedStates() {
			updates = append(updates, c.Assign(r.prefix+prefix+"update/"+s.Name, r.handles[s.Name], d.states[s.Name], float32Type))
		}
		done = append(done, updates...)
		outcomes = append(outcomes, outcome{r, d, updates})
		if c.timed() {
			p.Clocks = append(p.Clocks, c.applied(prefix, r, m[i].began, d, append(all, m[i].weight, m[i].loss), updates))
		}
		if i == 0 {
			p.Fetches = []build.Ref{d.norm, d.finite, d.steps}
		}
	}
	c.OnDevice(c.replicas[0].host)
	p.Done = c.Group(prefix+"done", done...)
	return p, outcomes
}

// sharded makes the owner of each variable update it and send the value to the others, unless the
// replicas share their variables. The first replica decides for all.
func (c *composer) sharded(prefix string, m []made, total bool) (Apply, []outcome) {
	totals := made{grads: c.stateTotals(prefix, m), weight: m[0].weight, loss: m[0].loss}
	for _, own := range m {
		totals.sums = append(totals.sums, own.sums...)
	}
	owned, parts := c.ownedSums(prefix, m, totals.grads)
	groups := make([][]group, len(c.replicas))
	if c.Together > 0 {
		for i, r := range c.replicas {
			c.OnDevice(r.device)
			groups[i] = c.gather(r.prefix+prefix, c.owned(i), totals.grads)
			owned[i] = gradients(groups[i])
		}
	}
	var squares []build.Ref
	for i, r := range c.replicas {
		if len(owned[i]) > 0 {
			c.OnDevice(r.device)
			squares = append(squares, c.squares(r.prefix+prefix+"squares", owned[i]))
		}
	}
	first := c.replicas[0]
	c.OnDevice(first.device)
	square := c.sum(prefix+"squares/all", squares)
	if !total {
		totals.weight = c.sumOf(prefix+"reduced/weight_sum", m, func(m made) build.Ref { return m.weight })
		totals.loss = c.sumOf(prefix+"reduced/loss_sum", m, func(m made) build.Ref { return m.loss })
	}
	d := c.decide(prefix, first, square, totals)
	var done [][]build.Ref
	if c.Together > 0 {
		done = c.updateOwned(prefix, groups, d)
	} else {
		done = c.updateEach(prefix, totals.grads, parts, d)
	}
	done[0] = append(done[0], d.counted)
	for i, r := range c.replicas {
		for _, s := range c.updatedStates() {
			if i == 0 || !c.Shared {
				c.OnDevice(r.device)
				done[i] = append(done[i], c.Assign(r.prefix+prefix+"update/"+s.Name, r.handles[s.Name], d.states[s.Name], float32Type))
			}
		}
	}
	p := Apply{Fetches: []build.Ref{d.norm, d.finite, d.steps}}
	if c.timed() {
		for i, r := range c.replicas {
			// A replica that owns nothing waits for the decision.
			p.Clocks = append(p.Clocks, c.applied(prefix, r, m[i].began, d, append(owned[i], d.scale), done[i]))
		}
	}
	c.OnDevice(first.host)
	all := slices.Concat(done...)
	p.Done = c.Group(prefix+"done", all...)
	return p, []outcome{{first, d, all}}
}

// ownedSums adds the sums of the replicas' gradients on the owner of each variable. It sets those of whole
// variables in totals, and returns all by owner, and those of parts by variable.
func (c *composer) ownedSums(prefix string, m []made, totals map[string]build.Ref) (owned [][]build.Ref, parts map[string][]build.Ref) {
	owned, parts = make([][]build.Ref, len(c.replicas)), make(map[string][]build.Ref)
	for _, v := range c.trained {
		if c.parts[v.Name] != nil {
			parts[v.Name] = c.partSums(prefix, v, m)
			for i, sum := range parts[v.Name] {
				owned[i] = append(owned[i], sum)
			}
			continue
		}
		owner := c.owners[v.Name]
		var own []build.Ref
		for i, r := range c.replicas {
			c.OnDevice(r.device)
			gradient := m[i].grads[v.Name]
			if !c.inFiles(v) {
				gradient = c.rowsOf(r.prefix+prefix+"rows/"+v.Name, v, gradient)
			}
			own = append(own, gradient)
		}
		c.OnDevice(c.replicas[owner].device)
		if c.inFiles(v) {
			totals[v.Name] = c.sumInFile(prefix+"reduced/"+v.Name, own)
		} else {
			total := c.sum(prefix+"reduced/"+v.Name, own)
			totals[v.Name] = c.withRows(prefix+"rows/"+v.Name, v, m[owner].grads[v.Name], total)
		}
		owned[owner] = append(owned[owner], totals[v.Name])
	}
	return owned, parts
}

// owned returns the variables that a replica owns.
func (c *composer) owned(replica int) []graphs.Variable {
	var out []graphs.Variable
	for _, v := range c.trained {
		if c.owners[v.Name] == replica {
			out = append(out, v)
		}
	}
	return out
}

// updateEach makes the owner of each variable update it and send the value to the others, unless the
// replicas share their variables. Parts are the gradients of variables that are divided. It returns the
// nodes that change variables, by replica.
func (c *composer) updateEach(prefix string, grads map[string]build.Ref, parts map[string][]build.Ref, d decision) [][]build.Ref {
	done := make([][]build.Ref, len(c.replicas))
	for _, v := range c.trained {
		if own := parts[v.Name]; own != nil {
			for i, changed := range c.updateParts(prefix, v, own, d) {
				done[i] = append(done[i], changed)
			}
			continue
		}
		owner := c.owners[v.Name]
		handle := c.replicas[owner].handles[v.Name]
		c.OnDevice(c.replicas[owner].device)
		updated := c.update(prefix, c.replicas[owner], v, grads[v.Name], d)
		done[owner] = append(done[owner], c.average(c.replicas[owner].prefix+prefix, c.replicas[owner], v, updated, d.average))
		if c.Shared {
			continue
		}
		value := c.Read(prefix+"updated/"+v.Name, handle, float32Type, updated)
		for i, r := range c.replicas {
			if i != owner {
				c.OnDevice(r.device)
				taken := c.Assign(r.prefix+prefix+"take/"+v.Name, r.handles[v.Name], value, float32Type)
				done[i] = append(done[i], c.average(r.prefix+prefix, r, v, taken, d.average))
			}
		}
	}
	return done
}

// stateTotals adds the sums of the replicas' changes of states, on the first replica, and returns
// them as gradients does.
func (c *composer) stateTotals(prefix string, m []made) map[string]build.Ref {
	out := make(map[string]build.Ref)
	c.OnDevice(c.replicas[0].device)
	for _, v := range c.stateChanges() {
		out[v.Name] = c.sumOf(prefix+"reduced/"+v.Name, m, func(m made) build.Ref { return m.grads[v.Name] })
	}
	return out
}

// sumOf adds one of the tensors that each replica made.
func (c *composer) sumOf(name string, m []made, tensor func(made) build.Ref) build.Ref {
	var parts []build.Ref
	for _, own := range m {
		parts = append(parts, tensor(own))
	}
	return c.sum(name, parts)
}

// sum adds tensors, two at a time and in their order. A single AddN of three or more is not
// deterministic: it accumulates into an input whose memory is no longer used, so the order, and the
// last bits of the sum, would change from run to run.
func (c *composer) sum(name string, tensors []build.Ref) build.Ref {
	total, last := tensors[0], len(tensors)-1
	for i, t := range tensors[1:] {
		at := name
		if i+1 < last {
			at = fmt.Sprintf("%s/%d", name, i)
		}
		total = c.Node("AddN", at, []build.Ref{total, t}, build.Type("T", float32Type), build.Int("N", 2))
	}
	return total
}

// squares adds the sum of the squares of all elements.
func (c *composer) squares(name string, tensors []build.Ref) build.Ref {
	n, typeT := build.Int("N", int64(len(tensors))), build.Type("T", float32Type)
	if c.Own {
		return c.Node(kernels.Squares, name, tensors, n)
	}
	var halves []build.Ref
	for i, t := range tensors {
		halves = append(halves, c.Node("L2Loss", fmt.Sprintf("%s/%d", name, i), []build.Ref{t}, typeT))
	}
	half := c.Node("AddN", name+"/half", halves, n, typeT)
	return c.Node("Mul", name, []build.Ref{half, c.Float(name+"/two", 2)}, typeT)
}

// decision holds the inputs of a replica's updates.
type decision struct {
	norm, finite, counted build.Ref
	iteration, steps      build.Ref // the number of this update, and of steps so far
	scale, rate           build.Ref
	states                map[string]build.Ref // new values, of assigned variables, too
	average               factors              // of moving averages
	shared                map[string]build.Ref // calls of the shared parts of updates, by update
}

// decide adds what judge adds. If the step is not applied, the learning rate and the new values of
// states are dead tensors, which stops all updates; or, where variables are updated in groups, the
// values of states are the old ones.
func (c *composer) decide(prefix string, r *replica, squares build.Ref, totals made) decision {
	d := c.judge(prefix, r, squares, totals)
	if c.Whole {
		d.rate = c.afterSums(prefix, d.rate, totals.sums)
	}
	d.average = c.averaging(prefix, d.iteration)
	d.shared = c.shared(prefix, r, d.iteration)
	if c.Together > 0 {
		for _, s := range c.changes() {
			old := c.Read(prefix+"applied/old/"+s.Name, r.handles[s.Name], float32Type, d.states[s.Name])
			d.states[s.Name] = c.choose(prefix+"applied/"+s.Name, d.finite, d.states[s.Name], old)
		}
		return d
	}
	d.rate = c.Node("Switch", prefix+"applied/rate", []build.Ref{d.rate, d.finite}, build.Type("T", float32Type)).Output(1)
	for _, s := range c.changes() {
		d.states[s.Name] = c.Node("Switch", prefix+"applied/"+s.Name, []build.Ref{d.states[s.Name], d.finite}, build.Type("T", float32Type)).Output(1)
	}
	return d
}

// judge adds the norm of the gradient of the mean loss (the gradient of the sum divided by the
// weight), the clipping, the new values of states, and the check whether the step is applied. Every
// update waits for it, so no variable changes while a gradient is computed. Totals are the sums over
// all replicas: the weight, the loss, and of grads the changes of states.
func (c *composer) judge(prefix string, r *replica, squares build.Ref, totals made) decision {
	typeT := build.Type("T", float32Type)
	unit := c.Node("Reciprocal", prefix+"unit", []build.Ref{totals.weight}, typeT)
	root := c.Node("Sqrt", prefix+"squares/root", []build.Ref{squares}, typeT)
	norm := c.Node("Mul", prefix+"norm", []build.Ref{root, unit}, typeT)

	// clip_norm / max(norm, clip_norm), or 1 if clip_norm is 0 or less.
	clip := r.inputs["clip_norm"]
	larger := c.Node("Maximum", prefix+"clip/larger", []build.Ref{norm, clip}, typeT)
	ratio := c.Node("RealDiv", prefix+"clip/ratio", []build.Ref{clip, larger}, typeT)
	on := c.Node("Greater", prefix+"clip/on", []build.Ref{clip, c.Float(prefix+"clip/zero", 0)}, typeT)
	factor := c.Node("SelectV2", prefix+"clip/factor", []build.Ref{on, ratio, c.Float(prefix+"clip/one", 1)}, typeT)
	scale := c.Node("Mul", prefix+"scale", []build.Ref{unit, factor}, typeT)

	finite := c.Node("LogicalAnd", prefix+"applied", []build.Ref{
		c.Node("IsFinite", prefix+"applied/norm", []build.Ref{norm}, typeT),
		c.Node("IsFinite", prefix+"applied/loss", []build.Ref{totals.loss}, typeT),
	})

	states, sound := c.newStates(prefix, r, unit, totals.grads)
	if !sound.IsZero() {
		finite = c.Node("LogicalAnd", prefix+"applied/all", []build.Ref{finite, sound})
	}

	one := c.Node("Cast", prefix+"applied/count", []build.Ref{finite}, build.Type("SrcT", dtpb.DataType_DT_BOOL), build.Type("DstT", int64Type))
	counted, steps, iteration := c.counts(prefix, r, one)
	return decision{norm: norm, finite: finite, counted: counted, iteration: iteration, steps: steps, scale: scale, rate: r.inputs["learning_rate"], states: states}
}

// newStates adds the new values of a replica's states: each plus the sum of its changes, which are
// multiplied by weights, times the unit, which is the reciprocal of the weight of all replicas. It
// also returns whether all of them are finite, or the zero Ref if there are none.
func (c *composer) newStates(prefix string, r *replica, unit build.Ref, totals map[string]build.Ref) (states map[string]build.Ref, finite build.Ref) {
	typeT := build.Type("T", float32Type)
	states = make(map[string]build.Ref)
	var all []build.Ref
	for _, s := range c.changes() {
		name := prefix + "states/" + s.Name
		change := c.Node("Mul", name+"/change", []build.Ref{totals[graphs.StatePrefix+s.Name], unit}, typeT)
		// In a loop, the step before has changed the state.
		old := c.Read(name+"/old", r.handles[s.Name], float32Type, change)
		states[s.Name] = c.Node("AddV2", name, []build.Ref{old, change}, typeT)
		all = append(all, states[s.Name])
	}
	if len(all) == 0 {
		return states, build.Ref{}
	}
	return states, c.Node("IsFinite", prefix+"applied/states", []build.Ref{c.squares(prefix+"states/squares", all)}, typeT)
}

// shared calls what the updates of a replica's variables share, by update.
func (c *composer) shared(prefix string, r *replica, iteration build.Ref) map[string]build.Ref {
	arguments := maps.Clone(r.inputs)
	arguments["iteration"] = iteration
	out := make(map[string]build.Ref)
	for _, name := range slices.Sorted(maps.Keys(c.updates)) {
		if f := c.updates[name].shared; f != nil {
			out[name] = c.Call(prefix+"update/shared/"+name, f, arguments, nil)
		}
	}
	return out
}

// update adds the update of one variable of a replica.
func (c *composer) update(prefix string, r *replica, v graphs.Variable, gradient build.Ref, d decision) build.Ref {
	handle := r.handles[v.Name]
	if v.Assigned {
		set := c.Assign(prefix+"assign/"+v.Name, handle, d.states[v.Name], float32Type)
		handle = c.Node("Identity", prefix+"assigned/"+v.Name, []build.Ref{handle, set.After()}, build.Type("T", resourceType))
	}
	return c.updateOf(prefix, r, v, handle, gradient, d)
}

// updateOf adds the update of a variable of a replica, or of a part of it, with this handle and the replica's
// slots. If the decision says so, and if a dead learning rate does not stop all of it, the handles of variable
// and slots are dead as well where the step is not applied.
func (c *composer) updateOf(prefix string, r *replica, v graphs.Variable, handle, gradient build.Ref, d decision) build.Ref {
	u := c.updates[v.Update]
	arguments := c.arguments(prefix, r, v, gradient, d)
	arguments["variable"] = handle
	handles := []string{"variable"}
	for _, slot := range c.export.Contract.SlotsOf(v) {
		arguments[slot.Name] = r.handles[graphs.SlotName(slot.Name, v.Name)]
		handles = append(handles, slot.Name)
	}
	for _, name := range handles {
		if !d.finite.IsZero() && !u.waits {
			arguments[name] = c.Node("Switch", prefix+"applied/"+name+"/"+v.Name, []build.Ref{arguments[name], d.finite}, build.Type("T", resourceType)).Output(1)
		}
	}
	if op, ok := c.offloaded[v.Update]; ok {
		return c.updateInFile(prefix, v, kernelops.MappedUpdate(op, c.inFiles(v)), arguments)
	}
	return c.Call(prefix+"update/"+v.Name, u.function, arguments, nil)
}

// arguments returns those of the update of a variable of a replica, but for the handles.
func (c *composer) arguments(prefix string, r *replica, v graphs.Variable, gradient build.Ref, d decision) map[string]build.Ref {
	out := map[string]build.Ref{
		"gradient":       gradient,
		"gradient_scale": d.scale,
		"iteration":      d.iteration,
		"learning_rate":  c.times(prefix+"rate/"+v.Name, d.rate, v.LearningRate),
	}
	if v.Decay == 0 {
		out["weight_decay"] = c.Float(prefix+"no_decay/"+v.Name, 0)
	} else {
		out["weight_decay"] = c.times(prefix+"decay/"+v.Name, r.inputs["weight_decay"], v.Decay)
	}
	for _, h := range c.export.Contract.Optimizer.Hyperparameters {
		out[h.Name] = r.inputs[h.Name]
	}
	if shared := c.updates[v.Update].shared; shared != nil {
		for i, a := range shared.Outputs {
			out[a.Name] = d.shared[v.Update].Output(i)
		}
	}
	return out
}

// times adds the product of a scalar and a factor.
func (c *composer) times(name string, scalar build.Ref, factor float64) build.Ref {
	if factor == 1 {
		return scalar
	}
	return c.Node("Mul", name, []build.Ref{scalar, c.Float(name+"/factor", float32(factor))}, build.Type("T", float32Type))
}

// applied adds clock readings after the sums and after the new values to those in began. If the
// step is not applied, there may be no new values, and the reading after the sums is used for both.
func (c *composer) applied(prefix string, r *replica, began []build.Ref, d decision, sums, updates []build.Ref) build.Ref {
	name := r.prefix + prefix + "clock/"
	typeT := build.Type("T", dtpb.DataType_DT_DOUBLE)
	reduced := c.clock(name+"reduced", r, d.scale, sums...)
	updated := c.clock(name+"updated", r, d.scale, updates...)
	if c.Together > 0 { // there are always values
		return c.clocks(name+"all", r, append(slices.Clone(began), reduced, updated)...)
	}
	refused := c.Node("Switch", name+"refused", []build.Ref{reduced, d.finite}, typeT).Output(0)
	ended := c.Node("Merge", name+"ended", []build.Ref{updated, refused}, typeT, build.Int("N", 2))
	return c.clocks(name+"all", r, append(slices.Clone(began), reduced, ended)...)
}
