package build_test

import (
	"fmt"
	"log"

	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs/build"
)

// A graph that doubles its input on a given device. Use tf.Graph.Import to load it.
func Example() {
	b := build.New(nil, nil)
	x := b.Placeholder("x", dtpb.DataType_DT_FLOAT, []int64{-1})
	b.OnDevice("/device:CPU:0")
	b.Node("Mul", "twice", []build.Ref{x, b.Float("two", 2)}, build.Type("T", dtpb.DataType_DT_FLOAT))

	def, err := b.Marshal()
	if err != nil {
		log.Fatal(err)
	}
	var graph gpb.GraphDef
	if err := proto.Unmarshal(def, &graph); err != nil {
		log.Fatal(err)
	}
	for _, n := range graph.GetNode() {
		fmt.Printf("%s %s %v on %q\n", n.GetOp(), n.GetName(), n.GetInput(), n.GetDevice())
	}
	// Output:
	// Placeholder x [] on ""
	// Const two [] on "/device:CPU:0"
	// Mul twice [x two] on "/device:CPU:0"
}
