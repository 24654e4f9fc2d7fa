package served

import (
	"slices"
	"testing"

	apb "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	fpb "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	gpb "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	opb "github.com/galeone/tensorflow/tensorflow/go/core/framework/op_def_go_proto"
	dtpb "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	spb "github.com/galeone/tensorflow/tensorflow/go/core/protobuf/for_core_protos_go_proto"
)

// TestSubstitute puts kernels in the place of functions with their names and types, and of no others.
func TestSubstitute(t *testing.T) {
	of := func(implements string, dtype dtpb.DataType) *fpb.FunctionDef {
		arg := func(name string) []*opb.OpDef_ArgDef { return []*opb.OpDef_ArgDef{{Name: name, Type: dtype}} }
		return &fpb.FunctionDef{
			Signature: &opb.OpDef{Name: implements, InputArg: arg("a"), OutputArg: arg("b")},
			Attr:      map[string]*apb.AttrValue{"_implements": {Value: &apb.AttrValue_S{S: []byte(implements)}}},
			Ret:       map[string]string{"b": "a"},
		}
	}
	all := []*fpb.FunctionDef{of("gorbit.gelu", dtpb.DataType_DT_FLOAT), of("gorbit.gelu", dtpb.DataType_DT_HALF), of("another.gelu", dtpb.DataType_DT_FLOAT)}
	saved := &spb.SavedModel{MetaGraphs: []*spb.MetaGraphDef{{GraphDef: &gpb.GraphDef{Library: &fpb.FunctionDefLibrary{Function: all}}}}}
	if names := substitute(saved); !slices.Equal(names, []string{"GorbitGelu"}) {
		t.Errorf("replaced are %v", names)
	}
	if n := all[0].NodeDef; len(n) != 1 || n[0].Op != "GorbitGelu" || !slices.Equal(n[0].Input, []string{"a"}) || all[0].Ret["b"] != "op:y:0" {
		t.Errorf("the function is %v", all[0])
	}
	for _, f := range all[1:] {
		if len(f.NodeDef) != 0 || f.Ret["b"] != "a" {
			t.Errorf("the function is %v", f)
		}
	}
}

// TestSubstituteOnVariables puts a kernel in the place of a function on caches, which is run whether its result is
// taken or not.
func TestSubstituteOnVariables(t *testing.T) {
	const float, number, resource = dtpb.DataType_DT_FLOAT, dtpb.DataType_DT_INT32, dtpb.DataType_DT_RESOURCE
	var in []*opb.OpDef_ArgDef
	for i, dtype := range []dtpb.DataType{float, number, number, number, float, resource, resource} {
		in = append(in, &opb.OpDef_ArgDef{Name: string(rune('a' + i)), Type: dtype})
	}
	f := &fpb.FunctionDef{
		Signature: &opb.OpDef{Name: "f", InputArg: in, OutputArg: []*opb.OpDef_ArgDef{{Name: "y", Type: float}}},
		Attr:      map[string]*apb.AttrValue{variablesAttr: {Value: &apb.AttrValue_S{S: []byte("gorbit.next_source_attention")}}},
	}
	saved := &spb.SavedModel{MetaGraphs: []*spb.MetaGraphDef{{GraphDef: &gpb.GraphDef{Library: &fpb.FunctionDefLibrary{Function: []*fpb.FunctionDef{f}}}}}}
	if names := substitute(saved); !slices.Equal(names, []string{"GorbitNextSourceAttention"}) {
		t.Fatalf("replaced are %v", names)
	}
	if f.ControlRet["op"] != "op" || !slices.Equal(f.Signature.ControlOutput, []string{"op"}) || f.Attr[variablesAttr] != nil {
		t.Errorf("the function is %v", f)
	}
}
