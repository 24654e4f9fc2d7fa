package graphs

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"
)

// TestDescribe describes a model of TensorFlow 1 with two graphs, one of which reads a file, and an
// export as a plain SavedModel.
func TestDescribe(t *testing.T) {
	variable := &npb.NodeDef{Name: "w", Op: "VariableV2", Attr: map[string]*apb.AttrValue{
		"dtype": {Value: &apb.AttrValue_Type{Type: dtpb.DataType_DT_FLOAT}},
		"shape": {Value: &apb.AttrValue_Shape{Shape: shapeProto([]int64{3, 4})}},
	}}
	model := &spb.SavedModel{MetaGraphs: []*spb.MetaGraphDef{
		{
			MetaInfoDef: &spb.MetaGraphDef_MetaInfoDef{TensorflowVersion: "1.15.0", Tags: []string{"serve"}},
			GraphDef:    &gpb.GraphDef{Node: []*npb.NodeDef{variable, node("MatMul"), node("ReadFile"), node("MatMul")}},
			SignatureDef: map[string]*spb.SignatureDef{"predict": {
				Inputs:  map[string]*spb.TensorInfo{"x": {Dtype: dtpb.DataType_DT_FLOAT, TensorShape: shapeProto([]int64{-1, 3})}},
				Outputs: map[string]*spb.TensorInfo{"y": {Dtype: dtpb.DataType_DT_STRING}},
			}},
		},
		{MetaInfoDef: &spb.MetaGraphDef_MetaInfoDef{TensorflowVersion: "1.15.0", Tags: []string{"serve", "tpu"}}},
	}}
	data, err := proto.Marshal(model)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, modelFile), data, 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.TensorFlow != "1.15.0" || len(r.Graphs) != 2 || len(r.Unsafe) != 1 || r.Unsafe[0].Op != "ReadFile" {
		t.Errorf("the report is %+v", r)
	}
	g := r.Graphs[0]
	if want := []StoredValue{{"w", "float32", []int64{3, 4}, 48}}; !reflect.DeepEqual(g.Variables, want) {
		t.Errorf("the variables are %+v; expected %+v", g.Variables, want)
	}
	if want := []OpCount{{"MatMul", 2}, {"ReadFile", 1}, {"VariableV2", 1}}; !reflect.DeepEqual(g.Ops, want) {
		t.Errorf("the operations are %+v; expected %+v", g.Ops, want)
	}
	if want := []SignatureReport{{"predict", "", []ArgReport{{"x", "float32", []int64{-1, 3}}}, []ArgReport{{"y", "string", []int64{}}}}}; !reflect.DeepEqual(g.Signatures, want) {
		t.Errorf("the signatures are %+v; expected %+v", g.Signatures, want)
	}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"signature predict\n  in   x  float32  [?,3]\n", "  w  float32  [3,4]  48 B\n", "operations that reach beyond the graph\n  ReadFile"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &text)
		}
	}

	miniature := t.TempDir()
	if err := Miniature(miniature); err != nil {
		t.Fatal(err)
	}
	if r, err = Describe(miniature); err != nil || len(r.Graphs) != 1 || len(r.Graphs[0].Variables) == 0 || strings.Contains(r.Graphs[0].Variables[0].Name, "node") {
		t.Errorf("the export is %+v, %v", r, err)
	}
	for name, content := range map[string]string{"no graphs": "", "no message": "\xff\xff"} {
		bad := t.TempDir()
		if err := os.WriteFile(filepath.Join(bad, modelFile), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Describe(bad); err == nil || !strings.Contains(err.Error(), "not a SavedModel") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
