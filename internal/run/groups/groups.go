// Package groups divides the trained variables of a graph into groups with learning rates and weight
// decays of their own, and freezes some of them.
package groups

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Part is what a group has of the variables.
type Part struct {
	// Group is the group, or one that matches "" for the variables of no group.
	params.Group
	// Variables and Parameters are their numbers. Earlier is how many more variables the group
	// matches that are part of earlier groups.
	Variables, Earlier int
	Parameters         int64
}

// Division is how variables are trained.
type Division struct {
	// Factors are the products of groups and layers, by name; absent ones are 1.
	Factors map[string]strategy.Factor
	// Layers are those of layer-wise decay; nil without.
	Layers *Layers
	// Parts are those of the groups, in their order, and of the variables of no group, if there are
	// any.
	Parts []Part
	// States are states that a frozen group matches and that training continues to change.
	States []string
}

// Frozen returns the names of the variables that are not trained, sorted. A nil division has none.
func (d *Division) Frozen() []string {
	if d == nil {
		return nil
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(d.Factors)) {
		if d.Factors[name].Frozen {
			out = append(out, name)
		}
	}
	return out
}

// Divide assigns every trained variable to the first group that matches it, and multiplies the learning
// rates of lower layers by the powers of a decay. It returns nil if there are no groups and the decay is
// 1. Errors are *params.Error. A group without a variable is an error, as
// are groups that freeze all.
func Divide(c *graphs.Contract, groups []params.Group, layerDecay float64) (*Division, error) {
	if len(groups) == 0 && layerDecay == 1 {
		return nil, nil
	}
	d, err := divide(c, groups)
	if err != nil || layerDecay == 1 {
		return d, err
	}
	layers, factors, err := layersOf(c, layerDecay)
	if err != nil {
		return nil, err
	}
	d.Layers = layers
	for name, factor := range factors {
		f, ok := d.Factors[name]
		if !ok {
			f = strategy.Factor{LearningRate: 1, WeightDecay: 1}
		}
		f.LearningRate *= factor
		d.Factors[name] = f
	}
	return d, nil
}

// divide assigns every trained variable to the first group that matches it.
func divide(c *graphs.Contract, groups []params.Group) (*Division, error) {
	d := &Division{Factors: make(map[string]strategy.Factor), Parts: make([]Part, len(groups))}
	rest := Part{Group: params.Group{LearningRateScale: 1, WeightDecayScale: 1}}
	patterns := make([]*regexp.Regexp, len(groups))
	for i, g := range groups {
		if err := g.Validate(); err != nil {
			return nil, params.GroupErrorf(i, "%w", err)
		}
		patterns[i], _ = g.Pattern()
		d.Parts[i].Group = g
	}
	trained := 0
	for _, v := range c.Variables {
		of := &rest
		for i, g := range groups {
			switch {
			case !patterns[i].MatchString(v.Name):
			case of != &rest:
				d.Parts[i].Earlier++
			default:
				of = &d.Parts[i]
				d.Factors[v.Name] = strategy.Factor{LearningRate: g.LearningRateScale, WeightDecay: g.WeightDecayScale, Frozen: g.Frozen}
			}
		}
		of.Variables++
		of.Parameters += v.Elements()
		if !of.Frozen {
			trained++
		}
	}
	for i, p := range d.Parts {
		switch {
		case p.Variables > 0:
		case p.Earlier > 0:
			return nil, params.GroupErrorf(i, "match is %q, and earlier groups have all %d variables that it matches; a variable belongs to the first group that matches it: move this group up, or leave it out", p.Match, p.Earlier)
		default:
			return nil, params.GroupErrorf(i, "match is %q, which matches no trained variable; expected a regular expression for whole names, of which the nearest are %s; gorbit inspect GRAPH lists all",
				p.Match, strings.Join(nearest(c, p.Match), ", "))
		}
	}
	if trained == 0 {
		return nil, params.Errorf("optimizer.groups", ": all %d variables are frozen; expected at least one to train", len(c.Variables))
	}
	for _, p := range c.Phases {
		if of := p.Of(c.Variables); !slices.ContainsFunc(of, func(v graphs.Variable) bool { return !d.Factors[v.Name].Frozen }) {
			return nil, params.Errorf("optimizer.groups", ": they freeze all of the phase %s (%s); expected at least one variable to train", p.Name, words.Count(int64(len(of)), "variable"))
		}
	}
	for _, s := range c.UpdatedStates() {
		for i, g := range groups {
			if patterns[i].MatchString(s.Name) {
				if g.Frozen {
					d.States = append(d.States, s.Name)
				}
				break
			}
		}
	}
	if rest.Variables > 0 && len(groups) > 0 {
		d.Parts = append(d.Parts, rest)
	}
	return d, nil
}

// mostNames is the number of names that an error proposes.
const mostNames = 3

// nearest returns the names of the variables that have most in common with a pattern: those that begin
// as it does, and of equal ones those in which most of its words occur.
func nearest(c *graphs.Contract, text string) []string {
	words := regexp.MustCompile(`[A-Za-z0-9_]+`).FindAllString(text, -1)
	score := make(map[string]int)
	for _, v := range c.Variables {
		begin := 0
		for begin < min(len(v.Name), len(text)) && v.Name[begin] == text[begin] {
			begin++
		}
		score[v.Name] = len(words) * begin
		for _, word := range words {
			if strings.Contains(v.Name, word) {
				score[v.Name]++
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(score), func(a, b string) int { return cmp.Or(score[b]-score[a], strings.Compare(a, b)) })
	return names[:min(len(names), mostNames)]
}
