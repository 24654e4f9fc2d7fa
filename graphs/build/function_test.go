package build

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

const registry = `
import json
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session as c
ops = op_def_pb2.OpList()
ops.ParseFromString(c.TF_GetBuffer(c.TF_GetAllOpList()))
print(json.dumps({op.name: [a.name for a in op.output_arg] for op in ops.op}))
`

// TestOutputNames holds the names of outputs against TensorFlow's definitions.
func TestOutputNames(t *testing.T) {
	var registered map[string][]string
	if err := json.Unmarshal([]byte(testkit.RunPython(t, registry)), &registered); err != nil {
		t.Fatal(err)
	}
	for op, names := range outputNames {
		if !slices.Equal(registered[op], names) {
			t.Errorf("%s has outputs %v, in TensorFlow %v", op, names, registered[op])
		}
	}
}

// TestFunctions runs a loop whose steps each add to a variable, but for those of odd numbers.
func TestFunctions(t *testing.T) {
	const int32Type, resourceType, boolType = dtpb.DataType_DT_INT32, dtpb.DataType_DT_RESOURCE, dtpb.DataType_DT_BOOL
	b := New(nil, nil)
	typeT := Type("T", int32Type)
	end := func(f *Function) string {
		t.Helper()
		name, err := f.End()
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	v := b.Variable("v", int32Type, nil)
	init := b.Assign("init", v, b.Int32("zero", 0), int32Type)

	add, keep := b.Function("add"), b.Function("keep")
	handle := add.Arg("v", resourceType)
	add.Effect(add.Node("AssignAddVariableOp", "v", []Ref{handle, add.Arg("by", int32Type)}, Type("dtype", int32Type)))
	keep.Arg("v", resourceType)
	keep.Arg("by", int32Type)
	then, otherwise := end(add), end(keep)

	more, body := b.Function("more"), b.Function("body")
	var k, n Ref // of the same names in both
	for _, f := range []*Function{more, body} {
		k, n, handle = f.Arg("k", int32Type), f.Arg("n", int32Type), f.Arg("v", resourceType)
	}
	more.Return("more", more.Node("Less", "less", []Ref{k, n}, typeT), boolType)
	parts := body.Node("Unpack", "parts", []Ref{body.Int32s("pair", []int32{1, 2})}, typeT, Int("num", 2), Int("axis", 0))
	odd := body.Node("FloorMod", "odd", []Ref{k, parts.Output(1)}, typeT)
	outputNames["FloorMod"] = []string{"z"}
	defer delete(outputNames, "FloorMod")
	even := body.Node("Less", "even", []Ref{odd, parts}, typeT)
	branch := body.Branch("branch", even, then, otherwise, []Ref{handle, k}, []dtpb.DataType{resourceType, int32Type}, nil)
	body.Effect(branch)
	body.Return("next", body.Node("AddV2", "k", []Ref{k, parts, branch.After()}, typeT), int32Type)
	body.Return("n_out", n, int32Type)
	body.Return("v_out", handle, resourceType)
	loop := b.Loop("loop", end(more), end(body), []Ref{b.Int32("k", 0), b.Placeholder("n", int32Type, nil), v},
		[]dtpb.DataType{int32Type, int32Type, resourceType}, [][]int64{nil, nil, nil})
	read := b.Read("read", v, int32Type, loop)

	def, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	g := tf.NewGraph()
	if err := g.Import(def, ""); err != nil {
		t.Fatal(err)
	}
	s, err := tf.NewSession(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Run(nil, nil, []*tf.Operation{g.Operation(init.Node)}); err != nil {
		t.Fatal(err)
	}
	seven, err := tf.NewTensor(int32(7))
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Run(map[tf.Output]*tf.Tensor{g.Operation("n").Output(0): seven}, []tf.Output{g.Operation(loop.Node).Output(0), g.Operation(read.Node).Output(0)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if out[0].Value() != int32(7) || out[1].Value() != int32(2+4+6) {
		t.Errorf("%v steps make %v, want 7 and 12", out[0].Value(), out[1].Value())
	}
}

func TestDeclare(t *testing.T) {
	b := New(nil, nil)
	b.Declare("Ours", "first", "second")
	f := b.Function("f")
	f.Return("x", f.Node("Ours", "n", nil).Output(1), dtpb.DataType_DT_INT32)
	if _, err := f.End(); err != nil {
		t.Fatal(err)
	}
	if got := f.library.GetFunction()[0].GetRet()["x"]; got != "n:second:0" {
		t.Errorf("the output is %s, want n:second:0", got)
	}
}

func TestFunctionErrors(t *testing.T) {
	const int32Type = dtpb.DataType_DT_INT32
	for want, make := range map[string]func(*Function){
		`argument or output is named "V"; expected a name of a-z, 0-9 and _`: func(f *Function) { f.Arg("V", int32Type) },
		`argument or output is named "1"`:                                    func(f *Function) { f.Return("1", f.Int32("one", 1), int32Type) },
		"output x: node y not found":                                         func(f *Function) { f.Return("x", Ref{Node: "y"}, int32Type) },
		"node z: node y not found":                                           func(f *Function) { f.Group("z", Ref{Node: "y"}) },
		"names of the outputs of operation FloorMod are not known; add them to outputNames, or Declare them": func(f *Function) { f.Return("x", f.Node("FloorMod", "s", nil), int32Type) },
		"operation Switch has 2 outputs": func(f *Function) { f.Return("x", f.Node("Switch", "s", nil).Output(2), int32Type) },
	} {
		f := New(nil, nil).Function("f")
		make(f)
		if _, err := f.End(); err == nil || !strings.Contains(err.Error(), "function f: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
