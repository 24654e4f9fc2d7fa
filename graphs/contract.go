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

// What a graph computes its matrix products and activations in. Variables, gradients
// and updates are float32 in each.
const (
	Float32 = "float32"
	BF16    = "bf16"
	FP16    = "fp16"
)

// LossScale is the hyperparameter of fp16 graphs that their loss is multiplied, and
// their gradients divided, by.
const LossScale = "loss_scale"

// Contract is the content of gorbit.json: what cannot be read off the functions.
type Contract struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Task    string `json:"task"`
	// Precision is Float32, which gorbit.json may leave out, BF16 or FP16.
	Precision string `json:"precision"`
	// XLA says that gradients, evaluate and predict are compiled by XLA, once for every
	// shape of a batch.
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

// FLOPs counts the floating point operations of the forward pass's matrix
// products, a multiplication and an addition each as one.
type FLOPs struct {
	// PerToken is what every token costs whatever the length of its row.
	PerToken float64 `json:"per_token"`
	// PerTokenPair is what every pair of positions of one row costs (attention).
	PerTokenPair float64 `json:"per_token_pair"`
	// PerExample is the cost of the head.
	PerExample float64 `json:"per_example"`
}

// trainingFactor is what the forward and the backward pass cost of a forward pass:
// the backward pass has two products for each of its.
const trainingFactor = 3

// Forward returns what a token of a row of the given length costs in the forward
// pass, its share of the attention with it and the head's cost left out.
func (f FLOPs) Forward(rowLength int) float64 {
	return f.PerToken + f.PerTokenPair*float64(rowLength)
}

// Training returns what a token of a row of the given length costs in a training step.
func (f FLOPs) Training(rowLength int) float64 { return trainingFactor * f.Forward(rowLength) }

// ConfigInt returns a whole number of the model's configuration, or 0 where it
// has none of that name.
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
	// Slots are the variables that update keeps beside each trained one. The
	// slot s of variable v is called "optimizer/s/v".
	Slots []string `json:"slots"`
	// Iterations is the int64 scalar variable that counts updates.
	Iterations      string           `json:"iterations"`
	Hyperparameters []Hyperparameter `json:"hyperparameters"`
}

// SlotName returns the name of a variable's slot.
func SlotName(slot, variable string) string { return "optimizer/" + slot + "/" + variable }

// Hyperparameter is a float32 scalar input that a user may set.
type Hyperparameter struct {
	Name    string  `json:"name"`
	Default float64 `json:"default"`
	Help    string  `json:"help"`
	// Minimum is the smallest value that makes sense, Below the first one that is
	// too large; nil where there is none.
	Minimum *float64 `json:"minimum,omitempty"`
	Below   *float64 `json:"below,omitempty"`
}

// Check returns an error if a value makes no sense.
func (h Hyperparameter) Check(value float64) error {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return fmt.Errorf("%s is %v; it must be a number", h.Name, value)
	}
	if h.Minimum != nil && value < *h.Minimum {
		return fmt.Errorf("%s is %v; it must be at least %v", h.Name, value, *h.Minimum)
	}
	if h.Below != nil && value >= *h.Below {
		return fmt.Errorf("%s is %v; it must be below %v", h.Name, value, *h.Below)
	}
	return nil
}

// Feature is a named tensor of a batch. Axes of one name have one length.
type Feature struct {
	Name  string   `json:"name"`
	DType string   `json:"dtype"`
	Axes  []string `json:"axes"`
	// Label marks the features that prediction does without.
	Label bool `json:"label"`
}

// Variable is a trained variable of the model.
type Variable struct {
	Name  string  `json:"name"`
	Shape []int64 `json:"shape"`
	DType string  `json:"dtype"`
	// WeightDecay says whether the update decays it.
	WeightDecay bool `json:"weight_decay"`
	// Foreign holds the names that other releases give the variable, the
	// likeliest first; Transpose says that they store the matrix with its axes
	// the other way round.
	Foreign   []string `json:"foreign"`
	Transpose bool     `json:"transpose"`
	// Rows is the int32 feature whose numbers are the only rows of the variable
	// that a batch's gradient can have other numbers than 0 in; "" is any.
	Rows string `json:"rows"`
}

// Elements returns the number of elements of the variable.
func (v Variable) Elements() int64 {
	n := int64(1)
	for _, d := range v.Shape {
		n *= d
	}
	return n
}

// ContractError says what an export lacks to be driven.
type ContractError struct {
	Path   string // of the export
	Reason string
}

func (e *ContractError) Error() string {
	return fmt.Sprintf("%s does not hold the training contract: %s", e.Path, e.Reason)
}

// maxContractBytes bounds gorbit.json: about 1 KB a variable.
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
		return nil, fmt.Errorf("not JSON at byte %d of %d: %w", syntax.Offset, len(data), err)
	case errors.As(err, &kind):
		return nil, fmt.Errorf("field %s is a JSON %s, expected %s", kind.Field, kind.Value, kind.Type)
	case err != nil:
		return nil, err
	}
	if c.Precision == "" {
		c.Precision = Float32
	}
	return c, c.check()
}

// nodeName is what TensorFlow allows as the name of a node: variables are
// nodes of a composed graph.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*$`)

// maxName bounds a variable's name.
const maxName = 1 << 10

// maxElements bounds a variable, so that sizes in bytes do not overflow.
const maxElements = 1 << 48

// check returns what is wrong with the contract alone.
func (c *Contract) check() error {
	switch {
	case c.Format != "gorbit":
		return fmt.Errorf("format is %q, expected \"gorbit\"", c.Format)
	case c.Version != ContractVersion:
		return fmt.Errorf("version %d; this program reads version %d: export the graph again", c.Version, ContractVersion)
	case c.Precision != Float32 && c.Precision != BF16 && c.Precision != FP16:
		return fmt.Errorf("precision %q; this program knows %s, %s and %s", c.Precision, Float32, BF16, FP16)
	case c.Precision == FP16 && !slices.ContainsFunc(c.Hyperparameters, func(h Hyperparameter) bool { return h.Name == LossScale }):
		return fmt.Errorf("precision %s, but no hyperparameter %s", FP16, LossScale)
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
			return fmt.Errorf("feature %q is unnamed or there twice", f.Name)
		}
		inputs[f.Name] = true
		if f.DType != "int32" && f.DType != "float32" {
			return fmt.Errorf("feature %s is of dtype %s; int32 and float32 are fed", f.Name, f.DType)
		}
	}
	for _, h := range c.AllHyperparameters() {
		if h.Name == "" || inputs[h.Name] {
			return fmt.Errorf("hyperparameter %q is unnamed or there twice", h.Name)
		}
		inputs[h.Name] = true
		if err := h.Check(h.Default); err != nil {
			return fmt.Errorf("hyperparameter %w", err)
		}
	}
	slots := make(map[string]bool)
	for _, s := range c.Optimizer.Slots {
		if s == "" || slots[s] {
			return fmt.Errorf("slot %q is unnamed or there twice", s)
		}
		slots[s] = true
	}
	variables := make(map[string]bool)
	for _, v := range c.Variables {
		if len(v.Name) > maxName || !nodeName.MatchString(v.Name) {
			return fmt.Errorf("variable %.64q has a name that TensorFlow does not take", v.Name)
		}
		if variables[v.Name] {
			return fmt.Errorf("variable %s is there twice", v.Name)
		}
		variables[v.Name] = true
		if v.DType != "float32" {
			return fmt.Errorf("variable %s is of dtype %s; float32 is trained", v.Name, v.DType)
		}
		elements := int64(1)
		for _, d := range v.Shape {
			if d < 1 || d > maxElements/elements {
				return fmt.Errorf("variable %s has shape %v", v.Name, v.Shape)
			}
			elements *= d
		}
		if v.Rows != "" && (len(v.Shape) == 0 || !slices.ContainsFunc(c.Features, func(f Feature) bool { return f.Name == v.Rows && f.DType == "int32" })) {
			return fmt.Errorf("variable %s of shape %v has its rows by %q, which is not an int32 feature", v.Name, v.Shape, v.Rows)
		}
	}
	flops := c.Model.FLOPs
	if min(flops.PerToken, flops.PerTokenPair, flops.PerExample) < 0 {
		return errors.New("model.flops has a negative count")
	}
	return nil
}

// has says whether a variable of that name is trained.
func (c *Contract) has(variable string) bool {
	return slices.ContainsFunc(c.Variables, func(v Variable) bool { return v.Name == variable })
}

// AllHyperparameters returns the scalars of the training pass and of the update.
func (c *Contract) AllHyperparameters() []Hyperparameter {
	return append(append([]Hyperparameter(nil), c.Hyperparameters...), c.Optimizer.Hyperparameters...)
}

// Parameters counts the trained numbers.
func (c *Contract) Parameters() int64 {
	var n int64
	for _, v := range c.Variables {
		n += v.Elements()
	}
	return n
}
