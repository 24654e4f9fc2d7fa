package graphs

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gorbit-ml/gorbit/graphs/safety"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// Report describes an export. Its JSON form is stable: lists are sorted or in the order of the
// contract.
type Report struct {
	Path            string `json:"path"`
	TensorFlow      string `json:"tensorflow"`
	ContractVersion int    `json:"contract_version"`
	Task            string `json:"task"`
	Architecture    string `json:"architecture"`
	// Input, Additive and Best are those of the contract.
	Input    string `json:"input"`
	Additive bool   `json:"additive"`
	Loss     string `json:"loss,omitempty"`
	Best     Best   `json:"best"`
	// Precision is the precision of products and activations; variables are float32.
	Precision string `json:"precision"`
	// XLA means that XLA compiles gradients, evaluate and predict, and the whole training step of one
	// replica.
	XLA bool `json:"xla,omitempty"`
	// Phases are the parts of a training step, if it has several losses.
	Phases []Phase `json:"phases,omitempty"`
	// SavedModelBytes is the size of saved_model.pb.
	SavedModelBytes int64 `json:"saved_model_bytes"`

	Parameters int64 `json:"parameters"`
	// DecayedParameters is the number of parameters with weight decay.
	DecayedParameters int64 `json:"decayed_parameters"`
	// VariableBytes is the size of the model's variables, SlotBytes that of the optimizer's
	// slots.
	VariableBytes int64  `json:"variable_bytes"`
	SlotBytes     int64  `json:"slot_bytes"`
	Optimizer     string `json:"optimizer"`
	// Defaults are the params of a run's optimizer that the export brings along.
	Defaults map[string]any `json:"defaults,omitempty"`
	Slots    []string       `json:"slots"`
	// StateBytes is the size of the states.
	StateBytes int64 `json:"state_bytes"`

	// Features, States, Updates, Metrics and Outputs are those of the contract.
	Features []Feature         `json:"features"`
	States   []State           `json:"states"`
	Updates  map[string]Update `json:"updates"`
	Metrics  []Metric          `json:"metrics"`
	Outputs  []Output          `json:"outputs"`

	FLOPs []FLOPsReport `json:"flops"`
	// FLOPsPerExample is the cost of an example in the forward pass, where tokens have none.
	FLOPsPerExample float64          `json:"flops_per_example,omitempty"`
	Functions       []FunctionReport `json:"functions"`
	Variables       []VariableReport `json:"variables"`
	// Hyperparameters are those of the contract; the optimizer's are last.
	Hyperparameters []Hyperparameter `json:"hyperparameters"`
	// Ops counts the operations of the functions that are used in composed graphs.
	Ops []OpCount `json:"ops"`
	// Unsafe lists the unsafe operations, see Export.Unsafe.
	Unsafe []safety.Use `json:"unsafe"`
}

// FLOPsReport is the cost of a token in rows of a given length, without the head.
type FLOPsReport struct {
	RowLength int     `json:"row_length"`
	Forward   float64 `json:"forward_per_token"`
	Training  float64 `json:"training_per_token,omitempty"` // 0 of phases: not known
}

// FunctionReport describes a function of the contract.
type FunctionReport struct {
	Name      string      `json:"name"`
	GraphName string      `json:"graph_name"`
	Inputs    []ArgReport `json:"inputs"`
	Outputs   []ArgReport `json:"outputs"`
	// Captures is the number of variables that the function uses without having them as
	// arguments.
	Captures int `json:"captures"`
	// Functions is the number of functions that it calls, directly or not, including
	// itself. Nodes is the number of operations and calls in them.
	Functions int `json:"functions"`
	Nodes     int `json:"nodes"`
}

// ArgReport describes an input or an output. Unknown dimensions of its shape are -1. If any shape
// is possible, it is null.
type ArgReport struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
}

// VariableReport describes a variable of the model.
type VariableReport struct {
	Name        string  `json:"name"`
	DType       string  `json:"dtype"`
	Shape       []int64 `json:"shape"`
	Parameters  int64   `json:"parameters"`
	WeightDecay bool    `json:"weight_decay"`
	// Decay and LearningRate are factors, see Variable. Update is the function that updates it.
	Decay        float64 `json:"decay"`
	LearningRate float64 `json:"learning_rate"`
	Update       string  `json:"update"`
	Assigned     bool    `json:"assigned,omitempty"`
}

// OpCount is the number of nodes of an operation. The nodes of a function count once, however often
// it is called.
type OpCount struct {
	Op    string `json:"op"`
	Count int    `json:"count"`
}

// rowLengths are the row lengths for which a report has the cost of a token.
var rowLengths = []int{64, 128, 256, 512, 1024, 2048, 4096}

// Inspect describes an export.
func Inspect(e *Export) *Report {
	c := e.Contract
	r := &Report{
		Path:            e.Path,
		TensorFlow:      e.TensorFlow,
		ContractVersion: c.Version,
		Task:            c.Task,
		Architecture:    c.Model.Architecture,
		Input:           c.Input,
		Additive:        c.Additive,
		Loss:            c.Loss,
		Best:            c.Best,
		Precision:       c.Precision,
		XLA:             c.XLA, Phases: c.Phases,
		SavedModelBytes: e.ModelBytes,
		Parameters:      c.Parameters(),
		Optimizer:       c.Optimizer.Name,
		Defaults:        c.Optimizer.Defaults,
		Slots:           c.SlotNames(),
		Features:        append([]Feature{}, c.Features...),
		States:          append([]State{}, c.States...),
		Updates:         c.Updates,
		Metrics:         append([]Metric{}, c.Metrics...),
		Outputs:         append([]Output{}, c.Outputs...),
		FLOPs:           []FLOPsReport{},
		Hyperparameters: append([]Hyperparameter{}, c.AllHyperparameters()...),
		Unsafe:          append([]safety.Use{}, e.Unsafe()...),
	}
	const float32Bytes = 4
	r.VariableBytes = float32Bytes * r.Parameters
	for _, v := range c.Variables {
		r.Variables = append(r.Variables, VariableReport{v.Name, v.DType, append([]int64{}, v.Shape...), v.Elements(), v.Decay != 0, v.Decay, v.LearningRate, v.Update, v.Assigned})
		if v.Decay != 0 {
			r.DecayedParameters += v.Elements()
		}
		for _, slot := range c.SlotsOf(v) {
			r.SlotBytes += float32Bytes * slot.Elements()
		}
	}
	for _, s := range c.States {
		r.StateBytes += s.Elements() * dtype.Of(s.DType).Size()
	}
	r.costs(c)
	for _, name := range c.functions() {
		f := e.Functions[name]
		report := FunctionReport{
			Name:      name,
			GraphName: f.GraphName,
			Inputs:    argReports(f.Inputs),
			Outputs:   argReports(f.Outputs),
			Captures:  len(f.Captures),
		}
		for function := range e.reach(name) {
			report.Functions++
			report.Nodes += len(e.library.functions[function].GetNodeDef())
		}
		r.Functions = append(r.Functions, report)
	}
	counts := make(map[string]int)
	for function := range e.reach(c.composed()...) {
		for _, node := range e.library.functions[function].GetNodeDef() {
			if _, ok := e.library.functions[node.GetOp()]; !ok {
				counts[node.GetOp()]++
			}
		}
	}
	for _, op := range sortedKeys(counts) {
		r.Ops = append(r.Ops, OpCount{op, counts[op]})
	}
	return r
}

func argReports(args []Arg) []ArgReport {
	out := []ArgReport{}
	for _, a := range args {
		report := ArgReport{Name: a.Name, DType: DTypeName(a.DType)}
		if a.Ranked {
			report.Shape = append([]int64{}, a.Shape...)
		}
		out = append(out, report)
	}
	return out
}

// phases writes which phases a step has, if there are some.
func (p *printer) phases(phases []Phase) {
	var out []string
	for _, phase := range phases {
		text := phase.Name
		if phase.Every > 1 {
			text += fmt.Sprintf(" (one step in %d)", phase.Every)
		}
		out = append(out, text)
	}
	if len(out) > 0 {
		p.row("phases", strings.Join(out, ", "))
	}
}

// Write writes the report as text.
func (r *Report) Write(w io.Writer) error {
	p := &printer{tabs: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	p.row("graph", r.Path)
	p.row("model", listText(slices.DeleteFunc([]string{r.Task, r.Architecture}, func(s string) bool { return s == "" })))
	batches := r.Input + " batches"
	switch {
	case r.Loss == LossAcross:
		batches += "; the loss compares the examples of a batch, which stays whole"
	case !r.Additive:
		batches += "; the sums of parts of a batch are not those of the whole"
	}
	p.row("input", batches)
	p.row("best", fmt.Sprintf("%s, %s is better", r.Best.Metric, r.Best.Better))
	p.row("precision", r.Precision)
	if r.XLA {
		p.row("compiled by", "XLA: the training step of one replica, otherwise gradients; evaluate, predict")
	}
	p.phases(r.Phases)
	p.row("TensorFlow", fmt.Sprintf("%s, contract version %d, saved_model.pb %s", r.TensorFlow, r.ContractVersion, words.Bytes(r.SavedModelBytes)))
	p.row("parameters", fmt.Sprintf("%s in %s, %s; weight decay on %s", words.Thousands(r.Parameters), count(len(r.Variables), "variable"), words.Bytes(r.VariableBytes), words.Thousands(r.DecayedParameters)))
	if len(r.States) > 0 {
		p.row("states", fmt.Sprintf("%s, %s", count(len(r.States), "variable"), words.Bytes(r.StateBytes)))
	}
	p.row("optimizer", fmt.Sprintf("%s, slots %s: %s", r.Optimizer, listText(r.Slots), words.Bytes(r.SlotBytes)))
	if len(r.Defaults) > 0 {
		var own []string
		for _, name := range sortedKeys(r.Defaults) {
			own = append(own, fmt.Sprintf("%s=%v", name, r.Defaults[name]))
		}
		p.row("its defaults", strings.Join(own, " "))
	}

	if len(r.FLOPs) > 0 {
		p.title("FLOPs per token")
		p.row("row length", "forward", "training")
		for _, f := range r.FLOPs {
			p.row(fmt.Sprint(f.RowLength), flopsText(f.Forward), r.trainingText(f.Training))
		}
	}
	if r.FLOPsPerExample > 0 {
		p.title("FLOPs per example")
		p.row("forward", flopsText(r.FLOPsPerExample))
		p.row("training", r.trainingText(trainingFactor*r.FLOPsPerExample))
	}
	p.title("features")
	for _, f := range r.Features {
		p.row(f.Name, f.DType, axesText(f), f.Role+f.text())
	}
	if len(r.Hyperparameters) > 0 {
		p.title("hyperparameters")
	}
	for _, h := range r.Hyperparameters {
		p.row(h.Name, fmt.Sprint(h.Default), h.Help)
	}
	for _, f := range r.Functions {
		p.title(fmt.Sprintf("function %s: captures %s, %s in %s", f.Name, count(f.Captures, "variable"), count(f.Nodes, "node"), count(f.Functions, "function")))
		for _, a := range f.Inputs {
			p.arg("in", a)
		}
		p.outputs(f.Outputs)
	}
	r.writeModel(p)
	p.title("operations")
	for _, op := range r.Ops {
		p.row(op.Op, fmt.Sprint(op.Count))
	}
	if len(r.Unsafe) > 0 {
		p.title("operations that reach beyond the graph")
		for _, u := range r.Unsafe {
			p.row(u.Op, "in "+u.Function, u.Reason)
		}
	}
	return p.flush()
}

// writeModel writes the variables, the states and the metrics.
func (r *Report) writeModel(p *printer) {
	p.title("variables")
	for _, v := range r.Variables {
		p.row(v.Name, v.DType, shapeText(v.Shape), words.Thousands(v.Parameters), v.text())
	}
	if len(r.States) > 0 {
		p.title("states")
	}
	for _, s := range r.States {
		updated := "fixed"
		if s.Updated {
			updated = "updated"
		}
		p.row(s.Name, s.DType, shapeText(s.Shape), words.Thousands(s.Elements()), updated)
	}
	if len(r.Metrics) > 0 {
		p.title("metrics")
	}
	for _, m := range r.Metrics {
		better := m.Better
		if better != "" {
			better += " is better"
		}
		p.row(m.Name, better)
	}
}

// printer writes titles and table rows and keeps the first error.
type printer struct {
	tabs *tabwriter.Writer
	err  error
}

func (p *printer) row(cells ...string) {
	if p.err == nil {
		line := strings.TrimRight("  "+strings.Join(cells, "\t"), "\t")
		_, p.err = fmt.Fprintln(p.tabs, line)
	}
}

func (p *printer) arg(direction string, a ArgReport) {
	shape := "any shape"
	if a.Shape != nil {
		shape = shapeText(a.Shape)
	}
	p.row(direction, a.Name, a.DType, shape)
}

// outputs writes the outputs of a function, with all gradients and all changes of states in a row
// each.
func (p *printer) outputs(args []ArgReport) {
	gradients, states := 0, 0
	for _, a := range args {
		switch {
		case strings.HasPrefix(a.Name, GradientPrefix):
			gradients++
		case strings.HasPrefix(a.Name, StatePrefix):
			states++
		default:
			p.arg("out", a)
		}
	}
	if gradients > 0 {
		p.row("out", GradientPrefix+"...", "float32", "of "+count(gradients, "variable"))
	}
	if states > 0 {
		p.row("out", StatePrefix+"...", "float32", "of "+count(states, "state"))
	}
}

// title ends a table and starts a new one, with columns of its own.
func (p *printer) title(text string) {
	if err := p.flush(); err == nil {
		_, p.err = fmt.Fprintf(p.tabs, "\n%s\n", text)
	}
}

func (p *printer) flush() error {
	if p.err == nil {
		p.err = p.tabs.Flush()
	}
	return p.err
}

// text returns what the update does differently for the variable, such as "decay".
func (v VariableReport) text() string {
	var parts []string
	switch v.Decay {
	case 0:
	case 1:
		parts = append(parts, "decay")
	default:
		parts = append(parts, fmt.Sprintf("%v times the decay", v.Decay))
	}
	if v.LearningRate != 1 {
		parts = append(parts, fmt.Sprintf("%v times the learning rate", v.LearningRate))
	}
	if v.Update != "update" {
		parts = append(parts, v.Update)
	}
	if v.Assigned {
		parts = append(parts, "assigned")
	}
	return strings.Join(parts, ", ")
}

// axesText lists the axes of a feature with their sizes, such as "[examples,height=28]".
func axesText(f Feature) string {
	axes := make([]string, len(f.Axes))
	for i, name := range f.Axes {
		axes[i] = name
		if f.Shape[i] != open {
			axes[i] += fmt.Sprintf("=%d", f.Shape[i])
		}
	}
	return "[" + strings.Join(axes, ",") + "]"
}

// text returns the valid values of a feature and what it is made of, such as ", 0 to 9".
func (f Feature) text() string {
	out := ""
	switch {
	case f.Below != nil:
		out = fmt.Sprintf(", %d to %d", *f.Minimum, *f.Below-1)
	case f.Minimum != nil:
		out = fmt.Sprintf(", %d or more", *f.Minimum)
	}
	if f.Make != "" {
		out += ", made: " + f.Make
	}
	return out
}

func shapeText(shape []int64) string {
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = "?"
		if d >= 0 {
			dims[i] = fmt.Sprint(d)
		}
	}
	return "[" + strings.Join(dims, ",") + "]"
}

// count formats a count with a noun, such as "2 nodes".
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func listText(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// costs sets what the model costs, as far as it is known.
func (r *Report) costs(c *Contract) {
	flops := c.Model.FLOPs
	if flops.PerToken == 0 {
		r.FLOPsPerExample = flops.PerExample
		return
	}
	longest := c.Model.ConfigInt("max_position_embeddings")
	for _, n := range rowLengths {
		if longest > 0 && n > longest {
			continue
		}
		report := FLOPsReport{n, flops.Forward(n), flops.Training(n)}
		if len(c.Phases) > 0 {
			report.Training = 0
		}
		r.FLOPs = append(r.FLOPs, report)
	}
}

// trainingText writes what a training step costs. That of phases is not known: the cost of the model is that
// of what predictions call.
func (r *Report) trainingText(n float64) string {
	if len(r.Phases) > 0 {
		return "not known of phases"
	}
	return flopsText(n)
}

func flopsText(n float64) string { return words.Scaled(n, "", "k", "M", "G", "T", "P") }
