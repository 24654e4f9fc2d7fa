package graphs

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/gorbit-ml/gorbit/graphs/safety"
)

// Report describes an export. Its JSON form is stable: lists are sorted or in the order of the
// contract.
type Report struct {
	Path            string `json:"path"`
	TensorFlow      string `json:"tensorflow"`
	ContractVersion int    `json:"contract_version"`
	Task            string `json:"task"`
	Architecture    string `json:"architecture"`
	NumLabels       int    `json:"num_labels,omitempty"`
	Pooling         string `json:"pooling,omitempty"`
	// Precision is the precision of products and activations; variables are float32.
	Precision string `json:"precision"`
	// XLA means that gradients, evaluate and predict are compiled by XLA.
	XLA bool `json:"xla,omitempty"`
	// SavedModelBytes is the size of saved_model.pb.
	SavedModelBytes int64 `json:"saved_model_bytes"`

	Parameters int64 `json:"parameters"`
	// DecayedParameters is the number of parameters with weight decay.
	DecayedParameters int64 `json:"decayed_parameters"`
	// VariableBytes is the size of the model's variables, SlotBytes that of the optimizer's
	// slots.
	VariableBytes int64    `json:"variable_bytes"`
	SlotBytes     int64    `json:"slot_bytes"`
	Optimizer     string   `json:"optimizer"`
	Slots         []string `json:"slots"`

	FLOPs     []FLOPsReport    `json:"flops"`
	Functions []FunctionReport `json:"functions"`
	Variables []VariableReport `json:"variables"`
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
	Training  float64 `json:"training_per_token"`
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
		NumLabels:       c.Model.NumLabels,
		Pooling:         c.Model.Pooling,
		Precision:       c.Precision,
		XLA:             c.XLA,
		SavedModelBytes: e.ModelBytes,
		Parameters:      c.Parameters(),
		Optimizer:       c.Optimizer.Name,
		Slots:           append([]string{}, c.Optimizer.Slots...),
		FLOPs:           []FLOPsReport{},
		Hyperparameters: append([]Hyperparameter{}, c.AllHyperparameters()...),
		Unsafe:          append([]safety.Use{}, e.Unsafe()...),
	}
	const float32Bytes = 4
	r.VariableBytes = float32Bytes * r.Parameters
	r.SlotBytes = r.VariableBytes * int64(len(c.Optimizer.Slots))
	for _, v := range c.Variables {
		r.Variables = append(r.Variables, VariableReport{v.Name, v.DType, append([]int64{}, v.Shape...), v.Elements(), v.WeightDecay})
		if v.WeightDecay {
			r.DecayedParameters += v.Elements()
		}
	}
	if flops := c.Model.FLOPs; flops.PerToken > 0 {
		longest := c.Model.ConfigInt("max_position_embeddings")
		for _, n := range rowLengths {
			if longest == 0 || n <= longest {
				r.FLOPs = append(r.FLOPs, FLOPsReport{n, flops.Forward(n), flops.Training(n)})
			}
		}
	}
	for _, name := range functionNames {
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
	for function := range e.reach(composedFunctions...) {
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
		report := ArgReport{Name: a.Name, DType: dtypeName(a.DType)}
		if a.Ranked {
			report.Shape = append([]int64{}, a.Shape...)
		}
		out = append(out, report)
	}
	return out
}

// Write writes the report as text.
func (r *Report) Write(w io.Writer) error {
	p := &printer{tabs: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	p.row("graph", r.Path)
	model := []string{r.Task, r.Architecture}
	if r.NumLabels > 0 {
		model = append(model, fmt.Sprintf("%d labels", r.NumLabels))
	}
	if r.Pooling != "" {
		model = append(model, "pooling "+r.Pooling)
	}
	p.row("model", strings.Join(model, ", "))
	p.row("precision", r.Precision)
	if r.XLA {
		p.row("compiled by", "XLA: gradients, evaluate, predict")
	}
	p.row("TensorFlow", fmt.Sprintf("%s, contract version %d, saved_model.pb %s", r.TensorFlow, r.ContractVersion, bytesText(r.SavedModelBytes)))
	p.row("parameters", fmt.Sprintf("%s in %s, %s; weight decay on %s", thousands(r.Parameters), count(len(r.Variables), "variable"), bytesText(r.VariableBytes), thousands(r.DecayedParameters)))
	p.row("optimizer", fmt.Sprintf("%s, slots %s: %s", r.Optimizer, listText(r.Slots), bytesText(r.SlotBytes)))

	if len(r.FLOPs) > 0 {
		p.title("FLOPs per token")
		p.row("row length", "forward", "training")
		for _, f := range r.FLOPs {
			p.row(fmt.Sprint(f.RowLength), flopsText(f.Forward), flopsText(f.Training))
		}
	}
	p.title("hyperparameters")
	for _, h := range r.Hyperparameters {
		p.row(h.Name, fmt.Sprint(h.Default), h.Help)
	}
	for _, f := range r.Functions {
		p.title(fmt.Sprintf("function %s: captures %s, %s in %s", f.Name, count(f.Captures, "variable"), count(f.Nodes, "node"), count(f.Functions, "function")))
		for _, a := range f.Inputs {
			p.arg("in", a)
		}
		gradients := 0
		for _, a := range f.Outputs {
			if strings.HasPrefix(a.Name, GradientPrefix) {
				gradients++
				continue
			}
			p.arg("out", a)
		}
		if gradients > 0 {
			p.row("out", GradientPrefix+"...", "float32", "of "+count(gradients, "variable"))
		}
	}
	p.title("variables")
	for _, v := range r.Variables {
		decay := ""
		if v.WeightDecay {
			decay = "decay"
		}
		p.row(v.Name, v.DType, shapeText(v.Shape), thousands(v.Parameters), decay)
	}
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

// thousands formats a count with commas, such as 1,234,567.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func bytesText(n int64) string { return scaled(float64(n), "B", "kB", "MB", "GB", "TB") }

func flopsText(n float64) string { return scaled(n, "", "k", "M", "G", "T", "P") }

// scaled formats a number with the largest unit in which it is 1 or more. Each unit is 1000 times
// the one before.
func scaled(x float64, units ...string) string {
	i := 0
	for ; x >= 1000 && i < len(units)-1; i++ {
		x /= 1000
	}
	return strings.TrimSpace(fmt.Sprintf("%.3g %s", x, units[i]))
}
