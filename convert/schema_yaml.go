package convert

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
	"github.com/gorbit-ml/gorbit/internal/data/table"
)

// parseSchema returns the schema of a YAML text, which is called path in errors.
func parseSchema(data []byte, path string) (*schema, error) {
	s := &schema{path: path}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err == io.EOF {
		return nil, s.errorf(1, "the file is empty; expected features")
	} else if err != nil {
		return nil, yamlError(path, err)
	}
	if err := dec.Decode(&second); err != io.EOF {
		return nil, s.errorf(max(1, second.Line), "there is a second document; expected one")
	}
	var features *yaml.Node
	err := s.mapping(doc.Content[0], "the schema", map[string]func(*yaml.Node) error{
		"features": func(n *yaml.Node) error { features = n; return nil },
	})
	if err != nil {
		return nil, err
	}
	if features == nil || len(features.Content) == 0 {
		return nil, s.errorf(doc.Content[0].Line, "there are no features; expected \"features:\" and one or more of them")
	}
	err = s.entries(features, "features", func(key, n *yaml.Node) error {
		f, err := s.feature(key, n)
		s.features = append(s.features, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(s.features) > maxFeatures {
		return nil, s.errorf(features.Line, "there are %d features; expected at most %d", len(s.features), maxFeatures)
	}
	return s, s.check()
}

// yamlError returns an error of the YAML parser, "yaml: line 3: REASON", with the place in front.
func yamlError(path string, err error) error {
	reason := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(reason); m != nil {
		return fault.Usagef("%s:%s: %s", path, m[1], strings.TrimPrefix(reason, m[0]))
	}
	return fault.Usagef("%s: %s", path, reason)
}

// entries calls do for the entries of a mapping, whose keys must differ.
func (s *schema) entries(n *yaml.Node, what string, do func(key, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return s.errorf(n.Line, "%s is %s; expected names with a value each, such as name: value", what, kindName(n))
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return s.errorf(key.Line, "%s has a name that is %s; expected text", what, kindName(key))
		}
		if line, ok := seen[key.Value]; ok {
			return s.errorf(key.Line, "%s has %s twice, also in line %d; expected it once", what, table.Clip(strconv.Quote(key.Value)), line)
		}
		seen[key.Value] = key.Line
		if err := do(key, value); err != nil {
			return err
		}
	}
	return nil
}

// mapping calls the function of each key of a mapping. Other keys are errors.
func (s *schema) mapping(n *yaml.Node, what string, keys map[string]func(*yaml.Node) error) error {
	return s.entries(n, what, func(key, value *yaml.Node) error {
		do, ok := keys[key.Value]
		if !ok {
			names := slices.Sorted(maps.Keys(keys))
			return s.errorf(key.Line, "%s has no key %s; expected one of %s%s", what, table.Clip(strconv.Quote(key.Value)),
				strings.Join(names, ", "), table.DidYouMean(key.Value, names))
		}
		return do(value)
	})
}

// feature returns the feature of an entry.
func (s *schema) feature(key, n *yaml.Node) (*featureSchema, error) {
	f := &featureSchema{name: key.Value, line: key.Line, lines: map[string]int{}}
	if !validFeature(f.name) {
		return nil, s.errorf(key.Line, "feature is %s; expected a name of letters, digits, _, -, . and /", table.Clip(strconv.Quote(f.name)))
	}
	what := fmt.Sprintf("feature %q", f.name)
	keys := map[string]func(*yaml.Node) error{
		"kind":           func(n *yaml.Node) error { return s.oneOf(n, what+": kind", allKinds, &f.kind) },
		"role":           func(n *yaml.Node) error { return s.oneOf(n, what+": role", allRoles, &f.role) },
		"dtype":          func(n *yaml.Node) error { return s.oneOf(n, what+": dtype", allDTypes, &f.dtype) },
		"column":         func(n *yaml.Node) error { return s.column(n, what+": column", f) },
		"columns":        func(n *yaml.Node) error { return s.columns(n, what+": columns", f) },
		"shape":          func(n *yaml.Node) error { return s.shape(n, what+": shape", &f.shape) },
		"minimum":        func(n *yaml.Node) error { return s.number(n, what+": minimum", &f.minimum) },
		"maximum":        func(n *yaml.Node) error { return s.number(n, what+": maximum", &f.maximum) },
		"missing":        func(n *yaml.Node) error { return s.missing(n, what+": missing", f) },
		"missing_values": func(n *yaml.Node) error { return s.texts(n, what+": missing_values", &f.missingValues) },
		"separator":      func(n *yaml.Node) error { return s.text1(n, what+": separator", &f.separator) },
		"categories":     func(n *yaml.Node) error { return s.texts(n, what+": categories", &f.categories) },
		"unknown":        func(n *yaml.Node) error { return s.text1(n, what+": unknown", &f.unknown) },
		"segments":       func(n *yaml.Node) error { return s.text1(n, what+": segments", &f.segments) },
		"folder":         func(n *yaml.Node) error { return s.text1(n, what+": folder", &f.folder) },
		"max_length": func(n *yaml.Node) error {
			if n.Tag != "!!int" || n.Decode(&f.maxLength) != nil {
				return s.errorf(n.Line, "%s: max_length is %s; expected a whole number", what, kindName(n))
			}
			return nil
		},
		"special_tokens": func(n *yaml.Node) error {
			with := true
			err := s.boolean(n, what+": special_tokens", &with)
			f.bare = !with
			return err
		},
		"resize":               func(n *yaml.Node) error { return s.oneOf(n, what+": resize", pixels.Resizes, &f.resize) },
		"jpeg":                 func(n *yaml.Node) error { return s.oneOf(n, what+": jpeg", pixels.JPEGDecoders, &f.jpeg) },
		"crop_to_aspect_ratio": func(n *yaml.Node) error { return s.boolean(n, what+": crop_to_aspect_ratio", &f.crop) },
		"convert_colors":       func(n *yaml.Node) error { return s.boolean(n, what+": convert_colors", &f.convertColors) },
		"encoding": func(n *yaml.Node) error {
			var encoding string
			err := s.oneOf(n, what+": encoding", []string{"file", "raw"}, &encoding)
			f.raw = encoding == "raw"
			return err
		},
	}
	for name, do := range keys {
		keys[name] = func(n *yaml.Node) error { f.lines[name] = n.Line; return do(n) }
	}
	if err := s.mapping(n, what, keys); err != nil {
		return nil, err
	}
	if f.segments != "" && !validFeature(f.segments) {
		return nil, s.errorf(f.at("segments"), "%s: segments is %q; expected a name of letters, digits, _, -, . and /", what, f.segments)
	}
	return f, f.complete(s)
}

var validName = regexp.MustCompile(`^[A-Za-z0-9_./-]{1,200}$`)

func validFeature(name string) bool { return validName.MatchString(name) }

// scalar returns the text of a value. A number or a truth value is text as it is written, so that
// categories such as 1, yes and 2.0 need no quotation marks.
func (s *schema) scalar(n *yaml.Node, what string) (string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Tag == "!!binary" || !utf8.ValidString(n.Value) {
		return "", s.errorf(n.Line, "%s is %s; expected text", what, kindName(n))
	}
	return n.Value, nil
}

// text1 sets a text that is not empty.
func (s *schema) text1(n *yaml.Node, what string, to *string) error {
	v, err := s.scalar(n, what)
	if err == nil && v == "" {
		return s.errorf(n.Line, "%s is empty; expected text, or leave out the key", what)
	}
	*to = v
	return err
}

// boolean reads true or false.
func (s *schema) boolean(n *yaml.Node, what string, to *bool) error {
	if n.Tag != "!!bool" || n.Decode(to) != nil {
		return s.errorf(n.Line, "%s is %s; expected true or false", what, kindName(n))
	}
	return nil
}

// oneOf sets a text that is one of some.
func (s *schema) oneOf(n *yaml.Node, what string, all []string, to *string) error {
	v, err := s.scalar(n, what)
	if err == nil && !slices.Contains(all, v) {
		return s.errorf(n.Line, "%s is %s; expected one of %s%s", what, table.Clip(strconv.Quote(v)), strings.Join(all, ", "), table.DidYouMean(v, all))
	}
	*to = v
	return err
}

// texts sets a list of different texts.
func (s *schema) texts(n *yaml.Node, what string, to *[]string) error {
	if n.Kind != yaml.SequenceNode {
		return s.errorf(n.Line, "%s is %s; expected a list, such as [a, b]", what, kindName(n))
	}
	*to = []string{}
	seen := make(map[string]bool, len(n.Content))
	for _, c := range n.Content {
		v, err := s.scalar(c, what)
		if err != nil {
			return err
		}
		if v = strings.TrimSpace(v); v == "" || seen[v] {
			return s.errorf(c.Line, "%s has %s, which is empty or given twice; expected different texts", what, table.Clip(strconv.Quote(v)))
		}
		seen[v] = true
		*to = append(*to, v)
	}
	return nil
}

func (s *schema) number(n *yaml.Node, what string, to **float64) error {
	v, err := s.scalar(n, what)
	if err != nil {
		return err
	}
	x, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || n.Tag != "!!int" && n.Tag != "!!float" {
		return s.errorf(n.Line, "%s is %s; expected a number", what, table.Clip(strconv.Quote(v)))
	}
	*to = &x
	return nil
}

// missing sets what an empty cell means.
func (s *schema) missing(n *yaml.Node, what string, f *featureSchema) error {
	v, err := s.scalar(n, what)
	v = strings.TrimSpace(v)
	f.missing = &v
	return err
}

// shape sets a list of sizes, null for an open one.
func (s *schema) shape(n *yaml.Node, what string, to *Shape) error {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 || len(n.Content) > 8 {
		return s.errorf(n.Line, "%s is %s; expected a list of 1 to 8 sizes, such as [28, 28, 1], or [null] for lists of any length", what, kindName(n))
	}
	for _, c := range n.Content {
		if c.Tag == "!!null" {
			*to = append(*to, -1)
			continue
		}
		var size int64
		if c.Tag != "!!int" || c.Decode(&size) != nil || size < 1 {
			return s.errorf(c.Line, "%s has the size %s; expected 1 or more, or null", what, kindName(c))
		}
		*to = append(*to, size)
	}
	return nil
}

func (s *schema) column(n *yaml.Node, what string, f *featureSchema) error {
	v, err := s.scalar(n, what)
	if err == nil && v == "" {
		return s.errorf(n.Line, "%s is empty; expected a name", what)
	}
	f.columns = []string{v}
	return err
}

// columns sets a list of names, in which pixel{0..63} stands for pixel0 to pixel63.
func (s *schema) columns(n *yaml.Node, what string, f *featureSchema) error {
	all := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		all = n.Content
	}
	f.columns = []string{}
	seen := map[string]bool{}
	for _, c := range all {
		v, err := s.scalar(c, what)
		if err != nil {
			return err
		}
		names, err := expandColumns(v)
		if err != nil {
			return s.errorf(c.Line, "%s: %v", what, err)
		}
		for _, name := range names {
			if name == "" || seen[name] {
				return s.errorf(c.Line, "%s has %s, which is empty or given twice; expected different names", what, table.Clip(strconv.Quote(name)))
			}
			seen[name] = true
		}
		if f.columns = append(f.columns, names...); len(f.columns) > maxColumns {
			return s.errorf(c.Line, "%s: more than %d columns", what, maxColumns)
		}
	}
	if len(f.columns) == 0 {
		return s.errorf(n.Line, "%s is empty; expected one name or more", what)
	}
	return nil
}

var columnRange = regexp.MustCompile(`\{(\d+)\.\.(\d+)\}`)

// expandColumns returns the names that a name with a range stands for, as a shell does: x{0..2} is
// x0, x1, x2, and x{00..10} has two digits each. A name without a range stands for itself.
func expandColumns(s string) ([]string, error) {
	at := columnRange.FindStringSubmatchIndex(s)
	if at == nil {
		return []string{s}, nil
	}
	first, last := s[at[2]:at[3]], s[at[4]:at[5]]
	from, err1 := strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	if err1 != nil || err2 != nil || from > to || to-from >= maxColumns || columnRange.MatchString(s[at[1]:]) {
		return nil, fmt.Errorf("%s; expected one range of at most %d names, such as pixel{0..63}", table.Clip(strconv.Quote(s)), maxColumns)
	}
	width := 1
	if first[0] == '0' && len(first) > 1 {
		width = len(first)
	}
	names := make([]string, 0, to-from+1)
	for i := from; i <= to; i++ {
		names = append(names, fmt.Sprintf("%s%0*d%s", s[:at[0]], width, i, s[at[1]:]))
	}
	return names, nil
}

// kindName says in an error what a value is.
func kindName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "an alias"
	case n.Tag == "!!null":
		return "empty"
	}
	return table.Clip(strconv.Quote(n.Value))
}
