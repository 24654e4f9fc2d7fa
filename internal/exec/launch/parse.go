package launch

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parse reads a plan from YAML. Its errors name the line and the field, and say what is
// expected there.
func parse(text []byte) (Plan, error) {
	var p Plan
	var document, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	switch err := d.Decode(&document); {
	case errors.Is(err, io.EOF):
		return p, nil // Validate says what is missing
	case err != nil:
		return p, plain(err)
	}
	switch err := d.Decode(&second); {
	case err == nil:
		return p, fmt.Errorf("line %d: a second document, expected one: remove the line --- and all that follows it", second.Line)
	case !errors.Is(err, io.EOF):
		return p, plain(err)
	}
	if err := checkNode(document.Content[0], reflect.TypeFor[Plan](), ""); err != nil {
		return p, err
	}
	if err := document.Decode(&p); err != nil {
		return p, plain(err)
	}
	return p, nil
}

// plain returns a decoder's error without its prefix, in one line.
func plain(err error) error {
	return errors.New(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n ", ""))
}

// checkNode reports the first value that is not of its field's type. The decoder itself would
// name types of Go, and takes 1.5 for 1. Path is the field's, "" for the whole file.
func checkNode(n *yaml.Node, t reflect.Type, path string) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil // as if it were not there
	}
	wrong := func(expected string) error {
		is := map[yaml.Kind]string{yaml.MappingNode: "fields and their values", yaml.SequenceNode: "a list", yaml.ScalarNode: strconv.Quote(n.Value)}[n.Kind]
		return fmt.Errorf("line %d: %s is %s, expected %s", n.Line, cmp.Or(path, "the file"), is, expected)
	}
	switch t.Kind() {
	case reflect.Struct:
		if n.Kind != yaml.MappingNode {
			return wrong("fields and their values")
		}
		return checkFields(n, t, path)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return wrong("a list")
		}
		for i, item := range n.Content {
			if err := checkNode(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case reflect.Int:
		if _, err := strconv.Atoi(n.Value); n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
			return wrong("a whole number")
		}
	case reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
			return wrong("true or false")
		}
	default:
		if n.Kind != yaml.ScalarNode {
			return wrong("text")
		}
	}
	return nil
}

// checkFields checks the fields of a mapping against those of a struct.
func checkFields(n *yaml.Node, t reflect.Type, path string) error {
	fields := make(map[string]reflect.Type)
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		fields[name] = t.Field(i).Type
		names = append(names, name)
	}
	var seen []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field, known := fields[key.Value]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		switch {
		case !known:
			last := len(names) - 1
			return fmt.Errorf("line %d: %s has an unknown field %q, expected %s or %s", key.Line, cmp.Or(path, "the file"), key.Value, strings.Join(names[:last], ", "), names[last])
		case slices.Contains(seen, key.Value):
			return fmt.Errorf("line %d: %s is given twice", key.Line, at)
		}
		seen = append(seen, key.Value)
		if err := checkNode(value, field, at); err != nil {
			return err
		}
	}
	return nil
}
