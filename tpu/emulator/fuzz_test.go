package emulator

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	tpb "github.com/wamuir/graft/tensorflow/core/framework/tensor_go_proto"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "github.com/gorbit-ml/gorbit/tpu/emulator/internal/masterpb"
)

// rewritten rewrites a graph, which must end, with an error or with a graph that can be sent
// on and whose computations are gone.
func rewritten(t testing.TB, g *gpb.GraphDef) {
	topology, err := ParseTopology("2x2x1x2", 1)
	if err != nil {
		t.Fatal(err)
	}
	known := &graph{nodes: make(map[string]*node)}
	part, err := rewrite(g, known, layout{job: "worker", hosts: 1, cores: 8}, topology, topology)
	if err != nil {
		return
	}
	known.extend(part)
	if _, err := proto.Marshal(g); err != nil {
		t.Error(err)
	}
	for _, n := range g.GetNode() {
		if _, ok := n.GetAttr()[attrReplicate]; ok {
			t.Errorf("node %s is still in a computation", n.GetName())
		}
		known.uses(n.GetInput())
	}
}

func seeds(t testing.TB) (out [][]byte) {
	paths, err := filepath.Glob("testdata/*.pb")
	if err != nil || len(paths) < 6 {
		t.Fatal(paths, err)
	}
	slices.Sort(paths)
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, content)
	}
	return out
}

// FuzzLower rewrites serialized graphs.
func FuzzLower(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		g := new(gpb.GraphDef)
		if len(content) < 1<<20 && proto.Unmarshal(content, g) == nil {
			rewritten(t, g)
		}
	})
}

// FuzzLowerChanges rewrites graphs of TensorFlow in which a few things were changed at random.
func FuzzLowerChanges(f *testing.F) {
	graphs := seeds(f)
	for i := range uint64(40) {
		f.Add(i, uint8(i%16))
	}
	f.Fuzz(func(t *testing.T, seed uint64, changes uint8) {
		r := rand.New(rand.NewPCG(seed, uint64(changes)))
		g := new(gpb.GraphDef)
		if err := proto.Unmarshal(graphs[r.IntN(len(graphs))], g); err != nil {
			t.Fatal(err)
		}
		for range int(changes%16) + 1 {
			change(r, g)
		}
		rewritten(t, g)
	})
}

// change changes one thing in a graph.
func change(r *rand.Rand, g *gpb.GraphDef) {
	nodes := &g.Node
	if functions := g.GetLibrary().GetFunction(); r.IntN(2) == 0 && len(functions) > 0 {
		f := functions[r.IntN(len(functions))]
		nodes = &f.NodeDef
		if f.GetSignature() == nil {
			return
		}
		switch r.IntN(8) {
		case 0:
			f.Signature.InputArg = nil
		case 1:
			clear(f.Ret)
		case 2:
			f.Signature.Name = functions[r.IntN(len(functions))].GetSignature().GetName()
		case 3:
			f.Signature = nil
		}
	}
	if len(*nodes) == 0 {
		return
	}
	one := func() *npb.NodeDef { return (*nodes)[r.IntN(len(*nodes))] }
	n, other := one(), one()
	switch r.IntN(9) {
	case 0:
		n.Op = other.GetOp()
	case 1:
		n.Input = other.GetInput()
	case 2:
		n.Attr = other.GetAttr()
	case 3:
		for name := range n.GetAttr() {
			n.Attr[name] = nil
			break
		}
	case 4:
		if len(n.GetInput()) > 0 {
			i := r.IntN(len(n.GetInput()))
			n.Input[i] = []string{"", "^", ":", other.GetName(), "^" + other.GetName(), other.GetName() + ":99", n.GetName(), "x:y:z"}[r.IntN(8)]
		}
	case 5:
		*nodes = slices.DeleteFunc(*nodes, func(m *npb.NodeDef) bool { return m == n })
	case 6:
		n.Name = other.GetName()
	case 7:
		if n.Attr == nil {
			return
		}
		n.Attr[attrReplicate] = other.GetAttr()[attrReplicate]
	case 8:
		n.Device = []string{"/device:TPU:0", "/job:worker/device:TPU:99", "nonsense", other.GetDevice()}[r.IntN(4)]
	}
}

// FuzzReadStep compares what is read of a step with what a parser of the whole message reads.
func FuzzReadStep(f *testing.F) {
	whole, err := proto.Marshal(&pb.RunStepRequest{SessionHandle: "s", Fetch: []string{"a:0", "b:1"}, Target: []string{"c"}, RequestId: 7,
		Feed: []*cpb.NamedTensorProto{{Name: "x:0", Tensor: &tpb.TensorProto{TensorContent: make([]byte, 300)}}, {Name: "y:0"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, uint8(3))
	f.Add([]byte("\x12\x04\x0a\xff\xff\x01"), uint8(0))
	f.Add([]byte("\x0a\xff\xff\xff\xff\x0f"), uint8(1))
	f.Fuzz(func(t *testing.T, content []byte, cut uint8) {
		at := min(int(cut), len(content))
		got, err := readStep(mem.BufferSlice{mem.SliceBuffer(content[:at]), mem.SliceBuffer(content[at:])})
		var want pb.RunStepRequest
		if proto.Unmarshal(content, &want) != nil || err != nil {
			return // the server behind refuses what is no message
		}
		var feeds []string
		for _, feed := range want.GetFeed() {
			feeds = append(feeds, feed.GetName())
		}
		fetches := slices.Concat(want.GetFetch(), want.GetTarget())
		slices.Sort(fetches)
		slices.Sort(got.fetches)
		if got.session != want.GetSessionHandle() || got.partial != (want.GetPartialRunHandle() != "") || !slices.Equal(got.fetches, fetches) || !slices.Equal(got.feeds, feeds) {
			t.Errorf("got %+v of %v", got, &want)
		}
	})
}
