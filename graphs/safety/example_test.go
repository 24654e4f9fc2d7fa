package safety_test

import (
	"fmt"

	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	spb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"

	"github.com/gorbit-ml/gorbit/graphs/safety"
)

// A SavedModel is checked before TensorFlow loads it. It is rejected if it uses unsafe operations
// that the user does not allow by name.
func Example() {
	model := &spb.SavedModel{MetaGraphs: []*spb.MetaGraphDef{{GraphDef: &gpb.GraphDef{
		Node: []*npb.NodeDef{{Name: "a", Op: "MatMul"}, {Name: "b", Op: "WriteFile"}}}}}}

	uses := safety.Check(model)
	fmt.Println(safety.Refuse("model", "served/1", uses, nil))
	fmt.Println(safety.Refuse("model", "served/1", uses, []string{"WriteFile"}))
	// Output:
	// model served/1 is refused: function serving uses WriteFile, which writes files; if you trust it, add --allow-op WriteFile
	// <nil>
}
