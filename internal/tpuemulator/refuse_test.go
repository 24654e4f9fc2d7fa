package tpuemulator

import (
	"strings"
	"testing"

	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	"google.golang.org/protobuf/encoding/prototext"
)

// TestLowerRefuses changes a computation on two replicas to one that cannot be lowered.
func TestLowerRefuses(t *testing.T) {
	const whole = `
		node { name: "x" op: "Placeholder" }
		node { name: "in" op: "TPUReplicatedInput" input: "x" input: "x" }
		node { name: "meta" op: "TPUReplicateMetadata" attr { key: "num_replicas" value { i: 2 } } attr { key: "num_cores_per_replica" value { i: 1 } }
			attr { key: "device_assignment" value { list { i: 0 i: 0 i: 0 i: 0 i: 1 i: 0 i: 0 i: 0 } } } }
		node { name: "groups" op: "Const" input: "^meta" attr { key: "_tpu_replicate" value { s: "c" } }
			attr { key: "value" value { tensor { tensor_shape { dim { size: 1 } dim { size: 2 } } } } } }
		node { name: "sum" op: "CrossReplicaSum" input: "in" input: "groups" attr { key: "_tpu_replicate" value { s: "c" } } }
		node { name: "out" op: "TPUReplicatedOutput" input: "sum" }
		node { name: "y" op: "Identity" input: "out:1" }`
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{`op: "TPUReplicateMetadata"`, `op: "NoOp"`, "without TPUReplicateMetadata"},
		{`node { name: "x"`, `node { name: "m" op: "TPUReplicateMetadata" } node { name: "x"`, "nodes m and meta: two computations"},
		{`key: "num_replicas" value { i: 2 }`, `key: "num_replicas" value { i: 5 }`, "5 replicas on 4 cores"},
		{`key: "num_replicas" value { i: 2 }`, `key: "num_replicas" value { i: 0 }`, "0 replicas"},
		{`key: "num_replicas" value { i: 2 }`, `key: "num_replicas" value { i: 3 }`, "8 numbers; expected 4 for each of 3"},
		{`replica" value { i: 1 }`, `replica" value { i: 2 }`, "2 cores per replica"},
		{"i: 1 i: 0 i: 0 i: 0 }", "i: 0 i: 0 i: 0 i: 0 }", "a core of its own"},
		{"i: 1 i: 0 i: 0 i: 0 }", "i: 9 i: 0 i: 0 i: 0 }", "a replica at [9 0 0 0]"},
		{"i: 1 i: 0 i: 0 i: 0 }", "i: 4294967297 i: 0 i: 0 i: 0 }", "a replica at [4294967297 0 0 0]"},
		{`input: "x" input: "x"`, `input: "x"`, "has 1 inputs"},
		{"dim { size: 1 } dim { size: 2 }", "dim { size: 2 } dim { size: 1 }", "one group of all replicas"},
		{`input: "in" input: "groups"`, `input: "in"`, "1 inputs; expected 2"},
		{`input: "in" input: "groups"`, `input: "gone" input: "groups"`, "input gone is not in this part of the graph"},
		{`op: "Identity" input: "out:1"`, `op: "Identity" input: "sum"`, "is inside of the computation"},
		{`op: "Identity" input: "out:1"`, `op: "Identity" input: "out:2"`, `no replica "2"`},
		{`op: "TPUReplicatedOutput" input: "sum"`, `op: "TPUReplicatedOutput"`, "has no input"},
		{`op: "Placeholder"`, `op: "Enter" attr { key: "_tpu_replicate" value { s: "c" } }`, "a loop in frames"},
	} {
		var g gpb.GraphDef
		if !strings.Contains(whole, c.old) {
			t.Fatalf("no %s in the graph", c.old)
		}
		if err := prototext.Unmarshal([]byte(strings.Replace(whole, c.old, c.new, 1)), &g); err != nil {
			t.Fatal(err)
		}
		topology, err := ParseTopology("2x2x1x1", 1)
		if err != nil {
			t.Fatal(err)
		}
		err = lower(&g, layout{job: "worker", hosts: 1, cores: 4}, topology)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("the graph itself: %v", err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.new, err, c.want)
		}
		if c.want != "" {
			continue
		}
		nodes := make(map[string]string)
		for _, n := range g.GetNode() {
			nodes[n.GetName()] = n.GetOp() + " " + strings.Join(n.GetInput(), " ") + " " + n.GetDevice()
		}
		for name, want := range map[string]string{
			"tpu_0/sum": "AddN x x /job:worker/replica:0/task:0/device:TPU:0",
			"tpu_1/sum": "AddN x x /job:worker/replica:0/task:0/device:TPU:1",
			"y":         "Identity tpu_1/sum ",
			"meta":      "NoOp  ",
		} {
			if nodes[name] != want {
				t.Errorf("%s is %q, want %q", name, nodes[name], want)
			}
		}
	}
}
