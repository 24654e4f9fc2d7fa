package emulator

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"
)

// TestCallsAreNotOptimized rewrites graphs that TensorFlow made. Every call in them, also those of
// functions, must turn off the graph optimizer, and other nodes have no configuration.
func TestCallsAreNotOptimized(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.pb")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".pb")
		g := part(t, name)
		if err := attempt(t, g); err != nil {
			continue // other tests hold what is refused
		}
		nodes := slices.Clone(g.GetNode())
		for _, f := range g.GetLibrary().GetFunction() {
			nodes = append(nodes, f.GetNodeDef()...)
		}
		for _, n := range nodes {
			config, ok := n.GetAttr()["config_proto"]
			if isCall := n.GetOp() == "PartitionedCall" || n.GetOp() == "StatefulPartitionedCall"; ok != isCall {
				t.Errorf("%s: node %s (%s): a configuration is %t", name, n.GetName(), n.GetOp(), ok)
			} else if isCall {
				calls++
				checkAsIs(t, n, config.GetS())
			}
		}
	}
	if calls == 0 {
		t.Error("no graph has a call")
	}
}

func checkAsIs(t *testing.T, n *npb.NodeDef, serialized []byte) {
	t.Helper()
	var config cpb.ConfigProto
	if err := proto.Unmarshal(serialized, &config); err != nil {
		t.Fatal(err)
	}
	if !config.GetGraphOptions().GetRewriteOptions().GetDisableMetaOptimizer() {
		t.Errorf("call %s has the configuration %v", n.GetName(), &config)
	}
}
