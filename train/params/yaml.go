package params

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// document returns the only document of a YAML file, or nil if the file is empty.
func document(data []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	node, second := new(yaml.Node), new(yaml.Node)
	switch err := d.Decode(node); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	switch err := d.Decode(second); {
	case errors.Is(err, io.EOF):
		return node, nil
	case err != nil:
		return nil, err
	}
	return nil, &nodeError{line: second.Line, Err: errors.New("a second document begins here; expected one; remove the line with ---")}
}

// nodeError is an error of a node of a YAML document.
type nodeError struct {
	line int
	// param is what the error is about, if it is about a param.
	param string
	Err   error
}

func (e *nodeError) Error() string { return e.Err.Error() }
func (e *nodeError) Unwrap() error { return e.Err }

// libraryError has the line and the text of an error of the YAML library.
var libraryError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// inFile returns an error of a YAML file with the file's name and, if it is known, the line.
func inFile(file string, err error) error {
	if node := (*nodeError)(nil); errors.As(err, &node) {
		return fmt.Errorf("%s:%d: %w", file, node.line, err)
	}
	if m := libraryError.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
		return fmt.Errorf("%s:%s: %s", file, m[1], m[2])
	}
	return fmt.Errorf("%s: %w", file, err)
}

// inSetting returns an error of a setting, which has one line, with the setting.
func inSetting(setting string, err error) error {
	if m := libraryError.FindStringSubmatch(err.Error()); m != nil {
		err = errors.New(m[2])
	}
	return fmt.Errorf("%s: %w", setting, err)
}

// checkNode checks a YAML node against the Go type that it will be decoded into. The library's own
// errors name Go types, and it silently truncates fractions to whole numbers.
func checkNode(node *yaml.Node, t reflect.Type, path string) error {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	bad := func(expected string) error {
		at := func(format string, args ...any) error {
			return &nodeError{node.Line, path, fmt.Errorf(format, args...)}
		}
		if node.Kind == yaml.ScalarNode && node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 && node.Value != "" {
			return at("%s is %s, a text in quotes; expected %s, without quotes", cmp.Or(path, "the file"), strconv.Quote(describe(node)), expected)
		}
		return at("%s is %s; expected %s", cmp.Or(path, "the file"), describe(node), expected)
	}
	switch {
	case node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null":
		return nil // null keeps the current value
	case t == reflect.TypeFor[ByClass]():
		if node.Kind == yaml.MappingNode {
			return checkSection(node, reflect.TypeFor[map[string]float64](), path)
		}
		if node.Kind != yaml.ScalarNode {
			return bad("a word, or a number for each class")
		}
	case t == reflect.TypeFor[Splits]() && node.Kind == yaml.ScalarNode:
	case t.Kind() == reflect.Struct || t.Kind() == reflect.Map:
		if node.Kind != yaml.MappingNode {
			return bad("a section with names")
		}
		return checkSection(node, t, path)
	case t.Kind() == reflect.Slice:
		if node.Kind != yaml.SequenceNode {
			return bad("a list")
		}
		for i, element := range node.Content {
			if err := checkNode(element, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case t == reflect.TypeFor[time.Duration]():
		if _, err := time.ParseDuration(node.Value); node.Kind != yaml.ScalarNode || err != nil {
			return bad("a duration such as 60s")
		}
	case t.Kind() == reflect.Bool:
		if v := false; node.Kind != yaml.ScalarNode || node.Decode(&v) != nil {
			return bad("true or false")
		}
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		if node.Kind != yaml.ScalarNode || !wholeNumber(node) {
			return bad("a whole number")
		}
	case t.Kind() == reflect.Float64:
		if v := 0.0; node.Kind != yaml.ScalarNode || node.Decode(&v) != nil {
			return bad("a number")
		}
	case node.Kind != yaml.ScalarNode:
		return bad("a text")
	}
	return nil
}

// checkSection checks the members of a mapping against the fields of a struct or the values of a
// map.
func checkSection(node *yaml.Node, t reflect.Type, path string) error {
	seen := make(map[string]bool)
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].ShortTag() == "!!merge" {
			if err := checkNode(node.Content[i+1], t, path); err != nil {
				return err
			}
			continue
		}
		name := node.Content[i].Value
		within := strings.TrimPrefix(path+"."+name, ".")
		if seen[name] {
			return &nodeError{node.Content[i].Line, within, fmt.Errorf("%s is set twice; leave out one", within)}
		}
		seen[name] = true
		member, ok := memberOf(t, name)
		if !ok {
			key := node.Content[i]
			// In a section that there is not, its first name says more.
			for v := node.Content[i+1]; v.Kind == yaml.MappingNode && len(v.Content) > 0; v = v.Content[1] {
				key = v.Content[0]
				within += "." + key.Value
			}
			err := Unknown(within)
			if strings.Contains(within, "]") { // of an element of a list, which has names of its own
				err = fmt.Errorf("there is no param %s%s", within, words.DidYouMean(name, fieldNames(t)))
			}
			return &nodeError{line: key.Line, Err: err}
		}
		if t.Kind() == reflect.Map && node.Content[i+1].ShortTag() == "!!null" {
			return &nodeError{node.Content[i].Line, within, fmt.Errorf("%s has no value", within)}
		}
		if err := checkNode(node.Content[i+1], member, within); err != nil {
			return err
		}
	}
	return nil
}

// fieldNames returns the YAML names of a struct's fields.
func fieldNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		names = append(names, f.Tag.Get("yaml"))
	}
	return names
}

// memberOf returns the type of a struct's field by its YAML name, or the type of a map's values.
func memberOf(t reflect.Type, name string) (reflect.Type, bool) {
	if t.Kind() == reflect.Map {
		return t.Elem(), true
	}
	for f := range t.Fields() {
		if f.Tag.Get("yaml") == name {
			return f.Type, true
		}
	}
	return nil, false
}

// wholeNumber reports whether a scalar is a 64-bit integer. Forms such as 1e3 and 2.0 count.
func wholeNumber(node *yaml.Node) bool {
	switch node.ShortTag() {
	case "!!int":
		var v int64
		return node.Decode(&v) == nil
	case "!!float":
		v, err := strconv.ParseFloat(node.Value, 64)
		return err == nil && v == math.Trunc(v) && math.Abs(v) < 1<<63
	}
	return false
}

// describe returns a short description of a node for error messages.
func describe(node *yaml.Node) string {
	const most = 40
	switch {
	case node.Kind == yaml.MappingNode:
		return "a section with names"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Value == "":
		return `""`
	case len(node.Value) > most:
		return strconv.Quote(node.Value[:most]) + "..."
	}
	return node.Value
}
