package compose

import (
	"path/filepath"
	"strings"
	"testing"

	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// exported opens the export of a small model.
func exported(t *testing.T) *graphs.Export {
	t.Helper()
	dir := testkit.Made(t, `
import sys
from gorbit_export import classifier, config, export, optimizers

c = config.BertConfig(32, 2, 2, 48, vocab_size=30, max_position_embeddings=16)
export.write(classifier.Classification(c, 3, "mean"), optimizers.AdamW(), sys.argv[1] + "/graph")
`)
	export, err := graphs.Open(filepath.Join(dir, "graph"))
	if err != nil {
		t.Fatal(err)
	}
	return export
}

// TestShardedSlots checks that every slot is whole where it is read, and that the replicas have equal parts of
// all: to a row of each variable that is divided.
func TestShardedSlots(t *testing.T) {
	export := exported(t)
	bytesPer := func(replicas int, shard bool) []int64 {
		l := Layout{Devices: devices.Spec{Type: "CPU", Count: replicas}.Names(), Train: true, Shard: shard, Bucket: 1}
		p, err := Compose(export, l)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range p.Variables {
			n := replicas
			if shard && v.Slot {
				n = 1
			}
			if len(p.Reads[v.Name]) != n {
				t.Errorf("%s is on %d of %d replicas", v.Name, len(p.Reads[v.Name]), replicas)
			}
		}
		return p.SlotBytes
	}
	whole := bytesPer(4, false)
	for _, replicas := range []int{2, 3, 4, 8} {
		share := whole[0] / int64(replicas)
		most, least := share*9/8, share*7/8
		for i, n := range bytesPer(replicas, true) {
			if n > most || n < least {
				t.Errorf("replica %d of %d has %d bytes of slots; expected %d to %d", i, replicas, n, least, most)
			}
		}
	}
}

// TestFileBytes counts the slots that are in files, on all replicas, without averages, which are not.
func TestFileBytes(t *testing.T) {
	export := exported(t)
	slots := int64(0)
	for _, v := range export.Contract.Variables {
		slots += 2 * 4 * elements(v.Shape)
	}
	l := Layout{Devices: devices.Spec{Type: "CPU", Count: 3}.Names(), Train: true, Bucket: 1, Own: true, Average: Averages{Decay: 0.9}, Offload: t.TempDir()}
	p, err := Compose(export, l)
	if err != nil {
		t.Fatal(err)
	}
	if want := 3 * slots; p.FileBytes != want {
		t.Errorf("%d bytes are in files, expected %d", p.FileBytes, want)
	}
}

// TestSharedOnce checks that the correction of AdamW's moments is computed once a step, and not by
// the update of each variable.
func TestSharedOnce(t *testing.T) {
	graph := composed(t, exported(t), Layout{Devices: []string{"/device:CPU:0"}, Train: true, Bucket: 1})
	correcting := make(map[string]bool) // functions
	for _, f := range graph.GetLibrary().GetFunction() {
		for _, n := range f.GetNodeDef() {
			if n.GetOp() == "Expm1" {
				correcting[f.GetSignature().GetName()] = true
			}
		}
	}
	calls := 0
	for _, n := range graph.GetNode() {
		if correcting[n.GetAttr()["f"].GetFunc().GetName()] {
			calls++
		}
	}
	if calls != 2 || len(correcting) != 1 {
		t.Errorf("%d functions correct, in %d calls; expected one, in the step and after accumulation", len(correcting), calls)
	}
}

// composed composes a graph.
func composed(t *testing.T, export *graphs.Export, l Layout) *gpb.GraphDef {
	t.Helper()
	p, err := Compose(export, l)
	if err != nil {
		t.Fatal(err)
	}
	def, err := p.GraphDef()
	if err != nil {
		t.Fatal(err)
	}
	graph := new(gpb.GraphDef)
	if err := proto.Unmarshal(def, graph); err != nil {
		t.Fatal(err)
	}
	return graph
}

// TestGroupsOnGPUs wants few calls of updates on GPUs, and nothing for which the host waits for them.
func TestGroupsOnGPUs(t *testing.T) {
	export := exported(t)
	update := export.Functions["update"].GraphName
	for _, test := range []struct {
		device   string
		together int64
		calls    int // in a step, and as many after accumulation
	}{
		{"/device:GPU:0", 0, 2}, // of variables with weight decay, and without
		{"/device:CPU:0", 1 << 20, 2},
		{"/device:CPU:0", 0, len(export.Contract.Variables)},
		{"/device:GPU:0", 1, len(export.Contract.Variables)},
	} {
		ops := make(map[string]int)
		calls := 0
		for _, n := range composed(t, export, Layout{Devices: []string{test.device}, Train: true, Together: test.together, Bucket: 1}).GetNode() {
			ops[n.GetOp()]++
			if n.GetAttr()["f"].GetFunc().GetName() == update {
				calls++
			}
			if n.GetOp() == "SplitV" && strings.Contains(n.GetName(), "update/") && n.GetAttr()["Tlen"].GetType() != int32Type {
				t.Errorf("%s has sizes of int64, which a GPU has in its own memory", n.GetName())
			}
		}
		if waits := test.calls == len(export.Contract.Variables) && test.together == 0; calls != 2*test.calls || (ops["Switch"] > 0) != waits || (ops["Select"] > 0) == waits {
			t.Errorf("%+v: %d calls of the update, %v", test, calls, ops)
		}
	}
}

// TestClocksWaitForGPUs wants the clocks of GPUs to be read after a copy that TensorFlow keeps.
func TestClocksWaitForGPUs(t *testing.T) {
	graph := composed(t, exported(t), Layout{Devices: []string{"/device:GPU:0", "/device:GPU:1"}, Train: true, Bucket: 1})
	nodes := make(map[string]*npb.NodeDef)
	for _, n := range graph.GetNode() {
		nodes[n.GetName()] = n
	}
	read := 0
	for name, n := range nodes {
		if n.GetOp() != "Timestamp" || strings.HasSuffix(name, "began") {
			continue
		}
		read++
		copied := nodes[strings.TrimPrefix(n.GetInput()[0], "^")]
		if copied.GetOp() != "AssignVariableOp" || copied.GetDevice() != n.GetDevice() || nodes[copied.GetInput()[1]].GetDevice() == n.GetDevice() {
			t.Errorf("%s follows %v", name, copied)
		}
	}
	if read != 2*(3+2) {
		t.Errorf("%d readings; expected three of a step and two after accumulation on each replica", read)
	}
}

func TestRowClass(t *testing.T) {
	before := -1
	for n := range 200_000 {
		class, size := RowClass(n)
		if size < n || n > 16 && float64(size) > 1.1*float64(n)+1 || class < before || class >= rowClasses {
			t.Fatalf("RowClass(%d) = class %d, size %d", n, class, size)
		}
		if _, again := RowClass(size); again != size {
			t.Fatalf("RowClass(%d) has size %d, but RowClass(%d) has size %d", n, size, size, again)
		}
		before = class
	}
}
