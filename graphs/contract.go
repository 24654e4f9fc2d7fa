package graphs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/bounded"
)

// ContractVersion is the version of gorbit.json that this package reads.
const ContractVersion = 2

// ContractFile is the path of the contract inside an export.
const ContractFile = "assets/gorbit.json"

// Precisions of matrix products and activations. Variables, gradients and updates are always
// float32.
const (
	Float32 = "float32"
	BF16    = "bf16"
	FP16    = "fp16"
)

// LossScale is a hyperparameter of fp16 graphs. The loss is multiplied by it and the gradients are
// divided by it.
const LossScale = "loss_scale"

// Contract is the content of gorbit.json: everything that the functions themselves do not tell.
type Contract struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Task    string `json:"task"`
	// Precision is Float32 (the default), BF16 or FP16.
	Precision string `json:"precision"`
	// XLA means that gradients, evaluate and predict are compiled by XLA, once for each
	// batch shape.
	XLA             bool             `json:"xla"`
	Model           Model            `json:"model"`
	Optimizer       Optimizer        `json:"optimizer"`
	State           string           `json:"state"`
	Hyperparameters []Hyperparameter `json:"hyperparameters"`
	Features        []Feature        `json:"features"`
	Variables       []Variable       `json:"variables"`
}

// Model describes the exported model.
type Model struct {
	Architecture string         `json:"architecture"`
	NumLabels    int            `json:"num_labels"`
	Pooling      string         `json:"pooling"`
	FLOPs        FLOPs          `json:"flops"`
	Config       map[string]any `json:"config"`
}

// FLOPs counts the floating point operations of the matrix products in the forward pass. A
// multiplication and an addition count as one each.
type FLOPs struct {
	// PerToken is the cost of each token, regardless of the row length.
	PerToken float64 `json:"per_token"`
	// PerTokenPair is the cost of each pair of positions in a row (attention).
	PerTokenPair float64 `json:"per_token_pair"`
	// PerExample is the cost of the head.
	PerExample float64 `json:"per_example"`
}

// trainingFactor is the cost of the forward and backward pass relative to the forward pass: the
// backward pass has two products for each one of the forward pass.
const trainingFactor = 3

// Forward returns the cost in FLOPs of a token in the forward pass, in a row of the given length.
// Attention is included, the head is not.
func (f FLOPs) Forward(rowLength int) float64 {
	return f.PerToken + f.PerTokenPair*float64(rowLength)
}

// Training returns the cost in FLOPs of a token in a training step, in a row of the given length.
func (f FLOPs) Training(rowLength int) float64 { return trainingFactor * f.Forward(rowLength) }

// ConfigInt returns an integer of the model's configuration, or 0 if there is none of that name.
func (m Model) ConfigInt(name string) int {
	v, ok := m.Config[name].(float64)
	if !ok {
		return 0
	}
	return int(v)
}

// Optimizer describes the exported update.
type Optimizer struct {
	Name string `json:"name"`
	// Slots are the optimizer's variables for each trained variable. Slot s of variable v is
	// named "optimizer/s/v".
	Slots []string `json:"slots"`
	// Iterations is the int64 scalar variable that counts updates.
	Iterations      string           `json:"iterations"`
	Hyperparameters []Hyperparameter `json:"hyperparameters"`
}

// SlotName returns the name of a slot of a variable.
func SlotName(slot, variable string) string { return "optimizer/" + slot + "/" + variable }

// Hyperparameter is a float32 scalar input that a user may set.
type Hyperparameter struct {
	Name    string  `json:"name"`
	Default float64 `json:"default"`
	Help    string  `json:"help"`
	// Minimum is the smallest valid value. Valid values are less than Below. Nil means no
	// limit.
	Minimum *float64 `json:"minimum,omitempty"`
	Below   *float64 `json:"below,omitempty"`
}

// Check returns an error if the value is not finite or out of range.
func (h Hyperparameter) Check(value float64) error {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return fmt.Errorf("%s is %v; expected a finite number", h.Name, value)
	}
	if h.Minimum != nil && value < *h.Minimum {
		return fmt.Errorf("%s is %v; expected %v or more", h.Name, value, *h.Minimum)
	}
	if h.Below != nil && value >= *h.Below {
		return fmt.Errorf("%s is %v; expected less than %v", h.Name, value, *h.Below)
	}
	return nil
}

// Feature is a named tensor of a batch. Axes with the same name have the same length.
type Feature struct {
	Name  string   `json:"name"`
	DType string   `json:"dtype"`
	Axes  []string `json:"axes"`
	// Label marks the features that predict does not need.
	Label bool `json:"label"`
}

// Variable is a trained variable of the model.
type Variable struct {
	Name  string  `json:"name"`
	Shape []int64 `json:"shape"`
	DType string  `json:"dtype"`
	// WeightDecay says whether the update applies weight decay to it.
	WeightDecay bool `json:"weight_decay"`
	// Foreign lists the names of the variable in other projects' checkpoints, most likely
	// first. Transpose means that they store the matrix transposed.
	Foreign   []string `json:"foreign"`
	Transpose bool     `json:"transpose"`
	// Rows is an int32 feature. Only the rows of the variable that it lists can have a
	// gradient other than 0. "" means any row.
	Rows string `json:"rows"`
}

// Elements returns the variable's number of elements.
func (v Variable) Elements() int64 {
	n := int64(1)
	for _, d := range v.Shape {
		n *= d
	}
	return n
}

// ContractError means that a SavedModel does not follow the training contract.
type ContractError struct {
	Path   string // of the export
	Reason string
}

func (e *ContractError) Error() string {
	return fmt.Sprintf("%s does not meet the training contract: %s", e.Path, e.Reason)
}

// maxContractBytes limits the size of gorbit.json, which has about 1 KB per variable.
const maxContractBytes = 64 << 20

func readContract(dir string) (*Contract, error) {
	data, err := bounded.ReadFile(filepath.Join(dir, filepath.FromSlash(ContractFile)), maxContractBytes)
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

func parseContract(data []byte) (*Contract, error) {
	c := new(Contract)
	err := json.Unmarshal(data, c)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("invalid JSON at byte %d of %d: %w", syntax.Offset, len(data), err)
	case errors.As(err, &kind):
		return nil, fmt.Errorf("field %s is a JSON %s; expected %s", kind.Field, kind.Value, kind.Type)
	case err != nil:
		return nil, err
	}
	if c.Precision == "" {
		c.Precision = Float32
	}
	return c, c.check()
}

// nodeName matches TensorFlow's node names: variables are nodes of a composed graph.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*$`)

// maxName limits the length of a variable's name.
const maxName = 1 << 10

// maxElements limits a variable's elements, so that its size in bytes does not overflow.
const maxElements = 1 << 48

// check checks the contract itself, without the functions.
func (c *Contract) check() error {
	switch {
	case c.Format != "gorbit":
		return fmt.Errorf("format is %q; expected \"gorbit\"", c.Format)
	case c.Version != ContractVersion:
		return fmt.Errorf("version is %d; expected %d; export the graph again with python -m gorbit_export", c.Version, ContractVersion)
	case c.Precision != Float32 && c.Precision != BF16 && c.Precision != FP16:
		return fmt.Errorf("precision is %q; expected %s, %s or %s", c.Precision, Float32, BF16, FP16)
	case c.Precision == FP16 && !slices.ContainsFunc(c.Hyperparameters, func(h Hyperparameter) bool { return h.Name == LossScale }):
		return fmt.Errorf("precision is %s; expected a hyperparameter %s", FP16, LossScale)
	case len(c.Variables) == 0:
		return errors.New("no variables")
	case len(c.Features) == 0:
		return errors.New("no features")
	case c.Optimizer.Iterations == "":
		return errors.New("optimizer.iterations is empty")
	case c.State == "":
		return errors.New("state is empty")
	}
	inputs := make(map[string]bool)
	for _, f := range c.Features {
		if f.Name == "" || inputs[f.Name] {
			return fmt.Errorf("feature %q has no name or is declared twice", f.Name)
		}
		inputs[f.Name] = true
		if f.DType != "int32" && f.DType != "float32" {
			return fmt.Errorf("feature %s has dtype %s; expected int32 or float32", f.Name, f.DType)
		}
	}
	for _, h := range c.AllHyperparameters() {
		if h.Name == "" || inputs[h.Name] {
			return fmt.Errorf("hyperparameter %q has no name or is declared twice", h.Name)
		}
		inputs[h.Name] = true
		if err := h.Check(h.Default); err != nil {
			return fmt.Errorf("hyperparameter %w", err)
		}
	}
	slots := make(map[string]bool)
	for _, s := range c.Optimizer.Slots {
		if s == "" || slots[s] {
			return fmt.Errorf("slot %q has no name or is declared twice", s)
		}
		slots[s] = true
	}
	variables := make(map[string]bool)
	for _, v := range c.Variables {
		if len(v.Name) > maxName || !nodeName.MatchString(v.Name) {
			return fmt.Errorf("variable name %.64q is not valid in TensorFlow", v.Name)
		}
		if variables[v.Name] {
			return fmt.Errorf("variable %s is declared twice", v.Name)
		}
		variables[v.Name] = true
		if v.DType != "float32" {
			return fmt.Errorf("variable %s has dtype %s; expected float32", v.Name, v.DType)
		}
		elements := int64(1)
		for _, d := range v.Shape {
			if d < 1 || d > maxElements/elements {
				return fmt.Errorf("variable %s has shape %v; expected dimensions of 1 or more and at most %d elements", v.Name, v.Shape, int64(maxElements))
			}
			elements *= d
		}
		if v.Rows != "" && (len(v.Shape) == 0 || !slices.ContainsFunc(c.Features, func(f Feature) bool { return f.Name == v.Rows && f.DType == "int32" })) {
			return fmt.Errorf("variable %s of shape %v has rows %q; expected an int32 feature", v.Name, v.Shape, v.Rows)
		}
	}
	flops := c.Model.FLOPs
	if min(flops.PerToken, flops.PerTokenPair, flops.PerExample) < 0 {
		return errors.New("model.flops has a negative count")
	}
	return nil
}

// has reports whether the contract has a variable of that name.
func (c *Contract) has(variable string) bool {
	return slices.ContainsFunc(c.Variables, func(v Variable) bool { return v.Name == variable })
}

// AllHyperparameters returns the hyperparameters of gradients, followed by those of update.
func (c *Contract) AllHyperparameters() []Hyperparameter {
	return append(append([]Hyperparameter(nil), c.Hyperparameters...), c.Optimizer.Hyperparameters...)
}

// Parameters returns the number of trained parameters.
func (c *Contract) Parameters() int64 {
	var n int64
	for _, v := range c.Variables {
		n += v.Elements()
	}
	return n
}
