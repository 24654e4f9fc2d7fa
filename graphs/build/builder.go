// Package build makes TensorFlow graphs (GraphDefs) of single operations and of calls to the
// functions of an export.
//
// It can replace functions that declare what they implement by an operation, such as a kernel of
// our own. It also estimates the order in which a function computes its outputs.
package build

import (
	"fmt"
	"slices"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	tpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	vpb "github.com/wamuir/graft/tensorflow/core/framework/versions_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs"
)

// Builder makes a GraphDef node by node. It checks nothing: TensorFlow does that when it imports
// the graph.
type Builder struct {
	def    *gpb.GraphDef
	names  map[string]int
	device string
	scope  string // of Scope
	// outputs are those of Declare, by operation.
	outputs map[string][]string
	// root and common are those of Within.
	root   Ref
	common []Attr
	// inputs are those of the nodes. Graphs and functions write them in different ways.
	inputs [][]Ref
}

// New returns a builder of a graph that can call the functions of a library, such as that of
// graphs.Export.Library; nil means no functions. Versions are those of the graph that holds the
// functions; nil means TensorFlow's own.
func New(library *fpb.FunctionDefLibrary, versions *vpb.VersionDef) *Builder {
	return &Builder{
		def:     &gpb.GraphDef{Versions: versions, Library: library},
		names:   make(map[string]int),
		outputs: make(map[string][]string),
	}
}

// Declare names the outputs of an operation that is not TensorFlow's, so that functions can use it.
func (b *Builder) Declare(op string, outputs ...string) { b.outputs[op] = outputs }

// Attr is an attribute of a node.
type Attr struct {
	Name  string
	Value *apb.AttrValue
}

// Type makes a dtype attribute.
func Type(name string, t dtpb.DataType) Attr {
	return Attr{name, &apb.AttrValue{Value: &apb.AttrValue_Type{Type: t}}}
}

// Types makes an attribute that is a list of dtypes.
func Types(name string, t []dtpb.DataType) Attr {
	return Attr{name, &apb.AttrValue{Value: &apb.AttrValue_List{List: &apb.AttrValue_ListValue{Type: t}}}}
}

// Int makes an integer attribute.
func Int(name string, v int64) Attr {
	return Attr{name, &apb.AttrValue{Value: &apb.AttrValue_I{I: v}}}
}

// String makes a string attribute.
func String(name, v string) Attr {
	return Attr{name, &apb.AttrValue{Value: &apb.AttrValue_S{S: []byte(v)}}}
}

// Shape makes a shape attribute; -1 is an unknown dimension.
func Shape(name string, dims []int64) Attr {
	return Attr{name, &apb.AttrValue{Value: &apb.AttrValue_Shape{Shape: shapeProto(dims)}}}
}

// Shapes makes an attribute that is a list of shapes; a nil shape is a scalar's.
func Shapes(name string, list [][]int64) Attr {
	value := &apb.AttrValue_ListValue{Shape: make([]*tspb.TensorShapeProto, len(list))}
	for i, dims := range list {
		value.Shape[i] = shapeProto(dims)
	}
	return Attr{name, &apb.AttrValue{Value: &apb.AttrValue_List{List: value}}}
}

func shapeProto(dims []int64) *tspb.TensorShapeProto {
	s := new(tspb.TensorShapeProto)
	for _, d := range dims {
		s.Dim = append(s.Dim, &tspb.TensorShapeProto_Dim{Size: d})
	}
	return s
}

// Bool makes a boolean attribute.
func Bool(name string, v bool) Attr {
	return Attr{name, &apb.AttrValue{Value: &apb.AttrValue_B{B: v}}}
}

// Ints makes an attribute that is a list of integers.
func Ints(name string, v []int64) Attr {
	return Attr{name, &apb.AttrValue{Value: &apb.AttrValue_List{List: &apb.AttrValue_ListValue{I: v}}}}
}

// Func makes a function attribute.
func Func(name, function string) Attr {
	return Attr{name, &apb.AttrValue{Value: &apb.AttrValue_Func{Func: &apb.NameAttrList{Name: function}}}}
}

// OnDevice sets the device of the nodes added from now on; "" means TensorFlow's choice.
func (b *Builder) OnDevice(device string) { b.device = device }

// Within gives attributes to the nodes added from now on, and lets those without inputs wait for the
// node root. The zero Ref and no attributes end this.
func (b *Builder) Within(root Ref, common ...Attr) { b.root, b.common = root, common }

// Scope sets what stands before the names of the nodes and variables added from now on, such as "first/".
func (b *Builder) Scope(scope string) { b.scope = scope }

// Node adds a node and returns its first output. If the name is taken, a number is appended.
func (b *Builder) Node(op, name string, inputs []Ref, attrs ...Attr) Ref {
	name = b.scope + name
	if n := b.names[name]; n > 0 {
		b.names[name]++
		name = fmt.Sprintf("%s_%d", name, n)
	}
	b.names[name]++
	node := &npb.NodeDef{Name: name, Op: op, Device: b.device, Attr: make(map[string]*apb.AttrValue, len(attrs))}
	for _, a := range slices.Concat(b.common, attrs) {
		node.Attr[a.Name] = a.Value
	}
	if !b.root.IsZero() && len(inputs) == 0 {
		inputs = []Ref{b.root.After()}
	}
	b.def.Node, b.inputs = append(b.def.Node, node), append(b.inputs, slices.Clone(inputs))
	return Ref{Node: name}
}

// Placeholder adds a tensor that a call feeds.
func (b *Builder) Placeholder(name string, dtype dtpb.DataType, shape []int64) Ref {
	return b.Node("Placeholder", name, nil, Type("dtype", dtype), Shape("shape", shape))
}

// Const adds a constant.
func (b *Builder) Const(name string, value *tpb.TensorProto) Ref {
	return b.Node("Const", name, nil, Type("dtype", value.GetDtype()),
		Attr{"value", &apb.AttrValue{Value: &apb.AttrValue_Tensor{Tensor: value}}})
}

// Float adds a float32 scalar.
func (b *Builder) Float(name string, v float32) Ref {
	return b.Const(name, &tpb.TensorProto{Dtype: dtpb.DataType_DT_FLOAT, TensorShape: shapeProto(nil), FloatVal: []float32{v}})
}

// Int32 adds an int32 scalar.
func (b *Builder) Int32(name string, v int32) Ref {
	return b.Const(name, &tpb.TensorProto{Dtype: dtpb.DataType_DT_INT32, TensorShape: shapeProto(nil), IntVal: []int32{v}})
}

// Int32s adds an int32 vector.
func (b *Builder) Int32s(name string, v []int32) Ref {
	return b.Const(name, &tpb.TensorProto{Dtype: dtpb.DataType_DT_INT32, TensorShape: shapeProto([]int64{int64(len(v))}), IntVal: v})
}

// Int64 adds an int64 scalar.
func (b *Builder) Int64(name string, v int64) Ref {
	return b.Const(name, &tpb.TensorProto{Dtype: dtpb.DataType_DT_INT64, TensorShape: shapeProto(nil), Int64Val: []int64{v}})
}

// Int64s adds an int64 vector.
func (b *Builder) Int64s(name string, v []int64) Ref {
	return b.Const(name, &tpb.TensorProto{Dtype: dtpb.DataType_DT_INT64, TensorShape: shapeProto([]int64{int64(len(v))}), Int64Val: v})
}

// Bool adds a bool scalar.
func (b *Builder) Bool(name string, v bool) Ref {
	return b.Const(name, &tpb.TensorProto{Dtype: dtpb.DataType_DT_BOOL, TensorShape: shapeProto(nil), BoolVal: []bool{v}})
}

// Bytes adds a uint8 vector.
func (b *Builder) Bytes(name string, v []byte) Ref {
	return b.Const(name, &tpb.TensorProto{Dtype: dtpb.DataType_DT_UINT8, TensorShape: shapeProto([]int64{int64(len(v))}), TensorContent: v})
}

// Variable adds the handle of a resource variable.
func (b *Builder) Variable(name string, dtype dtpb.DataType, shape []int64) Ref {
	return b.Node("VarHandleOp", name, nil,
		Type("dtype", dtype), Shape("shape", shape), String("shared_name", b.scope+name), String("container", ""))
}

// Read adds a node that reads a variable after the control inputs.
func (b *Builder) Read(name string, handle Ref, dtype dtpb.DataType, after ...Ref) Ref {
	return b.Node("ReadVariableOp", name, append([]Ref{handle}, controls(after)...), Type("dtype", dtype))
}

// Assign adds a node that assigns a value to a variable.
func (b *Builder) Assign(name string, handle, value Ref, dtype dtpb.DataType) Ref {
	return b.Node("AssignVariableOp", name, []Ref{handle, value}, Type("dtype", dtype))
}

// Group adds a node that completes when all given nodes have completed.
func (b *Builder) Group(name string, nodes ...Ref) Ref {
	return b.Node("NoOp", name, controls(nodes))
}

func controls(nodes []Ref) []Ref {
	out := make([]Ref, len(nodes))
	for i, n := range nodes {
		out[i] = n.After()
	}
	return out
}

// Call adds a call of a function after the control inputs. Inputs holds the inputs by argument name,
// and handles the handle of each captured variable.
func (b *Builder) Call(name string, f *graphs.Function, inputs, handles map[string]Ref, after ...Ref) Ref {
	var args []Ref
	var tin, tout []dtpb.DataType
	for _, a := range f.Inputs {
		args = append(args, inputs[a.Name])
		tin = append(tin, a.DType)
	}
	for _, c := range f.Captures {
		args = append(args, handles[c])
		tin = append(tin, dtpb.DataType_DT_RESOURCE)
	}
	for _, a := range f.Outputs {
		tout = append(tout, a.DType)
	}
	return b.CallNamed(name, f.GraphName, args, tin, tout, f.XLA, after...)
}

// CallNamed adds a call of a function of the graph's library after the control inputs. If xla is set,
// XLA compiles it, with all that it calls, to one program for each shape of its inputs.
func (b *Builder) CallNamed(name, function string, inputs []Ref, in, out []dtpb.DataType, xla bool, after ...Ref) Ref {
	attrs := []Attr{Types("Tin", in), Types("Tout", out), Func("f", function),
		String("config", ""), String("config_proto", ""), String("executor_type", "")}
	if xla {
		attrs = append(attrs, Bool("_XlaMustCompile", true))
	}
	return b.Node("StatefulPartitionedCall", name, append(slices.Clone(inputs), controls(after)...), attrs...)
}

// Marshal returns the serialized graph, as accepted by tf.Graph.Import.
func (b *Builder) Marshal() ([]byte, error) {
	for i, n := range b.def.Node {
		n.Input = texts(b.inputs[i])
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(b.def)
}
