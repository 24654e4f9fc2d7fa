package study

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gorbit-ml/gorbit/internal/app/tune"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// File is a study file.
type File struct {
	// Params is the section of params, as YAML; nil if the file has none.
	Params []byte
	// Search are the params that are searched over, in the order of the file.
	Search []Range
	// Objective and Direction are "" where the file leaves them to the graph. The rest of the
	// configuration has the file's values, or the defaults.
	Objective, Direction string
	Trials               int
	Sampler              tune.SamplerConfig
	Pruner               tune.PrunerConfig
}

// Range is the values of a param as a user writes them. Fields that are not given are nil.
type Range struct {
	Name              string
	Low, High, Step   *float64
	Log               bool
	Points            int
	Choices           []*yaml.Node
	bounded, selected bool
}

// Defaults returns what a study file without content says.
func Defaults() File {
	c := tune.Defaults()
	return File{Trials: c.Trials, Sampler: c.Sampler, Pruner: c.Pruner}
}

// maxFile is the most bytes of a study file.
const maxFile = 1 << 20

// ReadFile reads a study file. An error in it is of class fault.Usage.
func ReadFile(path string) (File, error) {
	content, err := vfs.ReadBounded(path, maxFile)
	if err != nil {
		return File{}, err
	}
	f, err := parseFile(content)
	if err != nil {
		return File{}, fault.Usagef("%s: %w", path, err)
	}
	return f, nil
}

func parseFile(content []byte) (File, error) {
	f := Defaults()
	form := struct {
		Params    yaml.Node `yaml:"params"`
		Search    yaml.Node `yaml:"search"`
		Objective *string   `yaml:"objective"`
		Direction *string   `yaml:"direction"`
		Trials    *int      `yaml:"trials"`
		Sampler   yaml.Node `yaml:"sampler"`
		Pruner    yaml.Node `yaml:"pruner"`
	}{Objective: &f.Objective, Direction: &f.Direction, Trials: &f.Trials}
	d := yaml.NewDecoder(bytes.NewReader(content))
	d.KnownFields(true)
	if err := d.Decode(&form); err != nil && !errors.Is(err, io.EOF) {
		return f, plain(err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return f, errors.New("has a second document; expected one; remove the line with ---")
	}
	if !form.Params.IsZero() {
		var err error
		if f.Params, err = yaml.Marshal(&form.Params); err != nil {
			return f, err
		}
	}
	if err := named(&form.Sampler, &f.Sampler.Name, &f.Sampler); err != nil {
		return f, fmt.Errorf("sampler: %w", err)
	}
	if err := named(&form.Pruner, &f.Pruner.Name, &f.Pruner); err != nil {
		return f, fmt.Errorf("pruner: %w", err)
	}
	if form.Search.IsZero() {
		return f, nil
	}
	if form.Search.Kind != yaml.MappingNode {
		return f, fmt.Errorf("line %d: search is not a section; expected names of params, such as optimizer.learning_rate: {low: 1e-5, high: 5e-4, log: true}", form.Search.Line)
	}
	for i := 0; i+1 < len(form.Search.Content); i += 2 {
		r, err := parseRange(form.Search.Content[i].Value, form.Search.Content[i+1])
		if err != nil {
			return f, fmt.Errorf("line %d: search.%s: %w", form.Search.Content[i].Line, form.Search.Content[i].Value, err)
		}
		f.Search = append(f.Search, r)
	}
	return f, nil
}

// plain returns an error of the YAML library in one line and without names of Go.
func plain(err error) error {
	var typed *yaml.TypeError
	if !errors.As(err, &typed) {
		return err
	}
	text, _, _ := strings.Cut(strings.Join(typed.Errors, "; "), " in type ")
	return errors.New(strings.ReplaceAll(text, "field ", ""))
}

// named decodes a name, or a section with a name and more.
func named(n *yaml.Node, name *string, section any) error {
	switch n.Kind {
	case 0:
		return nil
	case yaml.ScalarNode:
		return n.Decode(name)
	}
	var b bytes.Buffer
	if err := yaml.NewEncoder(&b).Encode(n); err != nil {
		return err
	}
	d := yaml.NewDecoder(&b)
	d.KnownFields(true)
	if err := d.Decode(section); err != nil {
		return plain(err)
	}
	return nil
}

func parseRange(name string, n *yaml.Node) (Range, error) {
	const expected = "{low: 1e-5, high: 5e-4, log: true} or {choices: [16, 32]}"
	if n.Kind != yaml.MappingNode {
		return Range{}, fmt.Errorf("expected %s", expected)
	}
	r := Range{Name: name}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		var err error
		switch key {
		case "low":
			err = decodeNumber(value, &r.Low)
		case "high":
			err = decodeNumber(value, &r.High)
		case "step":
			err = decodeNumber(value, &r.Step)
		case "log":
			err = value.Decode(&r.Log)
		case "points":
			err = value.Decode(&r.Points)
		case "choices":
			if value.Kind != yaml.SequenceNode {
				err = errors.New("expected a list")
			}
			r.Choices = value.Content
			r.selected = true
		default:
			return r, fmt.Errorf("has %s; expected low, high, step, log and points, or choices", key)
		}
		if err != nil {
			return r, fmt.Errorf("%s is %s: %w", key, value.Value, plain(err))
		}
		r.bounded = r.bounded || key != "choices"
	}
	return r, r.whole(expected)
}

// whole returns an error if a range is neither of numbers nor of choices.
func (r Range) whole(expected string) error {
	switch {
	case r.bounded && r.selected:
		return fmt.Errorf("has both choices and bounds; expected %s", expected)
	case !r.selected && (r.Low == nil || r.High == nil):
		return fmt.Errorf("lacks low or high; expected %s", expected)
	}
	return nil
}

func decodeNumber(n *yaml.Node, to **float64) error {
	v := 0.0
	if err := n.Decode(&v); err != nil || n.ShortTag() == "!!str" {
		return errors.New("expected a number")
	}
	*to = &v
	return nil
}

// ParseRange reads a range from a flag: NAME=LOW:HIGH, NAME=LOW:HIGH:log, NAME=LOW:HIGH:STEP, or
// NAME=CHOICE,CHOICE. An error is of class fault.Usage.
func ParseRange(text string) (Range, error) {
	name, values, ok := strings.Cut(text, "=")
	bad := fault.Usagef("--search is %q; expected NAME=LOW:HIGH, NAME=LOW:HIGH:log, NAME=LOW:HIGH:STEP or NAME=CHOICE,CHOICE", text)
	if !ok || name == "" || values == "" {
		return Range{}, bad
	}
	r := Range{Name: name}
	parts := strings.Split(values, ":")
	if len(parts) == 1 {
		for word := range strings.SplitSeq(values, ",") {
			r.Choices = append(r.Choices, &yaml.Node{Kind: yaml.ScalarNode, Value: word})
		}
		r.selected = true
		return r, nil
	}
	if len(parts) > 3 {
		return r, bad
	}
	if len(parts) == 3 && parts[2] == "log" {
		r.Log, parts = true, parts[:2]
	}
	for i, to := range []**float64{&r.Low, &r.High, &r.Step}[:len(parts)] {
		v, err := strconv.ParseFloat(parts[i], 64)
		if err != nil {
			return r, bad
		}
		*to = &v
	}
	return r, nil
}

// Param returns the range as a study has it. value is a value of the param, whose type decides how
// the range is read: whole numbers, numbers, true or false, or texts.
func (r Range) Param(value any) (tune.Param, error) {
	p := tune.Param{Name: r.Name, Points: r.Points}
	bad := func(format string, args ...any) (tune.Param, error) {
		return p, fault.Usagef("search.%s: %w", r.Name, fmt.Errorf(format, args...))
	}
	if r.selected {
		p.Distribution.Kind = tune.Categorical
		for _, n := range r.Choices {
			c, err := choiceOf(n, value)
			if err != nil {
				return bad("choice %s: %w", n.Value, err)
			}
			p.Distribution.Choices = append(p.Distribution.Choices, c)
		}
	} else {
		p.Distribution = tune.Distribution{Kind: tune.Float, Low: *r.Low, High: *r.High, Log: r.Log}
		if r.Step != nil {
			if p.Distribution.Step = *r.Step; *r.Step <= 0 {
				return bad("step is %v; expected more than 0", *r.Step)
			}
		}
		switch value.(type) {
		case float64:
		case int, int64:
			if p.Distribution.Kind = tune.Int; r.Step == nil {
				p.Distribution.Step = 1
			}
		default:
			return bad("is not a number; expected choices")
		}
	}
	if err := p.Distribution.Validate(); err != nil {
		return bad("%w", err)
	}
	return p, nil
}

// choiceOf reads a choice of a param with a value of that type.
func choiceOf(n *yaml.Node, value any) (any, error) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return nil, errors.New("expected a value, neither a list nor a section nor null")
	}
	switch value.(type) {
	case bool:
		v, err := strconv.ParseBool(n.Value)
		if err != nil || !slices.Contains([]string{"true", "false"}, n.Value) {
			return nil, errors.New("expected true or false")
		}
		return v, nil
	case int, int64:
		v, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || v != math.Trunc(v) || math.Abs(v) >= 1<<53 {
			return nil, errors.New("expected a whole number")
		}
		return int64(v), nil
	case float64:
		v, err := strconv.ParseFloat(n.Value, 64)
		if err != nil {
			return nil, errors.New("expected a number")
		}
		return v, nil
	}
	return n.Value, nil
}

// Setting writes a value of a param as gorbit train --set has it.
func Setting(d tune.Distribution, v float64) string {
	text := d.Text(v)
	if d.Kind == tune.Categorical {
		if _, isText := d.Choices[int(v)].(string); isText {
			return strconv.Quote(text)
		}
	}
	return text
}
