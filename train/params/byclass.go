package params

import (
	"maps"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ByClass is a param with a number for each class of the graph's label. In YAML it is a word, or a
// section with the name or the number of classes.
type ByClass struct {
	// Rule is the word; "" if Of is set.
	Rule string
	// Of are the numbers by the class, its name or number. Classes that are not in it have 1.
	Of map[string]float64
}

// Words that a ByClass may be.
const (
	ClassesNone     = "none"
	ClassesUniform  = "uniform"
	ClassesBalanced = "balanced"
)

// UnmarshalYAML implements yaml.Unmarshaler. A section adds to the classes that were set before.
func (b *ByClass) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*b = ByClass{Rule: node.Value}
		return nil
	}
	of := maps.Clone(b.Of)
	if err := node.Decode(&of); err != nil {
		return err
	}
	*b = ByClass{Of: of}
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (b ByClass) MarshalYAML() (any, error) {
	if b.Rule == "" {
		return b.Of, nil
	}
	return b.Rule, nil
}

// validate returns an error if the param is neither one of the words nor numbers above 0.
func (b ByClass) validate(param string, words ...string) error {
	if b.Rule != "" && !slices.Contains(words, b.Rule) || b.Rule == "" && len(b.Of) == 0 {
		return Errorf(param, "is %q; expected %s, or a number for each class, such as %s.CLASS=2", b.Rule, strings.Join(words, ", "), param)
	}
	for _, class := range slices.Sorted(maps.Keys(b.Of)) {
		if w := b.Of[class]; !(w > 0 && w <= math.MaxFloat32) {
			return Errorf(param+"."+class, "is %v; expected a finite number above 0", w)
		}
	}
	return nil
}
