package compose

import (
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// checkPhases returns an error if the layout has what is not there for steps of several phases.
func (l Layout) checkPhases(contract *graphs.Contract) error {
	if len(contract.Phases) == 0 || !l.Train {
		return nil
	}
	switch {
	case l.Steps > 1:
		return fault.Usagef("%d steps are made in a call, and a step of the graph has %d phases; expected 1", l.Steps, len(contract.Phases))
	case l.Local != nil:
		return fault.Usagef("the workers read the features themselves, and a step of the graph has %d phases; expected features that are fed", len(contract.Phases))
	case l.Average.on():
		return fault.Usagef("averages of the variables are kept, and a step of the graph has %d phases; expected none", len(contract.Phases))
	}
	for _, p := range contract.Phases {
		if len(p.Of(l.Factors.apply(contract.Variables))) == 0 {
			return fault.Usagef("all variables of the phase %s are frozen; expected one at least to train", p.Name)
		}
	}
	return nil
}

// trainSteps adds the training step, phase by phase.
func (c *composer) trainSteps() error {
	all := c.trained
	for _, p := range c.export.Contract.StepPhases() {
		c.phase, c.trained = p, p.Of(all)
		if p.Name != "" {
			c.Scope("phase/" + p.Name + "/")
		}
		if err := c.trainStep(); err != nil {
			return err
		}
	}
	c.Scope("")
	c.trained = all
	return nil
}

// count adds a number to a variable that counts on a replica, and returns the node that does and the new
// count.
func (c *composer) count(prefix, of string, r *replica, variable string, n build.Ref) (counted, count build.Ref) {
	handle := r.handles[variable]
	counted = c.Node("AssignAddVariableOp", prefix+of+"count", []build.Ref{handle, n}, build.Type("dtype", int64Type))
	return counted, c.Read(prefix+of+"iteration", handle, int64Type, counted)
}

// counts adds one to the count of updates of a replica, and to that of steps. They are the same but in a
// phase, whose own are counted, and the step if the phase is the last one of it.
func (c *composer) counts(prefix string, r *replica, one build.Ref) (counted, steps, iteration build.Ref) {
	all := c.export.Contract.Optimizer.Iterations
	if c.phase.Name == "" {
		counted, steps = c.count(prefix, "", r, all, one)
		return counted, steps, steps
	}
	own, iteration := c.count(prefix, "own/", r, c.phase.Iterations(), one)
	last := c.plan.Phases[len(c.plan.Phases)-1].Last
	ended := c.Node("Mul", prefix+"ended", []build.Ref{one, last}, build.Type("T", int64Type))
	step, steps := c.count(prefix, "", r, all, ended)
	return c.Group(prefix+"counted", own, step), steps, iteration
}
