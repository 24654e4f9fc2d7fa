package build

import (
	"slices"
	"testing"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
)

// TestWithout takes outputs from a function. What others need, and what changes variables, stays.
func TestWithout(t *testing.T) {
	const floats, handles = dtpb.DataType_DT_FLOAT, dtpb.DataType_DT_RESOURCE
	made := func() (*Builder, *graphs.Function) {
		b := New(nil, nil)
		f := b.Function("f")
		x, v := f.Arg("x", floats), f.Arg("v", handles)
		typeT := Type("T", floats)
		shared := f.Node("Sqrt", "shared", []Ref{x}, typeT)
		waits := f.Node("NoOp", "waits", nil)
		f.Return("a", f.Node("Sqrt", "of_a", []Ref{shared, waits.After()}, typeT), floats)
		middle := f.Node("Sqrt", "of_b_and_effect", []Ref{shared}, typeT)
		only := f.Node("Reciprocal", "of_b", []Ref{middle}, typeT)
		f.Node("Sqrt", "of_nothing", []Ref{x}, typeT)
		f.Return("b", only, floats)
		f.Return("c", only, floats)
		f.Effect(f.Node("AssignAddVariableOp", "effect", []Ref{v, middle}, Type("dtype", floats)))
		name, err := f.End()
		if err != nil {
			t.Fatal(err)
		}
		return b, &graphs.Function{Name: "f", GraphName: name, Outputs: []graphs.Arg{{Name: "out/a"}, {Name: "out/b"}, {Name: "out/c"}}}
	}
	all := []string{"shared", "waits", "of_a", "of_b_and_effect", "of_b", "of_nothing", "effect"}
	for _, test := range []struct {
		drop, outputs, nodes []string
	}{
		{nil, []string{"a", "b", "c"}, all},
		{[]string{"out/b"}, []string{"a", "c"}, all},
		{[]string{"out/b", "out/c"}, []string{"a"}, []string{"shared", "waits", "of_a", "of_b_and_effect", "of_nothing", "effect"}},
		{[]string{"out/a", "out/c"}, []string{"b"}, []string{"shared", "of_b_and_effect", "of_b", "of_nothing", "effect"}},
	} {
		b, f := made()
		got := b.Without(f, func(output string) bool { return slices.Contains(test.drop, output) })
		var outputs, nodes []string
		def := b.def.GetLibrary().GetFunction()[0]
		for i, a := range def.GetSignature().GetOutputArg() {
			outputs = append(outputs, a.GetName())
			if def.GetRet()[a.GetName()] == "" || got.Outputs[i].Name != "out/"+a.GetName() {
				t.Errorf("output %d is %s and returns %q, expected %s", i, a.GetName(), def.GetRet()[a.GetName()], got.Outputs[i].Name)
			}
		}
		for _, n := range def.GetNodeDef() {
			nodes = append(nodes, n.GetName())
		}
		if !slices.Equal(outputs, test.outputs) || !slices.Equal(nodes, test.nodes) || len(f.Outputs) != 3 || len(def.GetRet()) != len(outputs) {
			t.Errorf("without %v: outputs %v and nodes %v; expected %v and %v", test.drop, outputs, nodes, test.outputs, test.nodes)
		}
	}
}
