package params

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/gorbit-ml/gorbit/graphs"
)

// DefaultsOf returns the default params of runs of a graph: those of Defaults, and in their place what
// the export's optimizer brings along.
func DefaultsOf(c *graphs.Contract) (Params, error) {
	p := Defaults()
	for _, name := range slices.Sorted(maps.Keys(c.Optimizer.Defaults)) {
		value, err := json.Marshal(c.Optimizer.Defaults[name])
		if err == nil {
			err = p.Set("optimizer." + name + "=" + string(value))
		}
		if err != nil {
			return p, fmt.Errorf("defaults of the export's optimizer: %w", err)
		}
	}
	return p, nil
}

// Differing returns the names of the params that have other values in another set, in the order of
// params.yaml.
func (p Params) Differing(other Params) []string {
	var out []string
	values := other.byName()
	p.fields(func(name string, field reflect.Value) {
		if !reflect.DeepEqual(field.Interface(), values[name].Interface()) {
			out = append(out, name)
		}
	})
	return out
}

// YAMLWith returns the params as YAML does, with a comment on the lines of some.
func (p Params) YAMLWith(comment string, names []string) ([]byte, error) {
	text, err := p.YAML()
	if err != nil || len(names) == 0 {
		return text, err
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	for _, name := range names {
		if line := lineOf(text, name); line > 0 {
			lines[line-1] = fmt.Appendf(nil, "%s  # %s\n", bytes.TrimSuffix(lines[line-1], []byte("\n")), comment)
		}
	}
	return bytes.Join(lines, nil), nil
}
