package emulator

import (
	"os"
	"strings"
	"testing"

	avpb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	tspb "github.com/wamuir/graft/tensorflow/core/framework/tensor_shape_go_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// part reads a graph of testdata.
func part(t testing.TB, name string) *gpb.GraphDef {
	t.Helper()
	content, err := os.ReadFile("testdata/" + name + ".pb")
	if err != nil {
		t.Fatal(err)
	}
	g := new(gpb.GraphDef)
	if err := proto.Unmarshal(content, g); err != nil {
		t.Fatal(err)
	}
	return g
}

func nodeOf(t testing.TB, g *gpb.GraphDef, name string) *npb.NodeDef {
	t.Helper()
	for _, n := range g.GetNode() {
		if n.GetName() == name {
			return n
		}
	}
	t.Fatalf("no node %s", name)
	return nil
}

func addNodes(t testing.TB, g *gpb.GraphDef, text string) {
	t.Helper()
	var more gpb.GraphDef
	if err := prototext.Unmarshal([]byte(text), &more); err != nil {
		t.Fatal(err)
	}
	g.Node = append(g.Node, more.GetNode()...)
}

func intAttr(v int64) *avpb.AttrValue { return &avpb.AttrValue{Value: &avpb.AttrValue_I{I: v}} }

// attempt rewrites a graph for a TPU 2x2x1x2, and returns the error with which it is refused,
// then or when it is compiled.
func attempt(t testing.TB, g *gpb.GraphDef) error {
	t.Helper()
	topology, err := ParseTopology("2x2x1x2", 1)
	if err != nil {
		t.Fatal(err)
	}
	part, err := rewrite(g, &graph{nodes: make(map[string]*node)}, layout{job: "worker", hosts: 1, cores: 8}, topology, topology)
	if err != nil {
		return err
	}
	for _, c := range part.clusters {
		if c.broken != nil {
			return status.Error(codes.InvalidArgument, c.broken.Error())
		}
	}
	return nil
}

// TestRefuses changes a computation on two replicas in one way, so that a TPU refuses it, or the
// emulator does not run it. The words are TensorFlow's where it is TensorFlow that refuses.
func TestRefuses(t *testing.T) {
	const metadata = "TPUReplicateMetadata"
	attr := func(name string, value *avpb.AttrValue) func(*testing.T, *gpb.GraphDef) {
		return func(t *testing.T, g *gpb.GraphDef) { nodeOf(t, g, metadata).Attr[name] = value }
	}
	assignment := func(flat ...int64) func(*testing.T, *gpb.GraphDef) {
		return attr("device_assignment", &avpb.AttrValue{Value: &avpb.AttrValue_List{List: &avpb.AttrValue_ListValue{I: flat}}})
	}
	topology := func(mesh string, hosts int) func(*testing.T, *gpb.GraphDef) {
		top, err := ParseTopology(mesh, hosts)
		if err != nil {
			t.Fatal(err)
		}
		return attr("topology", &avpb.AttrValue{Value: &avpb.AttrValue_S{S: top.Serialized()}})
	}
	op := func(node, op string) func(*testing.T, *gpb.GraphDef) {
		return func(t *testing.T, g *gpb.GraphDef) { nodeOf(t, g, node).Op = op }
	}
	inputs := func(node string, inputs ...string) func(*testing.T, *gpb.GraphDef) {
		return func(t *testing.T, g *gpb.GraphDef) { nodeOf(t, g, node).Input = inputs }
	}
	nodes := func(text string) func(*testing.T, *gpb.GraphDef) {
		return func(t *testing.T, g *gpb.GraphDef) { addNodes(t, g, text) }
	}
	const inside = ` attr { key: "_tpu_replicate" value { s: "cluster" } } }`
	for name, c := range map[string]struct {
		change func(*testing.T, *gpb.GraphDef)
		code   codes.Code
		want   string
	}{
		"nothing": {func(*testing.T, *gpb.GraphDef) {}, codes.OK, ""},

		"no metadata":            {op(metadata, "NoOp"), codes.InvalidArgument, "Missing TPUReplicateMetadata node"},
		"metadata of no cluster": {attr("_tpu_replicate", nil), codes.InvalidArgument, `the attribute _tpu_replicate is ""`},
		"two metadata":           {nodes(`node { name: "m" op: "TPUReplicateMetadata" attr { key: "num_replicas" value { i: 1 } }` + inside), codes.Unimplemented, "the computation cluster is in the graph already"},
		"no replicas":            {attr("num_replicas", intAttr(0)), codes.InvalidArgument, "num_replicas must be >= 1, got 0"},
		"too many replicas":      {attr("num_replicas", intAttr(9)), codes.InvalidArgument, "Requested num_replicas=9 but there are only 8 cores in the TPU topology."},
		"more replicas than inputs": {func(t *testing.T, g *gpb.GraphDef) {
			attr("num_replicas", intAttr(3))(t, g)
			assignment(0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0)(t, g)
		}, codes.InvalidArgument, "Mismatched number of replicas. Computation has 3 replicas, input '{{node input0}}' has 2 replicas."},
		"fewer inputs":   {inputs("input0", "x0"), codes.InvalidArgument, "Computation has 2 replicas, input '{{node input0}}' has 1 replicas."},
		"two cores each": {attr("num_cores_per_replica", intAttr(2)), codes.Unimplemented, "2 cores per replica; expected 1"},

		"a short assignment": {assignment(0, 0, 0, 0), codes.InvalidArgument, "Length of device_assignment attribute must be equal to num_replicas (2) * num_cores_per_replica (1) * 4 got 4"},
		"one core twice":     {assignment(0, 0, 0, 0, 0, 0, 0, 0), codes.InvalidArgument, "Duplicate coordinates (0,0,0,0) in TPU device assignment"},
		"a core outside":     {assignment(0, 0, 0, 0, 2, 0, 0, 0), codes.InvalidArgument, "Mesh coordinates (2,0,0,0) are not valid for the current TPU topology"},
		"a core far outside": {assignment(0, 0, 0, 0, 1<<32+1, 0, 0, 0), codes.InvalidArgument, "Invalid core number in device assignment: 4294967297"},
		"no topology":        {attr("topology", nil), codes.InvalidArgument, "TPUReplicate asked to create 2 replicas, but the number of cores in the TPU topology is 8 and no TPU device assignment was supplied."},
		"no topology, but an assignment": {func(t *testing.T, g *gpb.GraphDef) {
			attr("topology", nil)(t, g)
			attr("num_replicas", intAttr(8))(t, g)
		}, codes.InvalidArgument, "A TPU topology must be provided if device_assignment_attr is non-empty"},
		"another topology":           {topology("2x1x1x2", 1), codes.InvalidArgument, "Mismatched number of TPUs per task (4 != 8)."},
		"a topology of more hosts":   {topology("2x2x1x2", 2), codes.InvalidArgument, "Mismatched number of TPU tasks (2 != 1)"},
		"a topology of another mesh": {topology("4x1x1x2", 1), codes.InvalidArgument, "Mesh coordinates (2,0,0,0) are not valid for the current TPU topology"},
		"no TopologyProto":           {attr("topology", &avpb.AttrValue{Value: &avpb.AttrValue_S{S: []byte("core")}}), codes.InvalidArgument, "not a TopologyProto"},

		"a handle of unknown shape": {func(t *testing.T, g *gpb.GraphDef) {
			nodeOf(t, g, "w_1").Attr["shape"] = &avpb.AttrValue{Value: &avpb.AttrValue_Shape{Shape: &tspb.TensorShapeProto{Dim: []*tspb.TensorShapeProto_Dim{{Size: -1}, {Size: 2}}}}}
		}, codes.InvalidArgument, "Cannot colocate nodes {{colocation_node w_1}} and {{colocation_node cluster/_execute_1_0}} because no device type supports both of those nodes"},
		"a handle of no shape": {func(t *testing.T, g *gpb.GraphDef) { delete(nodeOf(t, g, "it_0").Attr, "shape") }, codes.InvalidArgument, "Cannot colocate nodes {{colocation_node it_0}} and"},
		"a shared variable":    {inputs("StatefulPartitionedCall", "replicated_input_0", "w_0"), codes.Unimplemented, "the variable w_0 is shared by the replicas"},

		"a placeholder inside":    {nodes(`node { name: "p" op: "Placeholder"` + inside), codes.InvalidArgument, "Detected unsupported operations when trying to compile graph cluster[] on XLA_TPU_JIT: Placeholder (No registered 'Placeholder' OpKernel for XLA_TPU_JIT devices compatible with node {{node p}}){{node p}}"},
		"an operation of strings": {nodes(`node { name: "s" op: "StringFormat"` + inside), codes.InvalidArgument, "No registered 'StringFormat' OpKernel for XLA_TPU_JIT"},
		"such one in a function": {func(t *testing.T, g *gpb.GraphDef) {
			g.Library.Function[0].NodeDef = append(g.Library.Function[0].NodeDef, &npb.NodeDef{Name: "s", Op: "Print"})
		}, codes.InvalidArgument, "No registered 'Print' OpKernel for XLA_TPU_JIT"},
		"a shape of values":     {nodes(`node { name: "r" op: "Reshape" input: "replicated_input_0" input: "StatefulPartitionedCall"` + inside), codes.InvalidArgument, "Input 1 to node `r` of cluster with op Reshape must be a compile-time constant."},
		"a shape of a shape":    {nodes(`node { name: "s" op: "Shape" input: "replicated_input_0"` + inside + `node { name: "r" op: "Reshape" input: "replicated_input_0" input: "s"` + inside), codes.OK, ""},
		"a random shape":        {nodes(`node { name: "s" op: "RandomUniform" input: "Const_3"` + inside + `node { name: "r" op: "Fill" input: "s" input: "replicated_input_1"` + inside), codes.InvalidArgument, "Input 0 to node `r` of cluster with op Fill must be"},
		"a loop in frames":      {nodes(`node { name: "e" op: "Enter" input: "replicated_input_0"` + inside), codes.Unimplemented, "a loop in frames"},
		"an output from inside": {nodes(`node { name: "y" op: "Identity" input: "replicated_input_0" }`), codes.InvalidArgument, "is inside of the computation for TPUs; expected an output of TPUReplicatedOutput"},
		"an input of the graph": {nodes(`node { name: "y" op: "Identity" input: "input0" }`), codes.InvalidArgument, "is inside of the computation for TPUs"},
		"a third result of two": {nodes(`node { name: "y" op: "Identity" input: "output0:2" }`), codes.InvalidArgument, `no replica "2"`},
		"a result of nothing":   {inputs("output0"), codes.InvalidArgument, "input output0 has no input"},
		"no such input":         {inputs("CrossReplicaSum", "gone", "CrossReplicaSum/group_assignment"), codes.InvalidArgument, "input gone is not in the graph"},
		"a sum without groups":  {inputs("CrossReplicaSum", "StatefulPartitionedCall"), codes.InvalidArgument, "1 inputs; expected 2"},
		"a sum of some": {func(t *testing.T, g *gpb.GraphDef) {
			nodeOf(t, g, "CrossReplicaSum/group_assignment").Attr["value"].GetTensor().TensorShape.Dim[1].Size = 1
		}, codes.Unimplemented, "one group of all replicas"},
		"a sum with one twice": {func(t *testing.T, g *gpb.GraphDef) {
			x := nodeOf(t, g, "CrossReplicaSum/group_assignment").Attr["value"].GetTensor()
			x.TensorContent, x.IntVal = nil, []int32{0, 0}
		}, codes.Unimplemented, "one group of all replicas"},
		"another collective":       {nodes(`node { name: "a" op: "AllToAll" input: "replicated_input_0"` + inside), codes.Unimplemented, "AllToAll is not emulated"},
		"a node twice":             {nodes(`node { name: "x0" op: "NoOp" }`), codes.InvalidArgument, `node "x0" is in the graph twice`},
		"a core that is not there": {nodes(`node { name: "y" op: "NoOp" device: "/job:worker/task:0/device:TPU:8" }`), codes.InvalidArgument, `was explicitly assigned to /job:worker/task:0/device:TPU:8 but available devices are [ /job:worker/replica:0/task:0/device:CPU:0`},
		"part of it in a function": {func(t *testing.T, g *gpb.GraphDef) {
			f := g.Library.Function[0].NodeDef[0]
			f.Attr["_tpu_replicate"] = &avpb.AttrValue{}
		}, codes.Unimplemented, "of a function is part of a computation for TPUs"},
		"configured in a function":  {func(t *testing.T, g *gpb.GraphDef) { g.Library.Function[0].NodeDef[0].Op = opConfigure }, codes.Unimplemented, "ConfigureDistributedTPU in function"},
		"configured on no device":   {nodes(`node { name: "c" op: "ConfigureDistributedTPU" }`), codes.InvalidArgument, `on device ""; expected /job:worker/device:TPU_SYSTEM:0`},
		"a sum in another function": {func(t *testing.T, g *gpb.GraphDef) { sumIn(t, g, "MapDataset") }, codes.Unimplemented, "it calls a function with a sum over the replicas; expected one of"},
		"a function within itself": {func(t *testing.T, g *gpb.GraphDef) {
			f := sumIn(t, g, "PartitionedCall")
			f.NodeDef = append(f.NodeDef, proto.CloneOf(nodeOf(t, g, "call")))
		}, codes.Unimplemented, "calls itself"},
	} {
		t.Run(name, func(t *testing.T) {
			g := part(t, "step_2")
			c.change(t, g)
			err := attempt(t, g)
			if status.Code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %v %s", err, c.code, c.want)
			}
		})
	}
}

// sumIn adds a function with a sum to a graph, and a node that calls it.
func sumIn(t *testing.T, g *gpb.GraphDef, op string) (f *fpb.FunctionDef) {
	t.Helper()
	f = &fpb.FunctionDef{Signature: &opb.OpDef{Name: "sums"}, NodeDef: []*npb.NodeDef{
		proto.CloneOf(nodeOf(t, g, "CrossReplicaSum/group_assignment")),
		{Name: "sum", Op: opSum, Input: []string{"CrossReplicaSum/group_assignment:output:0", "CrossReplicaSum/group_assignment:output:0"}},
	}}
	f.NodeDef[0].Input = nil
	delete(f.NodeDef[0].Attr, "_tpu_replicate")
	g.Library.Function = append(g.Library.Function, f)
	addNodes(t, g, `node { name: "call" op: "`+op+`" attr { key: "f" value { func { name: "sums" } } } attr { key: "_tpu_replicate" value { s: "cluster" } } }`)
	return f
}

// TestParts sends a computation in a part of its own, after its variables, and a second one
// that uses the first one's result.
func TestParts(t *testing.T) {
	topology, err := ParseTopology("2x2x1x2", 1)
	if err != nil {
		t.Fatal(err)
	}
	l := layout{job: "worker", hosts: 1, cores: 8}
	whole, first := part(t, "step_2"), &gpb.GraphDef{}
	var rest []*npb.NodeDef
	for _, n := range whole.GetNode() {
		switch n.GetOp() {
		case "VarHandleOp", "Placeholder":
			first.Node = append(first.Node, n)
		default:
			rest = append(rest, n)
		}
	}
	known := &graph{nodes: make(map[string]*node)}
	for _, g := range []*gpb.GraphDef{first, {Node: rest, Library: whole.GetLibrary()}} {
		part, err := rewrite(g, known, l, topology, topology)
		if err != nil {
			t.Fatal(err)
		}
		known.extend(part)
	}
	second := &gpb.GraphDef{}
	addNodes(t, second, `
		node { name: "m" op: "TPUReplicateMetadata" attr { key: "num_replicas" value { i: 1 } } attr { key: "_tpu_replicate" value { s: "other" } } }
		node { name: "in" op: "TPUReplicatedInput" input: "output0:1" }
		node { name: "twice" op: "AddV2" input: "in" input: "in" attr { key: "_tpu_replicate" value { s: "other" } } }
		node { name: "out" op: "TPUReplicatedOutput" input: "twice" }
		node { name: "y" op: "Identity" input: "out" }`)
	more, err := rewrite(second, known, l, topology, topology)
	if err != nil {
		t.Fatal(err)
	}
	known.extend(more)
	got := make(map[string]string)
	for _, n := range second.GetNode() {
		got[n.GetName()] = n.GetOp() + " " + strings.Join(n.GetInput(), " ") + " " + n.GetDevice()
	}
	for name, want := range map[string]string{
		"tpu/other/before":  "NoOp ^tpu/cluster/after ",
		"tpu_0/twice":       "AddV2 tpu_1/Identity tpu_1/Identity ^tpu/other/before /job:worker/replica:0/task:0/device:CPU:1",
		"tpu_0/other/after": "NoOp ^tpu_0/twice /job:worker/replica:0/task:0/device:CPU:1",
		"y":                 "Identity tpu_0/twice ^tpu/other/after ",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	uses := func(name string) bits { return known.uses([]string{name + ":0"}) }
	a, b := known.clusters[0].bit, known.clusters[1].bit
	for name, want := range map[string]bits{"x0": 0, "w_0": onCore, "init": onCore, "output_0_shard_1": onCore | a, "y": onCore | a | b, "TPUCompilationResult": onCore | a, "gone": 0} {
		if uses(name) != want {
			t.Errorf("%s uses %b, want %b", name, uses(name), want)
		}
	}
	again := &gpb.GraphDef{Node: []*npb.NodeDef{{Name: "m2", Op: opMetadata, Attr: map[string]*avpb.AttrValue{"_tpu_replicate": {Value: &avpb.AttrValue_S{S: []byte("other")}}, "num_replicas": intAttr(1)}}}}
	if _, err := rewrite(again, known, l, topology, topology); status.Code(err) != codes.Unimplemented {
		t.Errorf("the same computation again: %v", err)
	}
}
