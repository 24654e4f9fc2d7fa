package emulator_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"
	avpb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/tpu"
	"github.com/gorbit-ml/gorbit/tpu/emulator"
)

// graphDef is a graph to be edited.
type graphDef struct {
	*gpb.GraphDef
	t testing.TB
}

// edit writes a graph with changes to a file, and returns its path.
func edit(t testing.TB, path string, f func(*graphDef)) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g := &graphDef{new(gpb.GraphDef), t}
	if err := proto.Unmarshal(content, g.GraphDef); err != nil {
		t.Fatal(err)
	}
	f(g)
	out, err := proto.Marshal(g.GraphDef)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "graph.pb")
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (g *graphDef) node(name string) *npb.NodeDef {
	g.t.Helper()
	for _, n := range g.GetNode() {
		if n.GetName() == name {
			return n
		}
	}
	g.t.Fatalf("no node %s", name)
	return nil
}

// add adds nodes.
func (g *graphDef) add(nodes string) {
	g.t.Helper()
	var more gpb.GraphDef
	if err := prototext.Unmarshal([]byte(nodes), &more); err != nil {
		g.t.Fatal(err)
	}
	g.Node = append(g.Node, more.GetNode()...)
}

// spread makes the graph one for a TPU with more hosts.
func (g *graphDef) spread(hosts int) {
	g.t.Helper()
	topology, err := emulator.ParseTopology("2x2x1x2", hosts)
	if err != nil {
		g.t.Fatal(err)
	}
	metadata := g.node("TPUReplicateMetadata").Attr
	flat := metadata["device_assignment"].GetList().GetI()
	old, err := tpu.ParseTopology(metadata["topology"].GetS())
	if err != nil {
		g.t.Fatal(err)
	}
	metadata["topology"].GetValue().(*avpb.AttrValue_S).S = topology.Serialized()
	devices := make(map[string]string)
	for i := range len(flat) / 4 {
		at := tpu.Coordinate{int32(flat[4*i]), int32(flat[4*i+1]), int32(flat[4*i+2]), int32(flat[4*i+3])}
		from, _ := old.At(at)
		to, _ := topology.At(at)
		devices[from.Name("worker")] = to.Name("worker")
	}
	for _, n := range g.GetNode() {
		if to, ok := devices[n.GetDevice()]; ok {
			n.Device = to
		}
	}
}

// TestExport runs a model's own gradients on 8 cores, as the goldens next to the checkout have
// them, and compares the sums with those of the same function run without a computation for
// TPUs. The cores have two batches in turn.
func TestExport(t *testing.T) {
	path := filepath.Join(filepath.Dir(testkit.Root()), "shared", "tpu", "goldens", "golden_gorbit.pb")
	if _, err := os.Stat(path); os.IsNotExist(err) {
		t.Skipf("graphs of exports in tpu.replicate are not beside the checkout: %s; without them there is TestTPUTrains of strategy", path)
	}
	const replicas, batches = 8, 2
	path, feeds := withPlain(t, path, batches)
	c := open(t, emulate(t, 1, emulator.None), path)
	c.start()
	in := make(map[tf.Output]*tf.Tensor)
	for _, n := range feeds {
		tensor, err := tf.NewTensor(feedOf(n, batches))
		if err != nil {
			t.Fatal(err)
		}
		in[c.graph.Operation(n.GetName()).Output(0)] = tensor
	}
	call := c.graph.Operation("plain_0")
	// Output 0 is the gradient of the table of words, which is large.
	outputs := call.NumOutputs()
	var fetches []tf.Output
	for r := range batches {
		for k := 1; k < outputs; k++ {
			fetches = append(fetches, c.graph.Operation(fmt.Sprint("plain_", r)).Output(k))
		}
	}
	plain, err := c.session.Run(in, fetches, nil)
	if err != nil {
		t.Fatal(err)
	}
	fetches = nil
	for k := 1; k < outputs; k++ {
		fetches = append(fetches, c.graph.Operation(fmt.Sprintf("output_%d_shard_%d", k, replicas-1)).Output(0))
	}
	sums, err := c.session.Run(in, fetches, nil)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for k, sum := range sums {
		got := flat(sum.Value())
		want := make([]float64, len(got))
		for r := range batches {
			for i, v := range flat(plain[r*(outputs-1)+k].Value()) {
				want[i] += v * replicas / batches
			}
		}
		largest := 0.
		for _, v := range want {
			largest = max(largest, math.Abs(v))
		}
		for i, v := range got {
			compared++
			if math.Abs(v-want[i]) > 1e-5*largest+1e-12 || math.IsNaN(v) {
				t.Fatalf("output %d: number %d is %v, want %v", k, i, v, want[i])
			}
		}
	}
	if compared < 10000 {
		t.Errorf("compared %d numbers", compared)
	}
}

// withPlain adds to the graph of golden_gorbit.pb the calls plain_0 and so on, one for each of
// the batches, of the function that the computation calls, and the node init, which gives the
// variables values. It returns the path of the graph and its features.
func withPlain(t *testing.T, path string, batches int) (_ string, feeds []*npb.NodeDef) {
	t.Helper()
	path = edit(t, path, func(g *graphDef) {
		call := g.node("StatefulPartitionedCall")
		var inits []string
		for r := range batches {
			plain := proto.CloneOf(call)
			plain.Name, plain.Input, plain.Device = fmt.Sprint("plain_", r), nil, fmt.Sprintf("/job:worker/replica:0/task:0/device:TPU:%d", r)
			delete(plain.Attr, "_tpu_replicate")
			for _, input := range call.GetInput() {
				if strings.HasPrefix(input, "^") {
					continue
				}
				from := g.node(strings.Split(input, ":")[0])
				if from.GetOp() == "Identity" {
					from = g.node(from.GetInput()[0])
				}
				plain.Input = append(plain.Input, from.GetInput()[r])
			}
			g.Node = append(g.Node, plain)
		}
		for _, n := range g.GetNode() {
			switch n.GetOp() {
			case "Placeholder":
				feeds = append(feeds, n)
			case "VarHandleOp":
				var dims, seed string
				for _, d := range n.GetAttr()["shape"].GetShape().GetDim() {
					dims += fmt.Sprintf(" int_val: %d", d.GetSize())
				}
				fmt.Sscanf(n.GetName(), "v%s", &seed)
				seed, _, _ = strings.Cut(seed, "_")
				rank := len(n.GetAttr()["shape"].GetShape().GetDim())
				g.add(fmt.Sprintf(`
					node { name: "%[1]s/shape" op: "Const" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { dim { size: %[2]d } }%[3]s } } } }
					node { name: "%[1]s/seed" op: "Const" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: 7 int_val: %[4]s } } } }
					node { name: "%[1]s/random" op: "StatelessRandomUniform" input: "%[1]s/shape" input: "%[1]s/seed" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "T" value { type: DT_INT32 } } attr { key: "Tseed" value { type: DT_INT32 } } }
					node { name: "%[1]s/assign" op: "AssignVariableOp" device: "%[5]s" input: "%[1]s" input: "%[1]s/random" attr { key: "dtype" value { type: DT_FLOAT } } }`,
					n.GetName(), rank, dims, seed, n.GetDevice()))
				inits = append(inits, fmt.Sprintf(`input: "^%s/assign"`, n.GetName()))
			}
		}
		g.add(`node { name: "init" op: "NoOp" ` + strings.Join(inits, " ") + " }")
	})
	return path, feeds
}

// feedOf is a value for a replica's feature, of so many batches.
func feedOf(n *npb.NodeDef, batches int) any {
	dims := n.GetAttr()["shape"].GetShape().GetDim()
	count := 1
	for _, d := range dims {
		count *= int(d.GetSize())
	}
	at := strings.LastIndexByte(n.GetName(), '_')
	name := n.GetName()[:at]
	replica, err := strconv.Atoi(n.GetName()[at+1:])
	if err != nil {
		return nil // which NewTensor refuses
	}
	seed := replica % batches
	one := func(i int) int32 {
		switch name {
		case "input_ids":
			return int32((i*31 + seed*7) % 90)
		case "position_ids":
			return int32(i % int(dims[1].GetSize()))
		case "cls_positions":
			return int32(i * 128)
		case "labels":
			return int32((i + seed) % 2)
		case "sequence_ids", "example_weights":
			return 1
		}
		return 0
	}
	if n.GetAttr()["dtype"].GetType().String() == "DT_FLOAT" {
		if len(dims) == 0 {
			return float32(0.1)
		}
		out := make([]float32, count)
		for i := range out {
			out[i] = float32(one(i))
		}
		return out
	}
	if n.GetAttr()["dtype"].GetType().String() == "DT_INT64" {
		return []int64{int64(seed), 3}
	}
	ints := make([]int32, count)
	for i := range ints {
		ints[i] = one(i)
	}
	switch len(dims) {
	case 0:
		return ints[0]
	case 1:
		return ints
	}
	var rows [][]int32
	for i := 0; i < count; i += int(dims[1].GetSize()) {
		rows = append(rows, ints[i:i+int(dims[1].GetSize())])
	}
	return rows
}

// flat are the numbers of a tensor's value.
func flat(value any) []float64 {
	switch v := value.(type) {
	case float32:
		return []float64{float64(v)}
	case []float32:
		out := make([]float64, len(v))
		for i := range v {
			out[i] = float64(v[i])
		}
		return out
	case [][]float32:
		var out []float64
		for _, row := range v {
			out = append(out, flat(row)...)
		}
		return out
	case [][][]float32:
		var out []float64
		for _, rows := range v {
			out = append(out, flat(rows)...)
		}
		return out
	}
	return nil
}
