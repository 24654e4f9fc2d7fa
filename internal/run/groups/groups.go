// Package groups divides the trained variables of a graph into groups with learning rates and weight
// decays of their own, and freezes some of them.
package groups

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/strategy"
)

// Group is a set of trained variables.
type Group struct {
	// Match is a regular expression (RE2, as in package regexp) that a variable's whole name must
	// match, such as model/encoder/layers/[0-5]/.*.
	Match string
	// LearningRateScale and WeightDecayScale multiply the run's learning rate and weight decay.
	LearningRateScale, WeightDecayScale float64
	// Frozen means that the variables are not trained. The scales are then 1.
	Frozen bool
}

// Validate returns an error that names the first invalid field of a group.
func (g Group) Validate() error {
	switch {
	case g.Match == "":
		return fmt.Errorf("match is empty; expected a regular expression for whole names of variables, such as model/encoder/layers/[0-5]/.*")
	case !(g.LearningRateScale > 0) || math.IsInf(g.LearningRateScale, 0):
		return fmt.Errorf("learning_rate_scale is %v; expected more than 0; to leave variables as they are, set frozen: true", g.LearningRateScale)
	case !(g.WeightDecayScale >= 0) || math.IsInf(g.WeightDecayScale, 0):
		return fmt.Errorf("weight_decay_scale is %v; expected 0 or more", g.WeightDecayScale)
	case g.Frozen && g.LearningRateScale != 1:
		return fmt.Errorf("learning_rate_scale is %v and frozen is true; expected one of them, since frozen variables are not trained", g.LearningRateScale)
	case g.Frozen && g.WeightDecayScale != 1:
		return fmt.Errorf("weight_decay_scale is %v and frozen is true; expected one of them, since frozen variables are not trained", g.WeightDecayScale)
	}
	if _, err := g.pattern(); err != nil {
		return fmt.Errorf("match is %q: %w; expected the syntax of https://github.com/google/re2/wiki/Syntax", g.Match, err)
	}
	return nil
}

// pattern returns the expression for whole names.
func (g Group) pattern() (*regexp.Regexp, error) {
	if _, err := regexp.Compile(g.Match); err != nil {
		return nil, err // which quotes the expression without the anchors
	}
	return regexp.Compile("^(?:" + g.Match + ")$")
}

// Param returns the name of the param of a group, numbered from 0.
func Param(i int) string { return fmt.Sprintf("optimizer.groups[%d]", i) }

// Part is what a group has of the variables.
type Part struct {
	// Group is the group, or one that matches "" for the variables of no group.
	Group
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
	// States are states that a frozen group matches and that training goes on to change.
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
// 1. Errors begin with the name of a param. A group without a variable is an error, as
// are groups that freeze all.
func Divide(c *graphs.Contract, groups []Group, layerDecay float64) (*Division, error) {
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
func divide(c *graphs.Contract, groups []Group) (*Division, error) {
	d := &Division{Factors: make(map[string]strategy.Factor), Parts: make([]Part, len(groups))}
	rest := Part{Group: Group{LearningRateScale: 1, WeightDecayScale: 1}}
	patterns := make([]*regexp.Regexp, len(groups))
	for i, g := range groups {
		if err := g.Validate(); err != nil {
			return nil, fmt.Errorf("%s.%w", Param(i), err)
		}
		patterns[i], _ = g.pattern()
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
			return nil, fmt.Errorf("%s.match is %q, and earlier groups have all %d variables that it matches; a variable belongs to the first group that matches it: move this group up, or leave it out", Param(i), p.Match, p.Earlier)
		default:
			return nil, fmt.Errorf("%s.match is %q, which matches no trained variable; expected a regular expression for whole names, of which the nearest are %s; gorbit inspect GRAPH lists all",
				Param(i), p.Match, strings.Join(nearest(c, p.Match), ", "))
		}
	}
	if trained == 0 {
		return nil, fmt.Errorf("optimizer.groups: all %d variables are frozen; expected at least one to train", len(c.Variables))
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
