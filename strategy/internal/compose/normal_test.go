package compose

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"
	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	tpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"google.golang.org/protobuf/proto"
)

// normal brings graphs to a form in which two are equal if they compute the same in the same way:
// each node is a line of its operation, device, attributes, inputs in their order and control
// inputs in any order. Nodes have no names: an input is the hash of its node's line. Functions have
// none either.
type normal struct {
	functions map[string]*fpb.FunctionDef
	nodes     map[string]*npb.NodeDef
	args      map[string]int    // arguments of a function, by name
	lines     map[string]string // by node
	order     []string
}

// normalize returns the lines of the nodes that roots, names of nodes, depend on, inputs first.
// TensorFlow itself adds the attributes that have their default values.
func normalize(t *testing.T, def []byte, roots []string) []string {
	t.Helper()
	g := tf.NewGraph()
	if err := g.Import(def, ""); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := g.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	var graph gpb.GraphDef
	if err := proto.Unmarshal(b.Bytes(), &graph); err != nil {
		t.Fatal(err)
	}
	n := &normal{functions: make(map[string]*fpb.FunctionDef)}
	for _, f := range graph.GetLibrary().GetFunction() {
		n.functions[f.GetSignature().GetName()] = f
	}
	n.begin(graph.GetNode())
	for _, root := range roots {
		if n.nodes[root] == nil {
			t.Fatalf("node %s not found", root)
		}
		n.line(root)
	}
	out := make([]string, len(n.order))
	for i, name := range n.order {
		out[i] = hash(n.lines[name]) + " " + n.lines[name]
	}
	return out
}

func (n *normal) begin(nodes []*npb.NodeDef) {
	n.nodes, n.lines = make(map[string]*npb.NodeDef), make(map[string]string)
	for _, node := range nodes {
		n.nodes[node.GetName()] = node
	}
}

func hash(line string) string {
	sum := sha256.Sum256([]byte(line))
	return hex.EncodeToString(sum[:4])
}

// line returns the line of a node.
func (n *normal) line(name string) string {
	if line, ok := n.lines[name]; ok {
		return line
	}
	node := n.nodes[name]
	var attrs, inputs, controls []string
	for name, value := range node.GetAttr() {
		if _, ok := meant[name]; !ok {
			attrs = append(attrs, name+"="+n.attr(value))
		}
	}
	for _, in := range node.GetInput() {
		if control, ok := strings.CutPrefix(in, "^"); ok {
			controls = append(controls, "^"+hash(n.line(control)))
			continue
		}
		inputs = append(inputs, n.input(in))
	}
	slices.Sort(attrs)
	slices.Sort(controls)
	line := fmt.Sprintf("%s on %q %v from %v %v", node.GetOp(), node.GetDevice(), attrs, inputs, controls)
	n.lines[name] = line
	n.order = append(n.order, name)
	return line
}

// input returns a reference, "node", "node:1", or in functions "argument", "node:output:1".
func (n *normal) input(ref string) string {
	name, output, _ := strings.Cut(ref, ":")
	if i, ok := n.args[name]; ok {
		return fmt.Sprintf("argument %d", i)
	}
	return hash(n.line(name)) + ":" + cmp.Or(output, "0")
}

func (n *normal) attr(v *apb.AttrValue) string {
	switch v := v.GetValue().(type) {
	case *apb.AttrValue_Func:
		return "function " + n.function(v.Func.GetName())
	case *apb.AttrValue_Tensor:
		return fmt.Sprintf("%v%v%v", v.Tensor.GetDtype(), dims(v.Tensor), numbers(v.Tensor))
	case *apb.AttrValue_S:
		return fmt.Sprintf("%q", v.S)
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return hex.EncodeToString(text)
}

// function returns the hash of a function.
func (n *normal) function(name string) string {
	f := n.functions[name]
	in := &normal{functions: n.functions, args: make(map[string]int)}
	in.begin(f.GetNodeDef())
	var types []dtpb.DataType
	for i, a := range f.GetSignature().GetInputArg() {
		in.args[a.GetName()] = i
		types = append(types, a.GetType())
	}
	var outputs []string
	for _, a := range f.GetSignature().GetOutputArg() {
		outputs = append(outputs, a.GetType().String()+" "+in.input(f.GetRet()[a.GetName()]))
	}
	var effects []string
	for _, node := range f.GetControlRet() {
		effects = append(effects, hash(in.line(node)))
	}
	slices.Sort(effects)
	return hash(fmt.Sprintf("%v -> %v, %v", types, outputs, effects))
}

func dims(t *tpb.TensorProto) []int64 {
	var out []int64
	for _, d := range t.GetTensorShape().GetDim() {
		out = append(out, d.GetSize())
	}
	return out
}

// numbers returns the values of a tensor, which can be written as numbers or as bytes.
func numbers(t *tpb.TensorProto) string {
	b := t.GetTensorContent()
	if len(b) == 0 {
		return fmt.Sprint(t.GetIntVal(), t.GetInt64Val(), t.GetFloatVal(), t.GetBoolVal())
	}
	like := new(tpb.TensorProto)
	for ; len(b) > 0; b = b[4:] {
		switch v := binary.LittleEndian.Uint32(b); t.GetDtype() {
		case dtpb.DataType_DT_INT32:
			like.IntVal = append(like.IntVal, int32(v))
		case dtpb.DataType_DT_FLOAT:
			like.FloatVal = append(like.FloatVal, math.Float32frombits(v))
		default:
			return hex.EncodeToString(t.GetTensorContent())
		}
	}
	return numbers(like)
}

// same compares two normal forms, line by line, but for the order of lines.
func same(t *testing.T, got, want []string) {
	t.Helper()
	rest := slices.Clone(want)
	var more []string
	for _, line := range got {
		if i := slices.Index(rest, line); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		} else {
			more = append(more, line)
		}
	}
	// The first lines tell the difference; those that follow depend on them.
	for i, line := range more[:min(3, len(more))] {
		t.Errorf("%d of %d nodes are not TensorFlow's: %s", i+1, len(more), line)
	}
	for i, line := range rest[:min(3, len(rest))] {
		t.Errorf("%d of %d nodes are missing: %s", i+1, len(rest), line)
	}
}
