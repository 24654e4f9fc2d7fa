package safety

import (
	"strings"
	"testing"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
)

// node returns an operation named as the lower case of its kind.
func node(op string, inputs ...string) *npb.NodeDef {
	return &npb.NodeDef{Name: strings.ToLower(op), Op: op, Input: inputs, Attr: make(map[string]*apb.AttrValue)}
}

// call returns a call of a function.
func call(name, function string, inputs ...string) *npb.NodeDef {
	n := node("StatefulPartitionedCall", inputs...)
	n.Name = name
	n.Attr["f"] = &apb.AttrValue{Value: &apb.AttrValue_Func{Func: &apb.NameAttrList{Name: function}}}
	return n
}

func with(n *npb.NodeDef, attr string, value *apb.AttrValue) *npb.NodeDef {
	n.Attr[attr] = value
	return n
}

func text(s string) *apb.AttrValue { return &apb.AttrValue{Value: &apb.AttrValue_S{S: []byte(s)}} }

func function(name string, nodes ...*npb.NodeDef) *fpb.FunctionDef {
	return &fpb.FunctionDef{
		Signature: &opb.OpDef{Name: name, InputArg: []*opb.OpDef_ArgDef{{Name: "file_prefix"}}},
		NodeDef:   nodes,
	}
}

// served is a model as tf.saved_model.save lays it out.
func served() *spb.MetaGraphDef {
	return &spb.MetaGraphDef{
		GraphDef: &gpb.GraphDef{
			Node: []*npb.NodeDef{
				node("Placeholder"),
				{Name: "filename", Op: "Placeholder"},
				call("serving_default", "serve", "placeholder"),
				call("saving", "save", "filename"),
				call("restoring", "restore", "filename"),
				node("NoOp"),
			},
			Library: &fpb.FunctionDefLibrary{Function: []*fpb.FunctionDef{
				function("serve", node("MatMul")),
				function("save", node("ShardedFilename"), node("SaveV2"), node("MergeV2Checkpoints")),
				function("restore", node("RestoreV2", "file_prefix", "names"), node("AssignVariableOp")),
			}},
		},
		SaverDef: &spb.SaverDef{FilenameTensorName: "filename:0", SaveTensorName: "saving:0", RestoreOpName: "restoring"},
		SignatureDef: map[string]*spb.SignatureDef{
			"serving_default":       {Outputs: map[string]*spb.TensorInfo{"logits": {Encoding: &spb.TensorInfo_Name{Name: "serving_default:0"}}}},
			"__saved_model_init_op": {Outputs: map[string]*spb.TensorInfo{"__saved_model_init_op": {Encoding: &spb.TensorInfo_Name{Name: "noop"}}}},
		},
		CollectionDef: map[string]*spb.CollectionDef{
			"saved_model_main_op": {Kind: &spb.CollectionDef_NodeList_{NodeList: &spb.CollectionDef_NodeList{Value: []string{"noop"}}}},
		},
	}
}

// TestCheck changes a model in one place.
func TestCheck(t *testing.T) {
	body := func(m *spb.MetaGraphDef, i int, nodes ...*npb.NodeDef) {
		f := m.GraphDef.Library.Function[i]
		f.NodeDef = append(f.NodeDef, nodes...)
	}
	add := func(m *spb.MetaGraphDef, fs ...*fpb.FunctionDef) {
		m.GraphDef.Library.Function = append(m.GraphDef.Library.Function, fs...)
	}
	main := func(m *spb.MetaGraphDef, nodes ...*npb.NodeDef) { m.GraphDef.Node = append(m.GraphDef.Node, nodes...) }
	const serve, save, restore = 0, 1, 2
	for _, test := range []struct {
		name   string
		change func(m *spb.MetaGraphDef)
		run    []string
		want   string
	}{
		{"as TensorFlow writes it", func(*spb.MetaGraphDef) {}, []string{"serving_default:0"}, ""},
		{"in the signature", func(m *spb.MetaGraphDef) { body(m, serve, node("ReadFile")) }, nil, "ReadFile"},
		{"in the main graph", func(m *spb.MetaGraphDef) { main(m, node("PyFunc")) }, nil, "PyFunc"},
		{"called by nobody", func(m *spb.MetaGraphDef) { add(m, function("lost", node("WriteFile"))) }, nil, "WriteFile"},
		{"a call by name", func(m *spb.MetaGraphDef) { body(m, serve, node("other")); add(m, function("other", node("Add"))) }, nil, ""},
		{"a function named as an operation", func(m *spb.MetaGraphDef) {
			body(m, serve, node("WriteFile"))
			add(m, function("WriteFile", node("Add")))
		}, nil, "WriteFile"},
		{"two functions of a name", func(m *spb.MetaGraphDef) {
			add(m, function("other", node("WriteFile")), function("other", node("Add")))
		}, nil, "WriteFile"},
		{"print to what the caller says", func(m *spb.MetaGraphDef) {
			body(m, serve, with(node("PrintV2"), "output_stream", &apb.AttrValue{Value: &apb.AttrValue_Placeholder{Placeholder: "to"}}))
		}, nil, "PrintV2"},
		{"print to a stream", func(m *spb.MetaGraphDef) { body(m, serve, with(node("PrintV2"), "output_stream", text("stderr"))) }, nil, ""},

		{"saving in the signature", func(m *spb.MetaGraphDef) { body(m, serve, node("SaveV2")) }, nil, "SaveV2"},
		{"the saver writes more", func(m *spb.MetaGraphDef) { body(m, save, node("WriteFile")) }, nil, "WriteFile"},
		{"the signature calls the saver", func(m *spb.MetaGraphDef) { body(m, serve, call("again", "save")) }, nil, "MergeV2Checkpoints, SaveV2"},
		{"the signature takes the saver's result", func(m *spb.MetaGraphDef) { main(m, node("Identity", "saving:0")) }, nil, "MergeV2Checkpoints, SaveV2"},
		{"the main op waits for the saver", func(m *spb.MetaGraphDef) { m.GraphDef.Node[5].Input = []string{"^saving"} }, nil, "MergeV2Checkpoints, SaveV2"},
		{"the main op is the saver", func(m *spb.MetaGraphDef) {
			m.CollectionDef["saved_model_main_op"].GetNodeList().Value = []string{"saving"}
		}, nil, "MergeV2Checkpoints, SaveV2"},
		{"the init op is the saver", func(m *spb.MetaGraphDef) {
			m.SignatureDef["__saved_model_init_op"].Outputs["__saved_model_init_op"].Encoding = &spb.TensorInfo_Name{Name: "saving"}
		}, nil, "MergeV2Checkpoints, SaveV2"},
		{"the caller runs the saver", func(*spb.MetaGraphDef) {}, []string{"saving:0"}, "MergeV2Checkpoints, SaveV2"},
		{"the saver restores", func(m *spb.MetaGraphDef) { m.SaverDef.RestoreOpName = "saving" }, nil, "MergeV2Checkpoints, RestoreV2, SaveV2"},
		{"the saver implements what is called", func(m *spb.MetaGraphDef) {
			m.GraphDef.Library.Function[save].Attr = map[string]*apb.AttrValue{"api_implements": text("serve")}
		}, nil, "MergeV2Checkpoints, SaveV2"},
		{"the saver is the gradient of what is called", func(m *spb.MetaGraphDef) {
			m.GraphDef.Library.Gradient = []*fpb.GradientDef{{FunctionName: "serve", GradientFunc: "save"}}
		}, nil, "MergeV2Checkpoints, SaveV2"},
		{"a function called by nobody calls the saver", func(m *spb.MetaGraphDef) { add(m, function("lost", call("again", "save"))) }, nil, "MergeV2Checkpoints, SaveV2"},

		{"restores another file", func(m *spb.MetaGraphDef) { body(m, restore, node("RestoreV2", "elsewhere", "names")) }, nil, "RestoreV2"},
		{"restores what the node says", func(m *spb.MetaGraphDef) { m.GraphDef.Node[4].Input[0] = "elsewhere" }, nil, "RestoreV2"},
		{"restores what another output says", func(m *spb.MetaGraphDef) { m.GraphDef.Node[4].Input[0] = "filename:1" }, nil, "RestoreV2"},
		{"restores and saves", func(m *spb.MetaGraphDef) { body(m, restore, node("SaveV2")) }, nil, "SaveV2"},
		{"the signature restores", func(m *spb.MetaGraphDef) { body(m, serve, call("again", "restore")) }, nil, "RestoreV2"},
		{"restoring calls itself with another name", func(m *spb.MetaGraphDef) { body(m, restore, call("again", "restore", "elsewhere")) }, nil, "RestoreV2"},
		{"restoring by a loop", func(m *spb.MetaGraphDef) { m.GraphDef.Node[4].Op = "If" }, nil, "RestoreV2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := served()
			test.change(m)
			var got []string
			for _, use := range Check(&spb.SavedModel{MetaGraphs: []*spb.MetaGraphDef{m}}, test.run...) {
				got = append(got, use.Op)
				if use.Function != Serving || use.Reason == "" {
					t.Errorf("%+v", use)
				}
			}
			if s := strings.Join(got, ", "); s != test.want {
				t.Errorf("got %q, want %q", s, test.want)
			}
		})
	}
	if uses := Check(new(spb.SavedModel)); uses != nil {
		t.Errorf("an empty model: %v", uses)
	}
}
