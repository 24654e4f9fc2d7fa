package params

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// maxParamsBytes limits the size of a params file, which usually has about a hundred lines.
const maxParamsBytes = 1 << 20

// Load applies YAML files to the params, then settings of the form "section.name=value". Later
// values win. The error for an unknown name or an invalid value is a *Error.
func (p *Params) Load(files, settings []string) error {
	for _, file := range files {
		data, err := vfs.ReadBounded(file, maxParamsBytes)
		if err != nil {
			return err
		}
		if err := p.decode(data); err != nil {
			return wrong(inFile(file, err))
		}
	}
	for _, setting := range settings {
		if err := p.Set(setting); err != nil {
			return err
		}
	}
	return nil
}

// Set applies one setting, "section.name=value".
func (p *Params) Set(setting string) error {
	path, value, ok := strings.Cut(setting, "=")
	if !ok || path == "" {
		return &Error{Err: fmt.Errorf("setting is %q; expected section.name=value", setting)}
	}
	node, err := document([]byte(value))
	if err != nil {
		return wrong(inSetting(setting, err))
	}
	inner := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: ""}
	if node != nil {
		inner = node.Content[0]
	}
	names := strings.Split(path, ".")
	for i := len(names) - 1; i >= 0; i-- {
		inner = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
			{Kind: yaml.ScalarNode, Value: names[i]}, inner}}
	}
	data, err := yaml.Marshal(inner)
	if err != nil {
		return wrong(inSetting(setting, err))
	}
	if err := p.decode(data); err != nil {
		return wrong(inSetting(setting, err))
	}
	return nil
}

// Read reads a params.yaml that a run wrote.
func Read(path string) (Params, error) {
	p := Defaults()
	return p, p.Load([]string{path}, nil)
}

// LoadYAML applies the content of a YAML file to the params. The error for an unknown name or an
// invalid value is a *Error, which begins with the name of the content.
func (p *Params) LoadYAML(name string, content []byte) error {
	if err := p.decode(content); err != nil {
		return wrong(fmt.Errorf("%s: %w", name, err))
	}
	return nil
}

// YAML returns the params as the content of a YAML file.
func (p Params) YAML() ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(p); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// Absolute makes the paths in the params absolute, so that they are valid in any folder. Paths
// with a scheme stay as they are.
func (p *Params) Absolute() error {
	for name, path := range map[string]*string{"graph": &p.Graph, "init": &p.Init, "data.dir": &p.Data.Dir} {
		if *path == "" {
			continue
		}
		if name == "data.dir" && *path == "-" {
			return Errorf(name, "is -, and a training reads its records more than once and in another order than they come in; expected a folder: write standard input to a file of it, as with cat >data/train-00000-of-00001.tfrecord, or make records of texts and tables with gorbit convert")
		}
		abs, err := vfs.Abs(*path)
		if err != nil {
			return Errorf(name, ": %w", err)
		}
		*path = abs
	}
	return nil
}

// decode applies the values of one YAML document to the params.
func (p *Params) decode(data []byte) error {
	node, err := document(data)
	if err != nil || node == nil {
		return err
	}
	if err := checkNode(node.Content[0], reflect.TypeFor[Params](), ""); err != nil {
		return err
	}
	return node.Decode(p)
}

// wrong returns the *Error of an error that may be that of a node.
func wrong(err error) *Error {
	out := &Error{Err: err}
	if node := (*nodeError)(nil); errors.As(err, &node) && node.param != "" {
		out.Params = []string{node.param}
	}
	return out
}
