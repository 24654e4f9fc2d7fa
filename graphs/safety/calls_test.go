package safety

import (
	"fmt"
	"strings"
	"testing"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
)

// TestCheckCalls checks that what would make TensorFlow's stack overflow is refused, and no more.
func TestCheckCalls(t *testing.T) {
	chain := func(n int) []*fpb.FunctionDef {
		var all []*fpb.FunctionDef
		for i := range n - 1 {
			all = append(all, function(fmt.Sprintf("f%d", i), call("call", fmt.Sprintf("f%d", i+1))))
		}
		return append(all, function(fmt.Sprintf("f%d", n-1), node("NoOp")))
	}
	branch := &apb.AttrValue{Value: &apb.AttrValue_List{List: &apb.AttrValue_ListValue{Func: []*apb.NameAttrList{{Name: "a"}}}}}
	for _, c := range []struct {
		name      string
		functions []*fpb.FunctionDef
		says      string
	}{
		{"a diamond", []*fpb.FunctionDef{function("a", call("x", "b"), call("y", "c")), function("b", call("z", "c")), function("c", node("NoOp"))}, ""},
		{"by its name", []*fpb.FunctionDef{function("a", node("a"))}, "function a is called by itself or"},
		{"by a branch of another", []*fpb.FunctionDef{function("a", call("x", "b")), function("b", with(node("Case"), "branches", branch))}, "function a is called by itself or by what it calls, the last of which is b;"},
		{"deep", chain(maxCalls), ""},
		{"too deep", chain(maxCalls + 1), "functions are nested more than 500 deep"},
	} {
		graph := &gpb.GraphDef{Library: &fpb.FunctionDefLibrary{Function: c.functions}}
		err := CheckCalls(&spb.SavedModel{MetaGraphs: []*spb.MetaGraphDef{{GraphDef: graph}}})
		if (err == nil) != (c.says == "") || err != nil && !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%s: %v, expected %q", c.name, err, c.says)
		}
	}
}
