package graphs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Phase is a part of a training step that has variables, gradients and a count of updates of its own,
// such as that of the discriminator of a GAN. A step makes its phases one after the other: what one has
// updated is what the next one reads.
type Phase struct {
	Name string `json:"name"`
	// Every and Offset say which steps have the phase: step n, counted from 0, if n modulo Every is
	// Offset.
	Every  int64 `json:"every"`
	Offset int64 `json:"offset,omitempty"`
}

// Due reports whether a step, counted from 0, has the phase.
func (p Phase) Due(step int64) bool { return step%p.Every == p.Offset }

// Gradients is the name of the function that gives the gradients of the phase's variables.
func (p Phase) Gradients() string {
	if p.Name == "" {
		return "gradients"
	}
	return "gradients_" + p.Name
}

// Iterations is the name of the int64 scalar variable that counts the phase's updates.
func (p Phase) Iterations() string { return "optimizer/phases/" + p.Name }

// StepPhases returns the phases of a training step, in order. If the contract has none, that is one
// without a name, of all variables.
func (c *Contract) StepPhases() []Phase {
	if len(c.Phases) > 0 {
		return c.Phases
	}
	return []Phase{{Every: 1}}
}

// Of returns those of the variables that the phase updates.
func (p Phase) Of(variables []Variable) []Variable {
	if p.Name == "" {
		return variables
	}
	var out []Variable
	for _, v := range variables {
		if v.Phase == p.Name {
			out = append(out, v)
		}
	}
	return out
}

// gradientFunctions returns the functions that give gradients.
func (c *Contract) gradientFunctions() []string {
	var out []string
	for _, p := range c.StepPhases() {
		out = append(out, p.Gradients())
	}
	return out
}

// checkPhases checks the phases, and that every variable belongs to one.
func (c *Contract) checkPhases() error {
	updated := make(map[string]bool)
	for _, v := range c.Variables {
		updated[v.Phase] = true
		if v.Phase != "" && !slices.ContainsFunc(c.Phases, func(p Phase) bool { return p.Name == v.Phase }) {
			return fmt.Errorf("variable %s has phase %q; expected one of phases", v.Name, v.Phase)
		}
		if v.Phase == "" && len(c.Phases) > 0 {
			return fmt.Errorf("variable %s has no phase; expected one of phases", v.Name)
		}
		if v.Assigned && len(c.Phases) > 0 {
			return fmt.Errorf("variable %s is assigned, and there are phases; expected none that passes assign", v.Name)
		}
	}
	if len(c.Phases) == 0 {
		return nil
	}
	seen, always := make(map[string]bool), false
	for _, p := range c.Phases {
		if len(p.Name) > maxName || !argName.MatchString(p.Name) || seen[p.Name] {
			return fmt.Errorf("phase name %.64q is not valid or is declared twice; expected letters, digits and _", p.Name)
		}
		seen[p.Name] = true
		if _, ok := c.Updates[p.Gradients()]; ok {
			return fmt.Errorf("update %s has the name of the gradients of phase %s; expected another", p.Gradients(), p.Name)
		}
		if p.Every < 1 || p.Offset < 0 || p.Offset >= p.Every {
			return fmt.Errorf("phase %s has every %d and offset %d; expected every 1 or more, and an offset of 0 or more that is less", p.Name, p.Every, p.Offset)
		}
		if !updated[p.Name] {
			return fmt.Errorf("phase %s has no variables; expected one at least", p.Name)
		}
		always = always || p.Every == 1
	}
	switch {
	case !always:
		return errors.New("no phase has every 1; expected one at least that each step has")
	case c.XLA:
		return errors.New("xla is true, and there are phases; expected one of the two")
	case c.Precision == FP16:
		return fmt.Errorf("precision is %s, and there are phases; expected %s or %s", FP16, Float32, BF16)
	}
	return nil
}

// wantGradients returns what the functions that give gradients must take and give.
func (c *Contract) wantGradients(inputs, optional, sums []Arg) []want {
	var out []want
	for _, p := range c.StepPhases() {
		w := want{name: p.Gradients(), inputs: inputs, optional: optional, outputs: slices.Clone(sums)}
		variables := p.Of(c.Variables)
		for _, v := range variables {
			w.outputs = append(w.outputs, Arg{Name: GradientPrefix + v.Name, DType: dtypeOf(v.DType), Shape: v.Shape, Ranked: true})
		}
		for _, s := range c.Changes(variables) {
			a := Arg{Name: StatePrefix + s.Name, DType: dtypeOf(s.DType), Shape: s.Shape, Ranked: true}
			if p.Name == "" {
				w.outputs = append(w.outputs, a)
			} else {
				w.more = append(w.more, a)
			}
		}
		out = append(out, w)
	}
	return out
}

// checkStates checks that no change of a state is given that would be lost, that some function gives
// each, that no gradient is that of another phase, and that training gives sums only.
func (e *Export) checkStates() error {
	c := e.Contract
	given := make(map[string]bool)
	for _, p := range c.StepPhases() {
		name, variables := p.Gradients(), p.Of(c.Variables)
		states := c.Changes(variables)
		for _, a := range e.Functions[name].Outputs {
			if strings.HasPrefix(a.Name, EachPrefix) {
				return fmt.Errorf("function %s: output %s is not a sum; expected outputs %s... of evaluate only", name, a.Name, EachPrefix)
			}
			if state, ok := strings.CutPrefix(a.Name, StatePrefix); ok {
				given[state] = true
				if !slices.ContainsFunc(states, func(s State) bool { return s.Name == state }) {
					return fmt.Errorf("function %s: output %s is of a state that is not declared as updated in %s", name, a.Name, ContractFile)
				}
			}
			variable, ok := strings.CutPrefix(a.Name, GradientPrefix)
			if ok && p.Name != "" && !slices.ContainsFunc(variables, func(v Variable) bool { return v.Name == variable }) {
				return fmt.Errorf("function %s: output %s is of a variable that the phase does not update", name, a.Name)
			}
		}
	}
	for _, s := range c.UpdatedStates() {
		if !given[s.Name] {
			return fmt.Errorf("state %s is updated, and no phase gives %s%s", s.Name, StatePrefix, s.Name)
		}
	}
	return nil
}
