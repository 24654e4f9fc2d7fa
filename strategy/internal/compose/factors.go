package compose

import (
	"maps"
	"math"
	"slices"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Factor is what a run changes about the update of a variable.
type Factor struct {
	// LearningRate and WeightDecay multiply the factors of the contract.
	LearningRate, WeightDecay float64
	// Frozen means that the variable is not updated: it has no slots, and its gradient counts for
	// nothing.
	Frozen bool
}

// Factors are the factors of variables by name. Those of other variables are 1.
type Factors map[string]Factor

// check returns an error that names the first variable at fault.
func (f Factors) check(contract *graphs.Contract) error {
	known := make(map[string]bool, len(contract.Variables))
	for _, v := range contract.Variables {
		known[v.Name] = true
	}
	finite := func(x float64) bool { return x >= 0 && !math.IsInf(x, 0) }
	for _, name := range slices.Sorted(maps.Keys(f)) {
		switch factor := f[name]; {
		case !known[name]:
			return fault.Usagef("factors are given for %s, which is not a trained variable of the graph", name)
		case factor.Frozen:
		case !finite(factor.LearningRate) || !finite(factor.WeightDecay):
			return fault.Usagef("the factors of %s are %v of the learning rate and %v of the weight decay; expected 0 or more", name, factor.LearningRate, factor.WeightDecay)
		}
	}
	if len(contract.Variables) > 0 && len(f.apply(contract.Variables)) == 0 {
		return fault.Usagef("all %d variables are frozen; expected at least one to train", len(contract.Variables))
	}
	return nil
}

// apply returns the variables that are not frozen, with the products of their factors.
func (f Factors) apply(variables []graphs.Variable) []graphs.Variable {
	if len(f) == 0 {
		return variables
	}
	var out []graphs.Variable
	for _, v := range variables {
		if factor, ok := f[v.Name]; ok {
			if factor.Frozen {
				continue
			}
			v.LearningRate *= factor.LearningRate
			v.Decay *= factor.WeightDecay
		}
		out = append(out, v)
	}
	return out
}
