package strategy

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/gorbit-ml/gorbit/graphs"
)

// phaseSeeds is the number of seeds that a phase of a step has for its micro-batches.
const phaseSeeds = 1 << 20

// newStep checks the input of a step. The result is the first phase of it; a step without phases has one.
func (m *Model) newStep(in StepInput) (*step, error) {
	if m.plan.Train == nil {
		return nil, errors.New("the graph was composed for evaluation only")
	}
	var first *step
	for i, p := range m.plan.Phases {
		if !p.Phase.Due(m.updates) {
			continue
		}
		s, err := m.newPart(in, p)
		if err != nil {
			return nil, err
		}
		if s.drawn = i * phaseSeeds; first == nil {
			first = s
		} else {
			first.later = append(first.later, s)
		}
	}
	return first, nil
}

// makePhases makes all phases of a step, one after the other: each reads what those before it have
// updated. It ends after one that is not applied.
func (s *step) makePhases(ctx context.Context) (Result, error) {
	if s.plan.Phase.Name == "" {
		err := s.make(ctx)
		return s.result, err
	}
	total := Result{Sums: map[string][]float64{"loss_sum": {0}, "weight_sum": {0}}}
	parts := append([]*step{s}, s.later...)
	for i, part := range parts {
		part.last = i == len(parts)-1
		if err := part.make(ctx); err != nil {
			return Result{}, fmt.Errorf("phase %s: %w", part.plan.Phase.Name, err)
		}
		total.addPhase(part.plan.Phase, part.result)
		if !total.Applied {
			break
		}
	}
	return total, nil
}

// addPhase adds the result of the next phase of a step.
func (r *Result) addPhase(p graphs.Phase, part Result) {
	for name, values := range part.Sums {
		r.Sums[p.Name+"/"+name] = values
	}
	for _, name := range []string{"loss_sum", "weight_sum"} {
		r.Sums[name][0] += part.Sums[name][0]
	}
	r.GradientNorm = math.Hypot(r.GradientNorm, part.GradientNorm)
	r.Applied, r.Iterations = part.Applied, part.Iterations
	r.InSession += part.InSession
}
