package graphs

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"

	"github.com/gorbit-ml/gorbit/graphs/safety"
)

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
		{"print to a stream", "predict", []*npb.NodeDef{node("PrintV2", text("output_stream", "stderr"))}, ""},
		{"print to what the caller says", "predict", []*npb.NodeDef{node("PrintV2", Attr{"output_stream", &apb.AttrValue{Value: &apb.AttrValue_Placeholder{Placeholder: "to"}}})}, "predict PrintV2"},
		{"print to a file", "predict", []*npb.NodeDef{node("PrintV2", text("output_stream", "file:///etc/cron.d/x"))}, "predict PrintV2"},
		{"vocabulary in memory", "predict", []*npb.NodeDef{node("FixedUnigramCandidateSampler", text("vocab_file", ""))}, ""},
		{"vocabulary in a file", "predict", []*npb.NodeDef{node("FixedUnigramCandidateSampler", text("vocab_file", "/etc/passwd"))}, "predict FixedUnigramCandidateSampler"},
		{"known descriptor", "predict", []*npb.NodeDef{node("DecodeProtoV2", text("descriptor_source", "local://"))}, ""},
		{"descriptor in a file", "predict", []*npb.NodeDef{node("DecodeProtoV2", text("descriptor_source", "/etc/passwd"))}, "predict DecodeProtoV2"},
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
			var refused *safety.Error
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
		{nil, "graph DIR is refused: function predict uses PyFunc, which calls Python (and 2 more such operations); if you trust it, add --allow-op PyFunc,ReadFile,WriteFile"},
		{[]string{"PyFunc", "ReadFile", "Other"}, "graph DIR is refused: function predict uses WriteFile, which writes files; if you trust it, add --allow-op WriteFile"},
		{[]string{"WriteFile", "PyFunc", "ReadFile"}, ""},
		{[]string{"*", "writefile", ""}, "graph DIR is refused: function predict uses PyFunc, which calls Python (and 2 more such operations); if you trust it, add --allow-op PyFunc,ReadFile,WriteFile"},
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
