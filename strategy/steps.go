package strategy

import "context"

// Steps implements Strategy. Without Config.StepsPerCall, every step is one call of the session. A
// step that accumulates micro-batches has several calls.
func (m *Model) Steps(ctx context.Context, inputs []StepInput) ([]Result, error) {
	out := make([]Result, 0, len(inputs))
	for len(inputs) > 0 {
		group, invalid := m.group(inputs)
		results, err := m.makeSteps(ctx, group)
		if out = append(out, results...); err != nil {
			return out, err
		}
		if n := len(results); n > 0 && !results[n-1].Applied {
			return out, nil
		}
		if invalid != nil {
			return out, invalid
		}
		inputs = inputs[len(group):]
	}
	return out, nil
}

// group checks the first inputs and returns those that one call makes. If the input after them is
// invalid, it also returns an error.
func (m *Model) group(inputs []StepInput) ([]*step, error) {
	var out []*step
	for _, in := range inputs[:min(len(inputs), m.runtime.StepsPerCall)] {
		s, err := m.newStep(in)
		if err != nil {
			return out, err
		}
		if s.rounds > 1 { // a step of several calls
			if len(out) == 0 {
				out = append(out, s)
			}
			break
		}
		out = append(out, s)
	}
	return out, nil
}

// makeSteps makes the steps of a group.
func (m *Model) makeSteps(ctx context.Context, group []*step) ([]Result, error) {
	switch {
	case len(group) == 0:
		return nil, nil
	case m.plan.Loop != nil && group[0].rounds == 1:
		return m.loop(ctx, group)
	}
	r, err := group[0].makePhases(ctx)
	if err != nil {
		return nil, err
	}
	return []Result{r}, nil
}
