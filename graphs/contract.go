package graphs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// ContractVersion is the version of gorbit.json that this package reads.
const ContractVersion = 1

// ContractFile is the path of the contract inside an export.
const ContractFile = "assets/gorbit.json"

// Contract is the content of gorbit.json: what cannot be read off the functions.
type Contract struct {
	Format          string           `json:"format"`
	Version         int              `json:"version"`
	Task            string           `json:"task"`
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
// products, a multiplication and an addition each as one. Training takes three
// times as many.
type FLOPs struct {
	// PerToken is what every token costs whatever the length of its row.
	PerToken float64 `json:"per_token"`
	// PerTokenPair is what every pair of positions of one row costs (attention).
	PerTokenPair float64 `json:"per_token_pair"`
	// PerExample is the cost of the head.
	PerExample float64 `json:"per_example"`
}

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
	path := filepath.Join(dir, filepath.FromSlash(ContractFile))
	info, err := os.Stat(path)
	if err != nil {
		if os.IsNotExist(err) {
			return nil, &ContractError{dir, "no " + ContractFile + "; export it with python -m gorbit_export"}
		}
		return nil, err
	}
	if info.Size() > maxContractBytes {
		return nil, &ContractError{dir, fmt.Sprintf("%s has %d bytes, at most %d are read", ContractFile, info.Size(), maxContractBytes)}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := new(Contract)
	if err := json.Unmarshal(data, c); err != nil {
		return nil, &ContractError{dir, fmt.Sprintf("%s: %v", ContractFile, err)}
	}
	if reason := c.check(); reason != "" {
		return nil, &ContractError{dir, ContractFile + ": " + reason}
	}
	return c, nil
}

// check returns what is wrong with the contract alone, "" if nothing is.
func (c *Contract) check() string {
	switch {
	case c.Format != "gorbit":
		return fmt.Sprintf("format is %q, expected \"gorbit\"", c.Format)
	case c.Version != ContractVersion:
		return fmt.Sprintf("version %d; this program reads version %d: export the graph again", c.Version, ContractVersion)
	case len(c.Variables) == 0:
		return "no variables"
	case len(c.Features) == 0:
		return "no features"
	case c.Optimizer.Iterations == "":
		return "optimizer.iterations is empty"
	case c.State == "":
		return "state is empty"
	}
	seen := make(map[string]bool)
	for _, f := range c.Features {
		if f.Name == "" || seen[f.Name] {
			return fmt.Sprintf("feature %q is unnamed or there twice", f.Name)
		}
		seen[f.Name] = true
		if f.DType != "int32" && f.DType != "float32" {
			return fmt.Sprintf("feature %s is of dtype %s; int32 and float32 are fed", f.Name, f.DType)
		}
	}
	for _, h := range c.AllHyperparameters() {
		if h.Name == "" || seen[h.Name] {
			return fmt.Sprintf("hyperparameter %q is unnamed or there twice", h.Name)
		}
		seen[h.Name] = true
	}
	clear(seen)
	for _, v := range c.Variables {
		if v.Name == "" || seen[v.Name] {
			return fmt.Sprintf("variable %q is unnamed or there twice", v.Name)
		}
		seen[v.Name] = true
		for _, d := range v.Shape {
			if d < 1 {
				return fmt.Sprintf("variable %s has shape %v", v.Name, v.Shape)
			}
		}
	}
	return ""
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
