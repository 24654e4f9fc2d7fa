package build

import (
	"testing"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
)

// TestWritesWait looks at functions that change a variable and a slot, some before the rate is known.
func TestWritesWait(t *testing.T) {
	variable, slot, gradient, rate := Ref{Node: "variable"}, Ref{Node: "slot"}, Ref{Node: "gradient"}, Ref{Node: "rate"}
	const float, resource = dtpb.DataType_DT_FLOAT, dtpb.DataType_DT_RESOURCE
	for _, test := range []struct {
		name string
		body func(f *Function)
		want bool
	}{
		{"nothing", func(*Function) {}, true},
		{"a read", func(f *Function) { f.Read("r", slot, float) }, true},
		{"both by the rate", func(f *Function) {
			step := f.Node("Mul", "step", []Ref{gradient, rate}, Type("T", float))
			f.Effect(f.Node("AssignAddVariableOp", "a", []Ref{variable, step}, Type("dtype", float)))
			f.Effect(f.Node("AssignAddVariableOp", "b", []Ref{slot, step}, Type("dtype", float)))
		}, true},
		{"the slot by the gradient", func(f *Function) {
			f.Effect(f.Node("AssignAddVariableOp", "a", []Ref{variable, rate}, Type("dtype", float)))
			f.Effect(f.Node("AssignAddVariableOp", "b", []Ref{slot, gradient}, Type("dtype", float)))
		}, false},
		{"the slot after the variable", func(f *Function) {
			first := f.Node("AssignAddVariableOp", "a", []Ref{variable, rate}, Type("dtype", float))
			f.Effect(f.Node("AssignAddVariableOp", "b", []Ref{slot, gradient, first.After()}, Type("dtype", float)))
		}, true},
		{"a handle that is passed on", func(f *Function) {
			passed := f.Node("Identity", "i", []Ref{slot}, Type("T", resource))
			f.Effect(f.Node("AssignAddVariableOp", "b", []Ref{passed, gradient}, Type("dtype", float)))
		}, false},
	} {
		b := New(nil, nil)
		f := b.Function("update")
		of := &graphs.Function{GraphName: "update"}
		for _, a := range []graphs.Arg{{Name: "variable", DType: resource}, {Name: "slot", DType: resource}, {Name: "gradient", DType: float}, {Name: "rate", DType: float}} {
			f.Arg(a.Name, a.DType)
			of.Inputs = append(of.Inputs, a)
		}
		test.body(f)
		if _, err := f.End(); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if got := b.WritesWait(of, "rate"); got != test.want {
			t.Errorf("%s: got %v", test.name, got)
		}
		if b.WritesWait(of, "decay") || b.WritesWait(&graphs.Function{GraphName: "other"}, "rate") {
			t.Errorf("%s: it waits for what it does not take", test.name)
		}
	}
}
