package params

import (
	"errors"
	"fmt"
	"math"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// Group is an element of optimizer.groups: a set of trained variables.
type Group struct {
	// Match: regular expression (RE2) for whole names of variables.
	Match string `yaml:"match"`
	// LearningRateScale: factor of the learning rate.
	LearningRateScale float64 `yaml:"learning_rate_scale"`
	// WeightDecayScale: factor of the weight decay.
	WeightDecayScale float64 `yaml:"weight_decay_scale"`
	// Frozen: leave the variables as they are.
	Frozen bool `yaml:"frozen"`
}

// UnmarshalYAML implements yaml.Unmarshaler. Scales that are not given are 1.
func (g *Group) UnmarshalYAML(node *yaml.Node) error {
	type plain Group
	*g = Group{LearningRateScale: 1, WeightDecayScale: 1}
	return node.Decode((*plain)(g))
}

// Validate returns an error that names the first invalid field of a group.
func (g Group) Validate() error {
	switch {
	case g.Match == "":
		return errors.New("match is empty; expected a regular expression for whole names of variables, such as model/encoder/layers/[0-5]/.*")
	case !(g.LearningRateScale > 0) || math.IsInf(g.LearningRateScale, 0):
		return fmt.Errorf("learning_rate_scale is %v; expected more than 0; to leave variables as they are, set frozen: true", g.LearningRateScale)
	case !(g.WeightDecayScale >= 0) || math.IsInf(g.WeightDecayScale, 0):
		return fmt.Errorf("weight_decay_scale is %v; expected 0 or more", g.WeightDecayScale)
	case g.Frozen && g.LearningRateScale != 1:
		return fmt.Errorf("learning_rate_scale is %v and frozen is true; expected one of them, since frozen variables are not trained", g.LearningRateScale)
	case g.Frozen && g.WeightDecayScale != 1:
		return fmt.Errorf("weight_decay_scale is %v and frozen is true; expected one of them, since frozen variables are not trained", g.WeightDecayScale)
	}
	if _, err := g.Pattern(); err != nil {
		return fmt.Errorf("match is %q: %w; expected the syntax of https://github.com/google/re2/wiki/Syntax", g.Match, err)
	}
	return nil
}

// Pattern returns the expression for whole names of variables.
func (g Group) Pattern() (*regexp.Regexp, error) {
	if _, err := regexp.Compile(g.Match); err != nil {
		return nil, err // which quotes the expression without the anchors
	}
	return regexp.Compile("^(?:" + g.Match + ")$")
}

// GroupErrorf returns an *Error of a group, numbered from 0, whose text begins with the name of a field.
func GroupErrorf(i int, format string, args ...any) *Error {
	return &Error{Params: []string{"optimizer.groups"}, Err: fmt.Errorf("optimizer.groups[%d].%w", i, fmt.Errorf(format, args...))}
}

// CheckLayerDecay returns an error if optimizer.layer_decay is out of range.
func CheckLayerDecay(decay float64) error {
	if !(decay > 0 && decay <= 1) {
		return Errorf("optimizer.layer_decay", "is %v; expected more than 0 and at most 1 (off)", decay)
	}
	return nil
}
