package emulator

import (
	"fmt"
	"strings"

	avpb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	tpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	typespb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/tpu"
)

// Operations and attributes that are not passed on.
const (
	opConfigure   = "ConfigureDistributedTPU"
	opShutdown    = "ShutdownDistributedTPU"
	attrReplicate = "_tpu_replicate"
)

// rewrite changes a part of a graph in place to one that the server behind can run, and
// returns what is to be kept of it.
func rewrite(g *gpb.GraphDef, old *graph, l layout, topology, answer *tpu.Topology) (*graph, error) {
	part, err := lower(g, old, l, topology)
	switch {
	case isLimit(err):
		return nil, refuse(codes.Unimplemented, "%v: the emulator does not run this", err)
	case err != nil:
		return nil, refuse(codes.InvalidArgument, "%v", err)
	}
	for _, n := range g.GetNode() {
		if err := place(n, l); err != nil {
			return nil, err
		}
		if err := runAsIs(n); err != nil {
			return nil, err
		}
		switch n.GetOp() {
		case opConfigure:
			n.Op, n.Attr = "Const", constant(answer.Serialized())
		case opShutdown:
			n.Op, n.Attr = "NoOp", nil
		}
	}
	for _, f := range g.GetLibrary().GetFunction() {
		for _, n := range f.GetNodeDef() {
			if n.GetOp() == opConfigure || n.GetOp() == opShutdown {
				return nil, refuse(codes.Unimplemented, "%s in function %s; expected it in the graph itself", n.GetOp(), f.GetSignature().GetName())
			}
			if err := place(n, l); err != nil {
				return nil, err
			}
			if err := runAsIs(n); err != nil {
				return nil, err
			}
		}
	}
	return part, nil
}

// runAsIs turns off the optimizer of the graph of a function that a node calls. The server behind
// would run it for each function, which takes much of a short run.
func runAsIs(n *npb.NodeDef) error {
	attr, ok := n.GetAttr()["config_proto"]
	if !ok {
		return nil
	}
	var config cpb.ConfigProto
	if err := proto.Unmarshal(attr.GetS(), &config); err != nil {
		return refuse(codes.InvalidArgument, "node %s (%s): config_proto: %v", n.GetName(), n.GetOp(), err)
	}
	proto.Merge(&config, &cpb.ConfigProto{GraphOptions: &cpb.GraphOptions{RewriteOptions: &cpb.RewriterConfig{DisableMetaOptimizer: true}}})
	serialized, err := proto.MarshalOptions{Deterministic: true}.Marshal(&config)
	if err != nil {
		return refuse(codes.Internal, "node %s (%s): config_proto: %v", n.GetName(), n.GetOp(), err)
	}
	n.Attr["config_proto"] = &avpb.AttrValue{Value: &avpb.AttrValue_S{S: serialized}}
	return nil
}

// place gives a node its device of the server behind.
func place(n *npb.NodeDef, l layout) error {
	if _, ok := n.GetAttr()[attrReplicate]; ok {
		return refuse(codes.Unimplemented, "node %s (%s) of a function is part of a computation for TPUs; expected it in the graph itself", n.GetName(), n.GetOp())
	}
	if (n.GetOp() == opConfigure || n.GetOp() == opShutdown) && !strings.Contains(n.GetDevice(), "/device:"+typeSystem) {
		return refuse(codes.InvalidArgument, "%s is on device %q; expected /job:%s/device:%s:0", n.GetOp(), n.GetDevice(), l.job, typeSystem)
	}
	device, err := l.behind(n.GetDevice())
	if err != nil {
		return refuse(codes.InvalidArgument, "Cannot assign a device for operation %s: {{node %s}} was explicitly assigned to %s but available devices are [ %s ]. "+
			"Make sure the device specification refers to a valid device (%v)", n.GetName(), n.GetName(), n.GetDevice(), l.devices(), err)
	}
	n.Device = device
	return nil
}

// constant has the attributes of a Const that is a string.
func constant(value []byte) map[string]*avpb.AttrValue {
	return map[string]*avpb.AttrValue{
		"dtype": typeAttr(typespb.DataType_DT_STRING),
		"value": {Value: &avpb.AttrValue_Tensor{Tensor: &tpb.TensorProto{
			Dtype: typespb.DataType_DT_STRING, TensorShape: &tspb.TensorShapeProto{}, StringVal: [][]byte{value}}}},
	}
}

// refuse is an answer to the client that says who gives it.
func refuse(code codes.Code, format string, args ...any) error {
	return status.Error(code, "gorbit tpu-emulator (no TPU): "+fmt.Sprintf(format, args...))
}
