package params

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Given is how someone set params: the files and settings of Load, and the flags of single params.
type Given struct {
	Files    []string
	Settings []string
	// Flags are what was typed by param, such as "--epochs 3"; they come after the settings.
	Flags map[string]string
}

// Locate returns an *Error with the place at which the first of its params that was set was: file and
// line, the setting or the flag. Other errors, and those of defaults, stay as they are.
func (g Given) Locate(err error) error {
	var wrong *Error
	if !errors.As(err, &wrong) {
		return err
	}
	for _, param := range wrong.Params {
		if where := g.of(param); where != "" {
			return &Error{Params: wrong.Params, Err: fmt.Errorf("%s: %w", where, wrong.Err)}
		}
	}
	return err
}

// of returns where a param was set last, or "".
func (g Given) of(param string) string {
	if typed := g.Flags[param]; typed != "" {
		return typed
	}
	for _, setting := range slices.Backward(g.Settings) {
		name, value, _ := strings.Cut(setting, "=")
		rest, inside := strings.CutPrefix(param, name+".")
		if name == param || strings.HasPrefix(name, param+".") || inside && lineOf([]byte(value), rest) > 0 {
			return setting
		}
	}
	for _, file := range slices.Backward(g.Files) {
		data, err := vfs.ReadBounded(file, maxParamsBytes)
		if err != nil {
			continue
		}
		if line := lineOf(data, param); line > 0 {
			return fmt.Sprintf("%s:%d", file, line)
		}
	}
	return ""
}

// lineOf returns the line of a YAML file that sets a param to something, or 0.
func lineOf(data []byte, param string) int {
	doc, err := document(data)
	if err != nil || doc == nil {
		return 0
	}
	node, line := doc.Content[0], 0
	for name := range strings.SplitSeq(param, ".") {
		if node, line = memberNode(node, name); node == nil {
			return 0
		}
	}
	if node.ShortTag() == "!!null" {
		return 0
	}
	return line
}

// memberNode returns the value of a name in a mapping, and the name's line.
func memberNode(node *yaml.Node, name string) (*yaml.Node, int) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.MappingNode {
		return nil, 0
	}
	var merged *yaml.Node
	line := 0
	for i := 0; i+1 < len(node.Content); i += 2 {
		switch key := node.Content[i]; {
		case key.ShortTag() == "!!merge":
			merged, line = memberNode(node.Content[i+1], name)
		case key.Value == name:
			return node.Content[i+1], key.Line
		}
	}
	return merged, line
}
