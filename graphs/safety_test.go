package graphs

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

var update = flag.Bool("update", false, "write safe_ops.txt from TensorFlow's registry; read the difference before you commit it")

const registry = `
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session as c
ops = op_def_pb2.OpList()
ops.ParseFromString(c.TF_GetBuffer(c.TF_GetAllOpList()))
print("\n".join(sorted(op.name for op in ops.op)))
`

// TestEveryOpIsClassified holds the lists against all operations that TensorFlow
// registers: each is either named as unsafe, or listed as safe, or internal.
func TestEveryOpIsClassified(t *testing.T) {
	registered := strings.Fields(testkit.RunPython(t, registry))
	if len(registered) < 1000 {
		t.Fatalf("%d operations registered", len(registered))
	}
	var named []string
	for _, ops := range unsafeOps {
		named = append(named, ops...)
	}
	for op := range unsafeAttrs {
		named = append(named, op)
	}
	slices.Sort(named)
	for i, op := range named {
		if i > 0 && named[i-1] == op {
			t.Errorf("%s is named twice", op)
		}
		if !slices.Contains(registered, op) {
			t.Errorf("%s is no operation of TensorFlow", op)
		}
	}
	var safe []string
	for _, op := range registered {
		if !slices.Contains(named, op) && !strings.HasPrefix(op, "_") {
			safe = append(safe, op)
		}
	}
	want := strings.Join(safe, "\n") + "\n"
	if *update {
		if err := os.WriteFile("safe_ops.txt", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	listed := strings.Fields(safeOpsText)
	for _, op := range safe {
		if !slices.Contains(listed, op) {
			t.Errorf("%s is in no list: what can it do? If nothing, run go test -run %s -update", op, t.Name())
		}
	}
	for _, op := range listed {
		if !slices.Contains(safe, op) {
			t.Errorf("%s is listed as safe, but is not registered or is named as unsafe", op)
		}
	}
}

func TestRealExportIsSafe(t *testing.T) {
	e, err := Open(exported(t))
	if err != nil {
		t.Fatal(err)
	}
	if e.serving == nil {
		t.Fatal("no serving model was looked at")
	}
	if uses := e.Unsafe(); len(uses) > 0 {
		t.Errorf("unsafe: %v", uses)
	}
	if err := e.RefuseUnsafe(nil); err != nil {
		t.Error(err)
	}
}

// TestUnsafe puts operations into the miniature where they might hide.
func TestUnsafe(t *testing.T) {
	list := func(name string) Attr {
		return Attr{"branches", &apb.AttrValue{Value: &apb.AttrValue_List{List: &apb.AttrValue_ListValue{Func: []*apb.NameAttrList{{Name: "harmless"}, {Name: name}}}}}}
	}
	nested := func(name string) Attr {
		return Attr{"f", &apb.AttrValue{Value: &apb.AttrValue_Func{Func: &apb.NameAttrList{Name: "__inference_loss_7",
			Attr: map[string]*apb.AttrValue{"g": function("", name).Value}}}}}
	}
	for _, test := range []struct {
		name string
		// where is the function that the nodes are added to.
		where string
		nodes []*npb.NodeDef
		want  string
	}{
		{"safe", "predict", []*npb.NodeDef{node("MatMul"), node("Assert"), node("StatelessWhile")}, ""},
		{"in a function", "predict", []*npb.NodeDef{node("ReadFile")}, "predict ReadFile"},
		{"in a function of several", "loss_7", []*npb.NodeDef{node("PyFunc"), node("PyFunc")}, "gradients PyFunc, evaluate PyFunc"},
		{"in train_step, which no strategy composes", "train_step", []*npb.NodeDef{node("ReadFile")}, ""},
		{"of a list", "update", []*npb.NodeDef{node("Case", list("hidden"))}, "update WriteFile"},
		{"of an attribute's attributes", "update", []*npb.NodeDef{node("If", nested("hidden"))}, "update WriteFile"},
		{"called by name", "update", []*npb.NodeDef{node("hidden")}, "update WriteFile"},
		{"called by nobody", "hidden", []*npb.NodeDef{node("Abort")}, ""},
		{"as a gradient", "loss_7", []*npb.NodeDef{node("differentiated")}, "gradients SaveV2, evaluate SaveV2"},
		{"restoring", "gradients", []*npb.NodeDef{node("RestoreV2")}, "gradients RestoreV2"},
		{"unknown", "predict", []*npb.NodeDef{node("Exfiltrate")}, "predict Exfiltrate"},
		{"internal", "predict", []*npb.NodeDef{node("_Send")}, "predict _Send"},
		{"without a name", "predict", []*npb.NodeDef{node("")}, "predict "},
		{"print to a stream", "predict", []*npb.NodeDef{node("PrintV2", String("output_stream", "stderr"))}, ""},
		{"print to a file", "predict", []*npb.NodeDef{node("PrintV2", String("output_stream", "file:///etc/cron.d/x"))}, "predict PrintV2"},
		{"vocabulary in memory", "predict", []*npb.NodeDef{node("FixedUnigramCandidateSampler", String("vocab_file", ""))}, ""},
		{"vocabulary in a file", "predict", []*npb.NodeDef{node("FixedUnigramCandidateSampler", String("vocab_file", "/etc/passwd"))}, "predict FixedUnigramCandidateSampler"},
		{"known descriptor", "predict", []*npb.NodeDef{node("DecodeProtoV2", String("descriptor_source", "local://"))}, ""},
		{"descriptor in a file", "predict", []*npb.NodeDef{node("DecodeProtoV2", String("descriptor_source", "/etc/passwd"))}, "predict DecodeProtoV2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			contract, model := miniature(t)
			lib := model.GetMetaGraphs()[0].GetGraphDef().GetLibrary()
			b := modelBuilder{functions: lib.Function}
			b.functionDef("harmless", nil, nil, 0, node("Add"))
			b.functionDef("hidden", nil, nil, 0, node("WriteFile"))
			b.functionDef("differentiated", nil, nil, 0)
			b.functionDef("its_gradient", nil, nil, 0, node("SaveV2"))
			lib.Function = b.functions
			lib.Gradient = []*fpb.GradientDef{{FunctionName: "differentiated", GradientFunc: "its_gradient"}}
			added := false
			for _, f := range lib.Function {
				if name := f.GetSignature().GetName(); name == test.where || name == "__inference_"+test.where || name == "__inference_"+test.where+"_1" {
					f.NodeDef = append(f.NodeDef, test.nodes...)
					added = true
				}
			}
			if !added {
				t.Fatalf("no function %s", test.where)
			}
			e, err := Open(writeExport(t, contract, model))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, use := range e.Unsafe() {
				got = append(got, use.Function+" "+use.Op)
				if use.Reason == "" {
					t.Errorf("%s without a reason", use.Op)
				}
			}
			if s := strings.Join(got, ", "); s != test.want {
				t.Errorf("got %q, want %q", s, test.want)
			}
			var refused *UnsafeOpError
			if err := e.RefuseUnsafe(nil); errors.As(err, &refused) != (test.want != "") {
				t.Errorf("RefuseUnsafe: %v", err)
			}
			// What is called must come along, or TensorFlow refuses the graph.
			if len(e.Library("gradients").GetGradient()) > 0 && !slices.ContainsFunc(e.Library("gradients").GetFunction(),
				func(f *fpb.FunctionDef) bool { return f.GetSignature().GetName() == "its_gradient" }) {
				t.Error("a gradient is named whose function is left out")
			}
		})
	}
}

func TestRefuseUnsafe(t *testing.T) {
	contract, model := miniature(t)
	for _, f := range model.GetMetaGraphs()[0].GetGraphDef().GetLibrary().GetFunction() {
		if f.GetSignature().GetName() == "__inference_predict_1" {
			f.NodeDef = append(f.NodeDef, node("WriteFile"), node("PyFunc"), node("ReadFile"))
		}
	}
	dir := writeExport(t, contract, model)
	e, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		allow []string
		want  string
	}{
		{nil, "graph DIR is refused: function predict uses PyFunc, which calls Python (and 2 more operations of the kind); if you trust it, allow PyFunc,ReadFile,WriteFile"},
		{[]string{"PyFunc", "ReadFile", "Other"}, "graph DIR is refused: function predict uses WriteFile, which writes files; if you trust it, allow WriteFile"},
		{[]string{"WriteFile", "PyFunc", "ReadFile"}, ""},
		{[]string{"*", "writefile", ""}, "graph DIR is refused: function predict uses PyFunc, which calls Python (and 2 more operations of the kind); if you trust it, allow PyFunc,ReadFile,WriteFile"},
	} {
		got := ""
		if err := e.RefuseUnsafe(test.allow); err != nil {
			got = strings.ReplaceAll(err.Error(), dir, "DIR")
		}
		if got != test.want {
			t.Errorf("allowed %v: got %s\nwant %s", test.allow, got, test.want)
		}
	}
}

// TestUnsafeServing changes the graph that serves the trained model.
func TestUnsafeServing(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(g *gpb.GraphDef)
		want   string
	}{
		{"as TensorFlow writes it", func(*gpb.GraphDef) {}, ""},
		{"in the signature", func(g *gpb.GraphDef) {
			g.Library.Function[0].NodeDef = append(g.Library.Function[0].NodeDef, node("ReadFile"))
		}, "serving ReadFile"},
		{"in the main graph", func(g *gpb.GraphDef) { g.Node = append(g.Node, node("PyFunc")) }, "serving PyFunc"},
		{"in the saver, beyond saving", func(g *gpb.GraphDef) {
			g.Library.Function[1].NodeDef = append(g.Library.Function[1].NodeDef, node("WriteFile"))
		}, "serving WriteFile"},
		{"saving in the signature", func(g *gpb.GraphDef) {
			g.Library.Function[0].NodeDef = append(g.Library.Function[0].NodeDef, node("SaveV2"))
		}, "serving SaveV2"},
		{"the saver called by the signature", func(g *gpb.GraphDef) {
			g.Library.Function[0].NodeDef = append(g.Library.Function[0].NodeDef, node("PartitionedCall", function("f", "save")))
		}, "serving MergeV2Checkpoints, serving SaveV2"},
		{"called by nobody", func(g *gpb.GraphDef) {
			b := modelBuilder{functions: g.Library.Function}
			b.functionDef("lost", nil, nil, 0, node("WriteFile"))
			g.Library.Function = b.functions
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var b modelBuilder
			b.functionDef("serve", nil, nil, 0, node("MatMul"))
			b.functionDef("save", nil, nil, 0, node("ShardedFilename"), node("SaveV2"), node("MergeV2Checkpoints"))
			b.functionDef("restore", nil, nil, 0, node("RestoreV2"), node("AssignVariableOp"))
			serving := b.model()
			g := serving.GetMetaGraphs()[0].GetGraphDef()
			call := func(name, f string) *npb.NodeDef {
				n := node("StatefulPartitionedCall", function("f", f))
				n.Name = name
				return n
			}
			g.Node = []*npb.NodeDef{node("Placeholder"), call("serving_default", "serve"), call("saving", "save"), call("restoring", "restore")}
			serving.MetaGraphs[0].SaverDef = &spb.SaverDef{SaveTensorName: "saving:0", RestoreOpName: "restoring"}
			test.change(g)

			contract, model := miniature(t)
			dir := writeExport(t, contract, model)
			data, err := proto.Marshal(serving)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, ServingFolder, modelFile), data)
			e, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, use := range e.Unsafe() {
				got = append(got, use.Function+" "+use.Op)
			}
			if s := strings.Join(got, ", "); s != test.want {
				t.Errorf("got %q, want %q", s, test.want)
			}
		})
	}
}
