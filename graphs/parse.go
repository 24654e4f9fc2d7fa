package graphs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// maxContractBytes limits the size of gorbit.json, which has about 1 KB per variable.
const maxContractBytes = 64 << 20

// ReadContract reads and checks gorbit.json of the export in a folder, without its functions.
func ReadContract(dir string) (*Contract, error) {
	data, err := vfs.ReadBounded(filepath.Join(dir, filepath.FromSlash(ContractFile)), maxContractBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &ContractError{dir, "no " + ContractFile + "; export it with python -m gorbit_export"}
	}
	if err != nil {
		return nil, fmt.Errorf("graph %s: %w", dir, err)
	}
	c, err := parseContract(data)
	if err != nil {
		return nil, &ContractError{dir, fmt.Sprintf("%s: %v", ContractFile, err)}
	}
	return c, nil
}

// contractFile is what gorbit.json has and Contract has not.
type contractFile struct {
	Additive  *bool                      `json:"additive"`
	Model     map[string]json.RawMessage `json:"model"`
	Optimizer struct {
		Slots []string `json:"slots"`
	} `json:"optimizer"`
}

func parseContract(data []byte) (*Contract, error) {
	c, file := new(Contract), new(contractFile)
	for _, into := range []any{c, file} {
		err := json.Unmarshal(data, into)
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &syntax):
			return nil, fmt.Errorf("invalid JSON at byte %d of %d: %w", syntax.Offset, len(data), err)
		case errors.As(err, &kind):
			return nil, fmt.Errorf("field %s is a JSON %s; expected %s", strings.ReplaceAll(kind.Field, "plain.", ""), kind.Value, kind.Type)
		case err != nil:
			return nil, err
		}
	}
	if err := c.complete(file); err != nil {
		return nil, err
	}
	return c, c.check()
}

// complete fills in what the file leaves out.
func (c *Contract) complete(file *contractFile) error {
	c.Precision = cmp.Or(c.Precision, Float32)
	c.Input = cmp.Or(c.Input, InputPacked)
	c.Additive = (file.Additive == nil || *file.Additive) && c.Loss != LossAcross
	if c.Best == (Best{}) {
		c.Best = Best{"loss", Lower}
		if c.Version == oldestVersion && c.Task == "classification" {
			c.Best = Best{"accuracy", Higher}
		}
	}
	// Whatever else describes the model tells it from others.
	for name, value := range file.Model {
		switch name {
		case "architecture", "flops", "config", "recompute", "weights":
			continue
		}
		if _, ok := c.Model.Config[name]; ok {
			continue
		}
		if c.Model.Config == nil {
			c.Model.Config = make(map[string]any)
		}
		var v any
		if err := json.Unmarshal(value, &v); err != nil {
			return err
		}
		c.Model.Config[name] = v
	}
	if len(c.Updates) == 0 {
		update := Update{Slots: []UpdateSlot{}}
		for _, name := range file.Optimizer.Slots {
			update.Slots = append(update.Slots, UpdateSlot{Name: name})
		}
		c.Updates = map[string]Update{"update": update}
	}
	for i := range c.Features {
		c.Features[i].complete(c.Version)
	}
	for i := range c.Phases {
		c.Phases[i].Every = cmp.Or(c.Phases[i].Every, 1)
	}
	for i := range c.Variables {
		if v := &c.Variables[i]; v.Update == "" {
			v.Update = "update"
		}
	}
	if c.Version == oldestVersion {
		c.completeOldest()
	}
	return nil
}

// completeOldest fills in what version 2 meant by names.
func (c *Contract) completeOldest() {
	type meaning struct {
		dtype string
		axes  []string
		make  string
		below string // the field of the model's configuration
	}
	tokens, examples := []string{"rows", "length"}, []string{"examples"}
	meanings := map[string]meaning{
		"input_ids":     {"int32", tokens, "", "vocab_size"},
		"type_ids":      {"int32", tokens, "", "type_vocab_size"},
		"sequence_ids":  {"int32", tokens, "sequence_ids", ""},
		"position_ids":  {"int32", tokens, "position_ids", "max_position_embeddings"},
		"cls_positions": {"int32", examples, "starts", ""},
		"labels":        {"int32", examples, "", "num_labels"},
	}
	for i := range c.Features {
		f := &c.Features[i]
		m, ok := meanings[f.Name]
		if !ok || f.DType != m.dtype || !slices.Equal(f.Axes, m.axes) {
			continue
		}
		f.Make = cmp.Or(f.Make, m.make)
		if below := int64(c.Model.ConfigInt(m.below)); f.Below == nil && below > 0 {
			zero := int64(0)
			f.Minimum, f.Below = &zero, &below
		}
	}
	if c.Task != "classification" || len(c.Metrics) > 0 || len(c.Outputs) > 0 {
		return
	}
	c.Metrics = []Metric{{"accuracy", Higher}}
	c.Outputs = []Output{
		{"logits", "float32", []string{"examples", "classes"}, "logits", "labels"},
		{"probabilities", "float32", []string{"examples", "classes"}, "probabilities", "labels"},
	}
}

// complete fills in what the file leaves out of a feature.
func (f *Feature) complete(version int) {
	if f.Role == "" {
		f.Role = RoleInput
		if f.Name == weightFeature && version > oldestVersion {
			f.Role = RoleWeight
		}
	}
	if f.Shape == nil {
		f.Shape = make([]int64, len(f.Axes))
		for i := range f.Shape {
			f.Shape[i] = open
		}
	}
	if f.Below != nil && f.Minimum == nil {
		f.Minimum = new(int64)
	}
}

// weightFeature is the feature that is a weight by its name.
const weightFeature = "example_weights"

// open is the size of an open axis.
const open = -1

// featureFile is a feature as the file has it: open axes are null, and version 2 has a mark of
// labels.
type featureFile struct {
	*plain
	Shape []*int64 `json:"shape,omitempty"`
	Label bool     `json:"label,omitempty"`
}

type plain Feature

// UnmarshalJSON reads a feature. Axes whose size is null are open.
func (f *Feature) UnmarshalJSON(data []byte) error {
	file := featureFile{plain: (*plain)(f)}
	if err := json.Unmarshal(data, &file); err != nil {
		return err
	}
	f.Shape = nil
	for _, d := range file.Shape {
		size := int64(open)
		if d != nil {
			// A number must not be read as null.
			if size = *d; size < 0 {
				size = 0
			}
		}
		f.Shape = append(f.Shape, size)
	}
	if f.Role == "" && file.Label {
		f.Role = RoleLabel
		if f.Name == weightFeature {
			f.Role = RoleWeight
		}
	}
	return nil
}

// MarshalJSON writes a feature as UnmarshalJSON reads it.
func (f Feature) MarshalJSON() ([]byte, error) {
	file := featureFile{plain: (*plain)(&f)}
	for _, d := range f.Shape {
		size := &d
		if d == open {
			size = nil
		}
		file.Shape = append(file.Shape, size)
	}
	return json.Marshal(file)
}

// UnmarshalJSON reads a variable. Its weight decay is true, false or a factor.
func (v *Variable) UnmarshalJSON(data []byte) error {
	type plain Variable
	file := struct {
		*plain
		Decay        json.RawMessage `json:"weight_decay"`
		LearningRate *float64        `json:"learning_rate"`
	}{plain: (*plain)(v)}
	if err := json.Unmarshal(data, &file); err != nil {
		return err
	}
	v.LearningRate = 1
	if file.LearningRate != nil {
		v.LearningRate = *file.LearningRate
	}
	switch decay := bytes.TrimSpace(file.Decay); string(decay) {
	case "", "null", "false":
		v.Decay = 0
	case "true":
		v.Decay = 1
	default:
		if err := json.Unmarshal(decay, &v.Decay); err != nil {
			return fmt.Errorf("field weight_decay of variable %.64q is %.32s; expected true, false or a factor", v.Name, decay)
		}
	}
	return nil
}

// UnmarshalJSON reads a string or an object.
func (f *ForeignName) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &f.Name) == nil {
		return nil
	}
	type plain ForeignName
	if err := json.Unmarshal(data, (*plain)(f)); err != nil {
		return fmt.Errorf("a name in field foreign is %.64s; expected a string, or an object with name, transpose and reshape", data)
	}
	return nil
}
