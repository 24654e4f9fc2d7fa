package build

import (
	"slices"
	"testing"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
)

// TestShare takes from an update what does not depend on its variable, gradient or rate.
func TestShare(t *testing.T) {
	const floats, ints, handles = dtpb.DataType_DT_FLOAT, dtpb.DataType_DT_INT64, dtpb.DataType_DT_RESOURCE
	b := New(nil, nil)
	f := b.Function("update")
	arguments := []graphs.Arg{{Name: "variable", DType: handles}, {Name: "iteration", DType: ints}, {Name: "rate", DType: floats}, {Name: "beta", DType: floats}}
	refs := make(map[string]Ref)
	for _, a := range arguments {
		refs[a.Name] = f.Arg(a.Name, a.DType)
	}
	typeT := Type("T", floats)
	one := f.Float("one", 1)
	count := f.Node("Cast", "count", []Ref{refs["iteration"]}, Type("SrcT", ints), Type("DstT", floats))
	power := f.Node("Pow", "power", []Ref{refs["beta"], count}, typeT)
	root := f.Node("Sqrt", "root", []Ref{power}, typeT)
	late := f.Node("Sqrt", "late", []Ref{power, f.Group("before").After()}, typeT)
	value := f.Read("value", refs["variable"], floats, root)
	step := f.Node("Mul", "step", []Ref{f.Node("Mul", "more", []Ref{refs["rate"], root}, typeT), f.Node("Mul", "once", []Ref{late, one}, typeT)}, typeT)
	f.Effect(f.Assign("set", refs["variable"], f.Node("AddV2", "sum", []Ref{value, step}, typeT), floats))
	name, err := f.End()
	if err != nil {
		t.Fatal(err)
	}
	whole := &graphs.Function{Name: "update", GraphName: name, Inputs: arguments}
	shared, rest := b.Share(whole, "iteration", "beta")

	nodes := func(f *graphs.Function) (out []string) {
		for _, def := range b.def.GetLibrary().GetFunction() {
			if def.GetSignature().GetName() == f.GraphName {
				for _, n := range def.GetNodeDef() {
					out = append(out, n.GetName())
					for _, in := range n.GetInput() {
						out = append(out, "  "+in)
					}
				}
			}
		}
		return out
	}
	if got, want := nodes(shared), []string{"one", "count", "  iteration", "power", "  beta", "  count:y:0", "root", "  power:z:0"}; !slices.Equal(got, want) {
		t.Errorf("shared has %q, expected %q", got, want)
	}
	want := []string{"one", "before", "late", "  shared_0", "  ^before", "value", "  variable", "more", "  rate", "  shared_1",
		"once", "  late:y:0", "  one:output:0", "step", "  more:z:0", "  once:z:0", "sum", "  value:value:0", "  step:z:0", "set", "  variable", "  sum:z:0"}
	if got := nodes(rest); !slices.Equal(got, want) {
		t.Errorf("the rest has %q, expected %q", got, want)
	}
	if len(shared.Inputs) != 2 || len(shared.Outputs) != 2 || len(rest.Inputs) != 6 || len(whole.Inputs) != 4 {
		t.Errorf("%d inputs and %d outputs are shared, and the rest has %d inputs", len(shared.Inputs), len(shared.Outputs), len(rest.Inputs))
	}
	if none, same := b.Share(whole, "learning_rate"); none != nil || same != whole {
		t.Error("something is shared of nothing")
	}
}
