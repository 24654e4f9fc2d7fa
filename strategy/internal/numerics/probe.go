// Package numerics finds the first tensor of a function that is not finite. It makes functions that
// compute the same as another one and also give what its tensors hold.
package numerics

import (
	"fmt"
	"strings"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"google.golang.org/protobuf/proto"
)

// Tensor is a tensor of floating point numbers in a function.
type Tensor struct {
	// Ref is how nodes of the function name it: "node:output:0", or the name of an argument.
	Ref string
	// Node and Op are the node that computes it, and its operation, or the function that it calls; Op is
	// "" for an argument.
	Node, Op string
	DType    dtpb.DataType
}

// Tensors returns the tensors of a function in an order in which they can be computed. ops are the
// definitions of the operations by name.
func Tensors(def *fpb.FunctionDef, ops map[string]*opb.OpDef) ([]Tensor, error) {
	var out []Tensor
	for _, a := range def.GetSignature().GetInputArg() {
		if isFloat(a.GetType()) {
			out = append(out, Tensor{Ref: a.GetName(), Node: a.GetName(), DType: a.GetType()})
		}
	}
	for _, n := range ordered(def) {
		op := ops[n.GetOp()]
		if op == nil {
			return nil, fmt.Errorf("operation %s of node %s is not registered", n.GetOp(), n.GetName())
		}
		for _, a := range op.GetOutputArg() {
			for i, dtype := range typesOf(n, op, a) {
				if isFloat(dtype) {
					out = append(out, Tensor{fmt.Sprintf("%s:%s:%d", n.GetName(), a.GetName(), i), n.GetName(), called(n), dtype})
				}
			}
		}
	}
	return out, nil
}

// called returns the operation of a node or, of a call, the function as it was named in Python.
func called(n *npb.NodeDef) string {
	function := n.GetAttr()["f"].GetFunc().GetName()
	if !strings.HasSuffix(n.GetOp(), "PartitionedCall") || function == "" {
		return n.GetOp()
	}
	return strings.Trim(strings.TrimPrefix(function, "__inference_"), "_0123456789")
}

func isFloat(t dtpb.DataType) bool {
	return t == dtpb.DataType_DT_FLOAT || t == dtpb.DataType_DT_HALF || t == dtpb.DataType_DT_BFLOAT16 || t == dtpb.DataType_DT_DOUBLE
}

// ordered returns the nodes of a function, each after those that it needs.
func ordered(def *fpb.FunctionDef) []*npb.NodeDef {
	nodes := make(map[string]*npb.NodeDef, len(def.GetNodeDef()))
	for _, n := range def.GetNodeDef() {
		nodes[n.GetName()] = n
	}
	var out []*npb.NodeDef
	done := make(map[string]bool, len(nodes))
	var add func(name string)
	add = func(name string) {
		n := nodes[name]
		if n == nil || done[name] {
			return
		}
		done[name] = true
		for _, in := range n.GetInput() {
			add(producer(in))
		}
		out = append(out, n)
	}
	for _, n := range def.GetNodeDef() {
		add(n.GetName())
	}
	return out
}

// Near returns for each node of a function the variable that it computes with, or that what it computes with
// was computed with last: the place of a node in a model whose scopes have no names. Handles are the
// variables by argument.
func Near(def *fpb.FunctionDef, handles map[string]string) map[string]string {
	near, depth := make(map[string]string), make(map[string]int)
	reads := make(map[string]bool) // nodes that have a handle
	for _, n := range ordered(def) {
		name := n.GetName()
		deepest, direct := -1, ""
		for _, in := range n.GetInput() {
			of := producer(in)
			if handles[of] != "" {
				direct, reads[name] = handles[of], true
			}
			if reads[of] && direct == "" {
				direct = near[of]
			}
			if depth[of] > deepest && near[of] != "" {
				deepest, near[name] = depth[of], near[of]
			}
			depth[name] = max(depth[name], depth[of]+1)
		}
		if direct != "" {
			near[name] = direct
		}
	}
	return near
}

// carried are operations that pass values on. What they make of constants that are not finite, such as the
// -Inf of a mask, is meant.
var carried = map[string]bool{"SelectV2": true, "Select": true, "Identity": true, "Cast": true, "Reshape": true, "BroadcastTo": true, "Fill": true, "Tile": true, "ExpandDims": true, "Pack": true}

// First returns the tensor at which the outputs of a function, given as references, begin not to be finite:
// the first one that is bad, and that leads to a bad output by bad tensors alone. Constants that are not
// finite, and what only carries them, are meant. It returns -1 if no output is bad.
func First(def *fpb.FunctionDef, tensors []Tensor, bad map[string]bool, outputs []string) int {
	inputs := make(map[string][]string)
	meant := make(map[string]bool) // nodes
	for _, n := range ordered(def) {
		inputs[n.GetName()] = n.GetInput()
		some, all := false, true
		for _, in := range n.GetInput() {
			if bad[in] {
				some, all = true, all && meant[producer(in)]
			}
		}
		meant[n.GetName()] = n.GetOp() == "Const" || carried[n.GetOp()] && some && all
	}
	leads := make(map[string]bool) // references
	var back func(ref string)
	back = func(ref string) {
		if bad[ref] && !leads[ref] {
			leads[ref] = true
			for _, in := range inputs[producer(ref)] {
				back(in)
			}
		}
	}
	for _, ref := range outputs {
		back(ref)
	}
	first := -1
	for i, t := range tensors {
		switch {
		case leads[t.Ref] && !meant[t.Node]:
			return i
		case leads[t.Ref] && first < 0:
			first = i
		}
	}
	return first
}

// producer returns the node, or argument, of a reference within a function.
func producer(ref string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(ref, "^"), ":")
	return name
}

// typesOf returns the dtypes of an output of a node: one, or those of a list.
func typesOf(n *npb.NodeDef, op *opb.OpDef, a *opb.OpDef_ArgDef) []dtpb.DataType {
	if a.GetTypeListAttr() != "" {
		return attr(n, op, a.GetTypeListAttr()).GetList().GetType()
	}
	dtype, count := a.GetType(), int64(1)
	if a.GetTypeAttr() != "" {
		dtype = attr(n, op, a.GetTypeAttr()).GetType()
	}
	if a.GetNumberAttr() != "" {
		count = attr(n, op, a.GetNumberAttr()).GetI()
	}
	out := make([]dtpb.DataType, count)
	for i := range out {
		out[i] = dtype
	}
	return out
}

// attr returns an attribute of a node, or its default.
func attr(n *npb.NodeDef, op *opb.OpDef, name string) *apb.AttrValue {
	if v, ok := n.GetAttr()[name]; ok {
		return v
	}
	for _, a := range op.GetAttr() {
		if a.GetName() == name {
			return a.GetDefaultValue()
		}
	}
	return nil
}

// Counts are the columns of what Counting gives: the tensor's place, elements, -Inf, +Inf and NaN.
const Counts = 5

// conciseHealth is the tensor_debug_mode of DebugNumericSummaryV2 that gives Counts.
const conciseHealth = 3

// Counting returns a function that gives what def gives, and at the end a matrix float64 [tensors, Counts].
func Counting(def *fpb.FunctionDef, name string, tensors []Tensor) *fpb.FunctionDef {
	p := newProbe(def, name)
	var rows []string
	for i, t := range tensors {
		value, dtype := t.Ref, t.DType
		if dtype == dtpb.DataType_DT_HALF || dtype == dtpb.DataType_DT_BFLOAT16 { // not every device counts them
			value, dtype = p.cast(value, dtype, dtpb.DataType_DT_FLOAT), dtpb.DataType_DT_FLOAT
		}
		rows = append(rows, p.node("DebugNumericSummaryV2", "output", []string{value}, map[string]*apb.AttrValue{
			"T": typeAttr(dtype), "output_dtype": typeAttr(dtpb.DataType_DT_DOUBLE), "tensor_id": intAttr(int64(i)), "tensor_debug_mode": intAttr(conciseHealth)}))
	}
	p.give("counts", p.node("Pack", "output", rows, map[string]*apb.AttrValue{
		"T": typeAttr(dtpb.DataType_DT_DOUBLE), "N": intAttr(int64(len(rows))), "axis": intAttr(0)}))
	return p.def
}

// Showing returns a function that gives what def gives, and at the end the values of tensors, as float64.
func Showing(def *fpb.FunctionDef, name string, tensors []Tensor) *fpb.FunctionDef {
	p := newProbe(def, name)
	for i, t := range tensors {
		value := t.Ref
		if t.DType != dtpb.DataType_DT_DOUBLE {
			value = p.cast(value, t.DType, dtpb.DataType_DT_DOUBLE)
		}
		p.give(fmt.Sprintf("shown_%d", i), value)
	}
	return p.def
}

// probe is a function that is added to.
type probe struct {
	def  *fpb.FunctionDef
	next int
}

func newProbe(def *fpb.FunctionDef, name string) *probe {
	p := &probe{def: proto.CloneOf(def)}
	p.def.Signature.Name = name
	for _, attribute := range []string{"_XlaMustCompile", "_implements", "api_implements"} {
		delete(p.def.Attr, attribute)
	}
	return p
}

// node adds a node, and returns the reference of its output of that name.
func (p *probe) node(op, output string, inputs []string, attrs map[string]*apb.AttrValue) string {
	name := fmt.Sprintf("gorbit_probe_%d", p.next)
	p.next++
	p.def.NodeDef = append(p.def.NodeDef, &npb.NodeDef{Name: name, Op: op, Input: inputs, Attr: attrs})
	return name + ":" + output + ":0"
}

func (p *probe) cast(ref string, from, to dtpb.DataType) string {
	return p.node("Cast", "y", []string{ref}, map[string]*apb.AttrValue{"SrcT": typeAttr(from), "DstT": typeAttr(to)})
}

// give adds an output of float64.
func (p *probe) give(name, ref string) {
	p.def.Signature.OutputArg = append(p.def.Signature.OutputArg, &opb.OpDef_ArgDef{Name: "gorbit_" + name, Type: dtpb.DataType_DT_DOUBLE})
	p.def.Ret["gorbit_"+name] = ref
}

func typeAttr(t dtpb.DataType) *apb.AttrValue {
	return &apb.AttrValue{Value: &apb.AttrValue_Type{Type: t}}
}

func intAttr(n int64) *apb.AttrValue { return &apb.AttrValue{Value: &apb.AttrValue_I{I: n}} }
