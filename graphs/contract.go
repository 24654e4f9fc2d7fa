package graphs

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// ContractVersion is the version of gorbit.json that exports are written in now. Version 2 is read
// as well; its fields are filled in with what it meant.
const ContractVersion = 3

// oldestVersion is the oldest version that is read.
const oldestVersion = 2

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

// How examples become a batch, see Contract.Input.
const (
	InputPacked = "packed" // examples of tokens, several in a row
	InputDense  = "dense"  // one example after the other, padded where an axis is open
)

// Roles of features, see Feature.Role.
const (
	RoleInput  = "input"  // what prediction takes
	RoleLabel  = "label"  // what the model is to answer
	RoleWeight = "weight" // how much an example counts; 1 where a record does not say
	RoleID     = "id"     // tells examples apart
)

// Directions of metrics, see Metric.Better.
const (
	Higher = "higher"
	Lower  = "lower"
)

// What the loss of an example depends on.
const (
	LossEach   = "each_example"    // the example alone, but for batch normalization and the like
	LossAcross = "across_examples" // all examples of the batch, which it compares
)

// Contract is the content of gorbit.json: everything that the functions themselves do not tell.
type Contract struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Task names the kind of answers and metrics. "" and unknown names mean that everything is
	// in the contract.
	Task string `json:"task"`
	// Input is InputPacked (the default) or InputDense.
	Input string `json:"input"`
	// Additive is true, the default, if the sums of the parts of a batch are those of the whole
	// batch. They are not if an example's loss depends on the others of its part, as in batch
	// normalization.
	Additive bool `json:"additive"`
	// Loss is LossAcross if the loss of an example depends on the others of its batch, which must then
	// be computed in one part, in training and evaluation; "" or LossEach if it does not. The sums of
	// such a graph are not additive.
	Loss string `json:"loss"`
	// Best is the metric that selects the best checkpoint by default.
	Best Best `json:"best"`
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
	// Masking describes the masks of masked language models; nil for other models.
	Masking   *Masking   `json:"masking,omitempty"`
	Variables []Variable `json:"variables"`
	// States are the variables that passes read and that are not trained.
	States []State `json:"states,omitempty"`
	// Phases are the parts of a training step, each with variables and gradients of its own, in order;
	// nil if a step has one loss, whose gradients the function gradients gives.
	Phases []Phase `json:"phases,omitempty"`
	// Updates are the functions that update variables, by name.
	Updates map[string]Update `json:"updates"`
	// Metrics are the metrics of the export, and which way they get better.
	Metrics []Metric `json:"metrics,omitempty"`
	// Results are the sums that the function results takes, in the order of its arguments
	// sum_0, sum_1 and so on. If there are none, there is no such function.
	Results []string `json:"results,omitempty"`
	// Merge are the variables and states that the function merge gives as they are served: kernels
	// with their adapters in them. If there are none, there is no such function.
	Merge []string `json:"merge,omitempty"`
	// Generation describes how the model makes tokens one after the other; nil if it does not.
	Generation *Generation `json:"generation,omitempty"`
	// Outputs describe what predict gives. It may give more.
	Outputs []Output `json:"outputs,omitempty"`
}

// Best is a metric and its direction, Higher or Lower.
type Best struct {
	Metric string `json:"metric"`
	Better string `json:"better"`
}

// Metric is a metric of the export. Better is Higher, Lower, or "" if no value is better than
// another.
type Metric struct {
	Name   string `json:"name"`
	Better string `json:"better"`
}

// Model describes the exported model.
type Model struct {
	Architecture string `json:"architecture"`
	FLOPs        FLOPs  `json:"flops"`
	// Config is the model's configuration. It tells models of one architecture apart.
	Config map[string]any `json:"config"`
	// Weights says which weights of other projects are made for the model; nil if any may be.
	Weights *Weights `json:"weights,omitempty"`
	// HuggingFace says how Hugging Face's transformers stores the model; nil if it has none like
	// it.
	HuggingFace *HuggingFace `json:"huggingface,omitempty"`
}

// Weights says which weights of other projects are made for a model. Those of a model that is
// computed in another way may have the same names and shapes.
type Weights struct {
	// ModelType is the model_type of Hugging Face's config.json.
	ModelType string `json:"model_type"`
	// Prefix is what may stand before the names of the tensors, and Others are what stands there
	// in weights of models that are computed in another way.
	Prefix string   `json:"prefix"`
	Others []string `json:"others"`
	// Config are values that config.json must have where it has the fields, such as the number of
	// attention heads, which shapes do not show.
	Config map[string]any `json:"config"`
	// Defaults are the values of fields, those of Config and others that these depend on, that a config.json
	// without them means in transformers. Exports of earlier releases have none.
	Defaults map[string]any `json:"defaults,omitempty"`
	// Fit are the variables without which the others are of no use: a tensor of another shape is
	// an error.
	Fit []string `json:"fit"`
}

// HuggingFace is the form of a model in Hugging Face's transformers. A variable's tensor has the
// first of its foreign names, after Prefix unless it begins with one of Bare.
type HuggingFace struct {
	// Config is the content of config.json, without the names of labels.
	Config map[string]any `json:"config"`
	Prefix string         `json:"prefix"`
	Bare   []string       `json:"bare"`
}

// TensorName returns the name of the tensor of a variable whose first foreign name is given.
func (h *HuggingFace) TensorName(foreign string) string {
	for _, bare := range h.Bare {
		if strings.HasPrefix(foreign, bare) {
			return foreign
		}
	}
	return h.Prefix + foreign
}

// FLOPs counts the floating point operations of the matrix products in the forward pass. A
// multiplication and an addition count as one each.
type FLOPs struct {
	// PerToken is the cost of each token, regardless of the row length.
	PerToken float64 `json:"per_token"`
	// PerTokenPair is the cost of each pair of positions in a row (attention).
	PerTokenPair float64 `json:"per_token_pair"`
	// PerTargetToken and PerTargetPair are those of the targets of an encoder-decoder model: the pairs are of a
	// token of the target with one of the target or of the source.
	PerTargetToken float64 `json:"per_target_token"`
	PerTargetPair  float64 `json:"per_target_pair"`
	// PerExample is the cost of the head.
	PerExample float64 `json:"per_example"`
}

// Work is what is computed of examples: their tokens and, of each, the pairs of them, and the same of targets, as
// a dataset.Batch counts them.
type Work struct{ Tokens, Pairs, TargetTokens, TargetPairs, Examples int64 }

// trainingFactor is the cost of the forward and backward pass relative to the forward pass: the
// backward pass has two products for each one of the forward pass.
const trainingFactor = 3

// Forward returns the cost in FLOPs of a token in the forward pass, in a row of the given length. Of a model with
// targets it is that of a token of a source and one of a target. Attention is included, the head is not.
func (f FLOPs) Forward(rowLength int) float64 {
	return f.PerToken + f.PerTargetToken + (f.PerTokenPair+2*f.PerTargetPair)*float64(rowLength)
}

// Training returns the cost in FLOPs of a token in a training step, in a row of the given length.
func (f FLOPs) Training(rowLength int) float64 { return trainingFactor * f.Forward(rowLength) }

// Work returns the cost in FLOPs of training on examples. It is that of the examples alone, however they are
// packed and padded; 0 if the costs are not known.
func (f FLOPs) Work(w Work) float64 {
	return trainingFactor * (f.PerToken*float64(w.Tokens) + f.PerTokenPair*float64(w.Pairs) +
		f.PerTargetToken*float64(w.TargetTokens) + f.PerTargetPair*float64(w.TargetPairs) + f.PerExample*float64(w.Examples))
}

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
	// Iterations is the int64 scalar variable that counts updates.
	Iterations      string           `json:"iterations"`
	Hyperparameters []Hyperparameter `json:"hyperparameters"`
	// Defaults are the params of a run's optimizer that the exported one brings along, by name, such as
	// learning_rate: numbers and words. Runs have them unless they are set.
	Defaults map[string]any `json:"defaults,omitempty"`
	// Scheduled says that updates multiply the learning rate by a schedule of their own, a function of the
	// iteration. Runs have none then, and a learning rate of 1.
	Scheduled bool `json:"scheduled,omitempty"`
}

// AveragePrefix stands before the name of a variable in that of its moving average.
const AveragePrefix = "optimizer/average/"

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
	DType string   `json:"dtype"` // uint8, int32, int64, float32 or bool
	Axes  []string `json:"axes"`
	// Shape has the size of each axis, -1 for one that is open. It has as many elements as Axes.
	Shape []int64 `json:"shape"`
	Role  string  `json:"role"`
	// Make is what the feature is made of in the program; "" if the record has its values.
	Make string `json:"make,omitempty"`
	// Minimum is the smallest valid value of an integer. Valid values are less than Below. Nil
	// means no limit.
	Minimum *int64 `json:"minimum,omitempty"`
	Below   *int64 `json:"below,omitempty"`
	// Pad is the value that fills up an open axis.
	Pad float64 `json:"pad,omitempty"`
}

// Classes returns the number of values of an integer feature that starts at 0, such as a label, or
// 0 if it has no limit.
func (f Feature) Classes() int {
	if f.Below == nil {
		return 0
	}
	return int(*f.Below)
}

// TargetIDs is the feature with the tokens of targets.
const TargetIDs = "target_ids"

// MakeTextPositions is what position_ids of examples with several texts are made by.
const MakeTextPositions = "text_position_ids"

// Texts returns the number of texts of an example, each of which is encoded by itself. type_ids has the
// text of each token, and positions begin anew with each text. It is 1 for other graphs.
func (c *Contract) Texts() int {
	types := c.Feature("type_ids")
	if types == nil || !slices.ContainsFunc(c.Features, func(f Feature) bool { return f.Make == MakeTextPositions }) {
		return 1
	}
	return types.Classes()
}

// HasTargets reports whether examples have targets, whose tokens are in TargetIDs.
func (c *Contract) HasTargets() bool { return slices.ContainsFunc(c.Features, Feature.OfTarget) }

// seq2seqTask is the task of models that make a target of each source.
const seq2seqTask = "seq2seq"

// OfTarget reports whether the feature has a value for each token of the targets.
func (f Feature) OfTarget() bool {
	return len(f.Axes) > 1 && slices.Equal(f.Axes[:2], targetAxes)
}

// MakeParts is what the feature that divides examples into parts is made of.
const MakeParts = "parts"

// HasParts reports whether examples have parts, which are sequences of their own in a row.
func (c *Contract) HasParts() bool {
	return slices.ContainsFunc(c.Features, func(f Feature) bool { return f.Make == MakeParts })
}

// Masking describes how tokens are masked for a masked language model.
type Masking struct {
	MaskToken int32 `json:"mask_token"`
	VocabSize int32 `json:"vocab_size"`
	// Special are the tokens that are never masked.
	Special []int32 `json:"special"`
	// WordStarts means that records say which tokens begin a word, so that whole words can be
	// masked.
	WordStarts bool `json:"word_starts"`
}

// Variable is a trained variable of the model.
type Variable struct {
	Name  string  `json:"name"`
	Shape []int64 `json:"shape"`
	DType string  `json:"dtype"`
	// Decay and LearningRate are factors: the update takes that many times the run's weight
	// decay and learning rate.
	Decay        float64 `json:"weight_decay"`
	LearningRate float64 `json:"learning_rate"`
	// Update is the name of the function that updates the variable.
	Update string `json:"update"`
	// Phase is the name of the phase that updates the variable, "" if the contract has no phases.
	Phase string `json:"phase,omitempty"`
	// Assigned means that passes assign the variable in training. The function gradients then gives
	// its change, as of an updated state, and a step makes it before it updates the variable.
	Assigned bool `json:"assigned,omitempty"`
	// SlotShapes are the shapes of the slots that do not have the variable's.
	SlotShapes map[string][]int64 `json:"slot_shapes,omitempty"`
	// Foreign lists the names of the variable in other projects' checkpoints, most likely
	// first. Transpose means that names that say nothing else store the matrix transposed.
	Foreign   []ForeignName `json:"foreign"`
	Transpose bool          `json:"transpose"`
	// Initializer says how the initial value is drawn; nil if it is not, or if the export says of no
	// variable how it is.
	Initializer *Initializer `json:"initializer,omitempty"`
	// Rows is an int32 feature. Only the rows of the variable that it lists can have a
	// gradient other than 0. "" means any row.
	Rows string `json:"rows"`
}

// Elements returns the variable's number of elements.
func (v Variable) Elements() int64 { return elements(v.Shape) }

// Kinds of an Initializer.
const (
	Normal          = "normal"
	TruncatedNormal = "truncated_normal" // cut off at two deviations
	Uniform         = "uniform"          // from Mean-Scale to Mean+Scale
	Unknown         = "unknown"          // in another way: only the export can
)

// Initializer says how the initial value of a variable is drawn.
type Initializer struct {
	Kind string `json:"kind"`
	// Scale is the deviation of a normal distribution before it is cut off, or half the width of a
	// uniform one. It is above 0, unless the kind is Unknown.
	Scale float64 `json:"scale"`
	// Mean is the middle of the distribution.
	Mean float64 `json:"mean"`
}

// ForeignName is the name of a variable in another project's checkpoints. In the contract it is a
// string, whose matrix is transposed if the variable says so, or an object.
type ForeignName struct {
	Name string `json:"name"`
	// Transpose means that the matrix is stored transposed; nil: what the variable says.
	Transpose *bool `json:"transpose,omitempty"`
	// Reshape means that an axis may be stored as several, as the heads of attention.
	Reshape bool `json:"reshape,omitempty"`
}

// State is a variable that passes read and that is not trained.
type State struct {
	Name  string  `json:"name"`
	Shape []int64 `json:"shape"`
	DType string  `json:"dtype"` // float32, int32, int64 or bool
	// Updated means that training changes it. The function gradients then gives the change,
	// multiplied by weight_sum. An updated state is float32.
	Updated bool `json:"updated"`
	// Foreign and Transpose are those of a Variable.
	Foreign   []ForeignName `json:"foreign,omitempty"`
	Transpose bool          `json:"transpose,omitempty"`
}

// Elements returns the state's number of elements.
func (s State) Elements() int64 { return elements(s.Shape) }

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// Update describes a function that updates variables.
type Update struct {
	// Slots are the variables that it keeps next to each variable.
	Slots []UpdateSlot `json:"slots"`
	// Elementwise means that each new element of the variable and of its slots depends on the old
	// ones and on the gradient at its place alone. The slots have the variable's shape.
	Elementwise bool `json:"elementwise,omitempty"`
}

// UpdateSlot is a slot of an update and the value that it holds at first.
type UpdateSlot struct {
	Name    string  `json:"name"`
	Initial float64 `json:"initial"`
}

// Slot is an optimizer's variable for one trained variable. Its dtype is that variable's.
type Slot struct {
	Name    string  // of the argument of the update
	Initial float64 // value of all elements at first
	Shape   []int64
}

// Elements returns the slot's number of elements.
func (s Slot) Elements() int64 { return elements(s.Shape) }

// Output describes an output of predict.
type Output struct {
	Name  string   `json:"name"`
	DType string   `json:"dtype"`
	Axes  []string `json:"axes"`
	// Kind says what the values are: probabilities, logits, value, values, tokens or spans.
	Kind string `json:"kind"`
	// Of is the label feature whose categories name the classes, or "".
	Of string `json:"of"`
}

// ContractError means that a SavedModel does not follow the training contract.
type ContractError struct {
	Path   string // of the export
	Reason string
}

func (e *ContractError) Error() string {
	return fmt.Sprintf("%s does not meet the training contract: %s", e.Path, e.Reason)
}

// Feature returns the feature with a name, or nil.
func (c *Contract) Feature(name string) *Feature {
	i := slices.IndexFunc(c.Features, func(f Feature) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Features[i]
}

// Label returns the first feature that is a label and that records hold, or nil. Labels that are
// drawn, as those of masked tokens, are none.
func (c *Contract) Label() *Feature {
	i := slices.IndexFunc(c.Features, func(f Feature) bool { return f.Role == RoleLabel && f.Make != "masked_labels" })
	if i < 0 {
		return nil
	}
	return &c.Features[i]
}

// axisExamples is the axis of examples, which is open in every graph.
const axisExamples = "examples"

// OpenAxis returns the name of the axis of dense features that is open in addition to that of the
// examples, or "" if there is none.
func (c *Contract) OpenAxis() string {
	if c.Input != InputDense {
		return ""
	}
	for _, f := range c.Features {
		for i, axis := range f.Axes {
			if f.Shape[i] == open && axis != axisExamples {
				return axis
			}
		}
	}
	return ""
}

// Padded reports whether the second axis of an output is the one on which the dense features of examples
// are padded, so that an example has only a part of it.
func (c *Contract) Padded(o Output) bool {
	return len(o.Axes) > 1 && o.Axes[0] == axisExamples && o.Axes[1] == c.OpenAxis()
}

// SlotsOf returns the slots of a variable in the order of its update.
func (c *Contract) SlotsOf(v Variable) []Slot {
	slots := c.Updates[v.Update].Slots
	out := make([]Slot, len(slots))
	for i, s := range slots {
		out[i] = Slot{s.Name, s.Initial, v.Shape}
		if shape, ok := v.SlotShapes[s.Name]; ok {
			out[i].Shape = shape
		}
	}
	return out
}

// SlotNames returns the names of all slots, each once, in the order of the names of the updates.
func (c *Contract) SlotNames() []string {
	out := []string{}
	for _, name := range sortedKeys(c.Updates) {
		for _, s := range c.Updates[name].Slots {
			if !slices.Contains(out, s.Name) {
				out = append(out, s.Name)
			}
		}
	}
	return out
}

// Changes returns what gradients gives changes of: the updated states, and those of the given
// variables that passes assign.
func (c *Contract) Changes(variables []Variable) []State {
	out := c.UpdatedStates()
	for _, v := range variables {
		if v.Assigned {
			out = append(out, State{Name: v.Name, Shape: v.Shape, DType: v.DType, Updated: true})
		}
	}
	return out
}

// UpdatedStates returns the states that training changes.
func (c *Contract) UpdatedStates() []State {
	var out []State
	for _, s := range c.States {
		if s.Updated {
			out = append(out, s)
		}
	}
	return out
}

// reads reports whether a pass may read a variable: a trained one, or a state.
func (c *Contract) reads(variable string) bool {
	return slices.ContainsFunc(c.Variables, func(v Variable) bool { return v.Name == variable }) ||
		slices.ContainsFunc(c.States, func(s State) bool { return s.Name == variable })
}

// shape returns the shape of a variable or state that is float32, and whether there is one.
func (c *Contract) shape(variable string) ([]int64, bool) {
	for _, v := range c.Variables {
		if v.Name == variable {
			return v.Shape, true
		}
	}
	for _, s := range c.States {
		if s.Name == variable {
			return s.Shape, s.DType == "float32"
		}
	}
	return nil, false
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
