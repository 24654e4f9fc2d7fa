package params

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Splits are splits of the data, by name. In YAML it is a name, or a list of names.
type Splits []string

// First returns the first split, whose metrics have their plain names; "" if there is none.
func (s Splits) First() string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

// Prefix returns what the names of the metrics of the split at an index begin with: nothing for the
// first one, and SPLIT/ for the others.
func (s Splits) Prefix(i int) string {
	if i == 0 {
		return ""
	}
	return s[i] + "/"
}

// Cut divides the name of a metric into its split and its plain name.
func (s Splits) Cut(metric string) (split, plain string) {
	for i := 1; i < len(s); i++ {
		if plain, ok := strings.CutPrefix(metric, s.Prefix(i)); ok {
			return s[i], plain
		}
	}
	return s.First(), metric
}

// String returns the splits as ParseSplits reads them: a name, or a list in the form of JSON.
func (s Splits) String() string {
	if len(s) == 1 {
		return s[0]
	}
	quoted := make([]string, len(s))
	for i, name := range s {
		quoted[i] = strconv.Quote(name)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// ParseSplits returns the splits of a text that String returned. A text that is no list is a name.
func ParseSplits(text string) Splits {
	var s Splits
	if strings.HasPrefix(text, "[") && yaml.Unmarshal([]byte(text), &s) == nil {
		return s
	}
	return Splits{text}
}

// UnmarshalYAML implements yaml.Unmarshaler. A list replaces the one that was set before.
func (s *Splits) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*s = Splits{node.Value}
		return nil
	}
	var names []string
	if err := node.Decode(&names); err != nil {
		return err
	}
	*s = names
	return nil
}

// MarshalYAML implements yaml.Marshaler. One split is a name, as it was before there were lists.
func (s Splits) MarshalYAML() (any, error) {
	if len(s) == 1 {
		return s[0], nil
	}
	return []string(s), nil
}

// validate returns an error unless there is a split and all have names of their own.
func (s Splits) validate(param string) error {
	const expected = "expected the name of a split, or a list of names, such as [dev, test]"
	if len(s) == 0 {
		return Errorf(param, "is an empty list; %s; to train without evaluations, set train.eval_interval=-2", expected)
	}
	for i, name := range s {
		switch {
		case name == "" && len(s) > 1:
			return Errorf(param, "has a split without a name; %s", expected)
		case slices.Contains(s[:i], name):
			return Errorf(param, "has the split %q twice; leave out one", name)
		}
	}
	// SPLIT/metric must say one thing.
	for i, name := range s {
		for j, other := range s {
			if i > 0 && j > 0 && i != j && strings.HasPrefix(other, name+"/") {
				return Errorf(param, "has the splits %q and %q, whose metrics could not be told apart; expected names that do not begin with each other", name, other)
			}
		}
	}
	return nil
}
