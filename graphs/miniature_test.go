package graphs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
)

const miniatureContract = `{
 "format": "gorbit", "version": 2, "task": "regression",
 "model": {"architecture": "line", "flops": {"per_token": 8, "per_token_pair": 1, "per_example": 2},
           "config": {"max_position_embeddings": 200}},
 "optimizer": {"name": "momentum", "slots": ["m"], "iterations": "optimizer/iterations",
               "hyperparameters": [{"name": "beta", "default": 0.9, "help": "decay of m", "minimum": 0, "below": 1}]},
 "state": "runner_state",
 "hyperparameters": [{"name": "noise", "default": 0, "help": "added to x"}],
 "features": [{"name": "x", "dtype": "float32", "axes": ["examples"]},
              {"name": "y", "dtype": "float32", "axes": ["examples"], "label": true}],
 "variables": [{"name": "model/w", "shape": [2], "dtype": "float32", "weight_decay": true, "foreign": []}]
}`

// miniature makes the smallest export that conforms: the fuzz targets' seed, and
// one whose report is known to the last digit. Nothing could be trained by it.
func miniature(t testing.TB) (*Contract, *spb.SavedModel) {
	t.Helper()
	contract, err := parseContract([]byte(miniatureContract))
	if err != nil {
		t.Fatal(err)
	}
	return contract, miniatureModel()
}

// Miniature writes the miniature into a folder, for examples.
func Miniature(dir string) error {
	model, err := proto.Marshal(miniatureModel())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(ContractFile)), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, modelFile), model, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, ContractFile), []byte(miniatureContract), 0o644)
}

func miniatureModel() *spb.SavedModel {
	m := new(modelBuilder)
	w := m.variable(dtpb.DataType_DT_FLOAT, 2)
	slot := m.variable(dtpb.DataType_DT_FLOAT, 2)
	iterations := m.variable(dtpb.DataType_DT_INT64)
	state := m.variable(dtpb.DataType_DT_STRING)

	float := func(name string, shape ...int64) Arg {
		return Arg{Name: name, DType: dtpb.DataType_DT_FLOAT, Shape: shape, Ranked: true}
	}
	handle := func(name string) Arg { return scalar(name, dtpb.DataType_DT_RESOURCE) }
	iteration := scalar("iteration", dtpb.DataType_DT_INT64)
	seed := Arg{Name: "seed", DType: dtpb.DataType_DT_INT64, Shape: []int64{2}, Ranked: true}
	x, y := float("x", -1), float("y", -1)
	sums := []Arg{float("loss_sum"), float("weight_sum")}

	loss := m.functionDef("__inference_loss_7", nil, nil, 0, node("Sub"), node("Square"))
	call := node("StatefulPartitionedCall", function("f", loss))
	children := map[string]int32{
		"model":        m.object(map[string]int32{"w": w}),
		"optimizer":    m.object(map[string]int32{"iterations": iterations, "m": m.object(map[string]int32{"model": m.object(map[string]int32{"w": slot})})}),
		"runner_state": state,
		"gradients": m.function("gradients", []Arg{x, y, seed, float("noise")},
			append([]Arg{float("gradient/model/w", 2)}, sums...), []int32{w}, call, node("Mul"), node("Mul")),
		"update": m.function("update", []Arg{handle("variable"), handle("m"), {Name: "gradient", DType: dtpb.DataType_DT_FLOAT},
			float("gradient_scale"), iteration, float("learning_rate"), float("weight_decay"), float("beta")}, nil, nil, node("ResourceApplyMomentum")),
		"evaluate": m.function("evaluate", []Arg{x, y}, sums, []int32{w}, call),
		"predict":  m.function("predict", []Arg{x}, []Arg{float("value", -1)}, []int32{w}, node("Mul")),
		"train_step": m.function("train_step", []Arg{x, y, seed, float("noise"), float("learning_rate"), float("weight_decay"), float("beta"), float("clip_norm")},
			sums, []int32{w, slot, iterations}, node("PartitionedCall", function("f", "__inference_gradients_1")), node("PartitionedCall", function("f", "__inference_update_1"))),
	}
	for _, name := range sortedKeys(children) {
		m.root.Children = append(m.root.Children, child(name, children[name]))
	}
	return m.model()
}

// modelBuilder makes a SavedModel's object graph and function library.
type modelBuilder struct {
	root      spb.SavedObject
	nodes     []*spb.SavedObject // from 1 on
	concrete  map[string]*spb.SavedConcreteFunction
	functions []*fpb.FunctionDef
}

func (m *modelBuilder) add(o *spb.SavedObject) int32 {
	m.nodes = append(m.nodes, o)
	return int32(len(m.nodes))
}

func child(name string, id int32) *spb.TrackableObjectGraph_TrackableObject_ObjectReference {
	return &spb.TrackableObjectGraph_TrackableObject_ObjectReference{NodeId: id, LocalName: name}
}

func (m *modelBuilder) object(children map[string]int32) int32 {
	o := &spb.SavedObject{Kind: &spb.SavedObject_UserObject{UserObject: &spb.SavedUserObject{}}}
	for _, name := range sortedKeys(children) {
		o.Children = append(o.Children, child(name, children[name]))
	}
	return m.add(o)
}

func (m *modelBuilder) variable(dtype dtpb.DataType, shape ...int64) int32 {
	return m.add(&spb.SavedObject{Kind: &spb.SavedObject_Variable{Variable: &spb.SavedVariable{Dtype: dtype, Shape: shapeProto(shape)}}})
}

// function adds a function of the contract: its object, its signature and its graph.
func (m *modelBuilder) function(name string, inputs, outputs []Arg, captures []int32, nodes ...*npb.NodeDef) int32 {
	graphName := m.functionDef("__inference_"+name+"_1", inputs, outputs, len(captures), nodes...)
	args := make(map[string]*spb.StructuredValue)
	var positional []*spb.StructuredValue
	for _, a := range inputs {
		positional = append(positional, spec(a))
	}
	for _, a := range outputs {
		args[a.Name] = spec(a)
	}
	if m.concrete == nil {
		m.concrete = make(map[string]*spb.SavedConcreteFunction)
	}
	m.concrete[graphName] = &spb.SavedConcreteFunction{
		BoundInputs:                 captures,
		CanonicalizedInputSignature: tuple(tuple(positional...), dict(nil)),
		OutputSignature:             dict(args),
	}
	return m.add(&spb.SavedObject{Kind: &spb.SavedObject_Function{Function: &spb.SavedFunction{ConcreteFunctions: []string{graphName}}}})
}

func (m *modelBuilder) functionDef(name string, inputs, outputs []Arg, captures int, nodes ...*npb.NodeDef) string {
	def := &fpb.FunctionDef{Signature: &opb.OpDef{Name: name}, NodeDef: nodes}
	for _, a := range inputs {
		def.Signature.InputArg = append(def.Signature.InputArg, &opb.OpDef_ArgDef{Name: a.Name, Type: a.DType})
	}
	for range captures {
		def.Signature.InputArg = append(def.Signature.InputArg, &opb.OpDef_ArgDef{Type: dtpb.DataType_DT_RESOURCE})
	}
	for _, a := range outputs {
		def.Signature.OutputArg = append(def.Signature.OutputArg, &opb.OpDef_ArgDef{Name: a.Name, Type: a.DType})
	}
	m.functions = append(m.functions, def)
	return name
}

func (m *modelBuilder) model() *spb.SavedModel {
	return &spb.SavedModel{MetaGraphs: []*spb.MetaGraphDef{{
		MetaInfoDef: &spb.MetaGraphDef_MetaInfoDef{TensorflowVersion: "2.18.1"},
		GraphDef:    &gpb.GraphDef{Library: &fpb.FunctionDefLibrary{Function: m.functions}},
		ObjectGraphDef: &spb.SavedObjectGraph{
			Nodes:             append([]*spb.SavedObject{&m.root}, m.nodes...),
			ConcreteFunctions: m.concrete,
		},
	}}}
}

func node(op string, attrs ...Attr) *npb.NodeDef {
	n := &npb.NodeDef{Name: strings.ToLower(op), Op: op, Attr: make(map[string]*apb.AttrValue)}
	for _, a := range attrs {
		n.Attr[a.Name] = a.Value
	}
	return n
}

// Attr is an attribute of a node.
type Attr struct {
	Name  string
	Value *apb.AttrValue
}

func function(attr, name string) Attr {
	return Attr{attr, &apb.AttrValue{Value: &apb.AttrValue_Func{Func: &apb.NameAttrList{Name: name}}}}
}

func text(attr, value string) Attr {
	return Attr{attr, &apb.AttrValue{Value: &apb.AttrValue_S{S: []byte(value)}}}
}

func shapeProto(dims []int64) *tspb.TensorShapeProto {
	s := new(tspb.TensorShapeProto)
	for _, d := range dims {
		s.Dim = append(s.Dim, &tspb.TensorShapeProto_Dim{Size: d})
	}
	return s
}

func spec(a Arg) *spb.StructuredValue {
	s := &spb.TensorSpecProto{Name: a.Name, Dtype: a.DType, Shape: shapeProto(a.Shape)}
	s.Shape.UnknownRank = !a.Ranked
	return &spb.StructuredValue{Kind: &spb.StructuredValue_TensorSpecValue{TensorSpecValue: s}}
}

func tuple(items ...*spb.StructuredValue) *spb.StructuredValue {
	return &spb.StructuredValue{Kind: &spb.StructuredValue_TupleValue{TupleValue: &spb.TupleValue{Values: items}}}
}

func dict(fields map[string]*spb.StructuredValue) *spb.StructuredValue {
	return &spb.StructuredValue{Kind: &spb.StructuredValue_DictValue{DictValue: &spb.DictValue{Fields: fields}}}
}
