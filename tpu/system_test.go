package tpu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	"google.golang.org/protobuf/proto"
)

// The golden is the call of TensorFlow's initialize_tpu_system (tools/tpu_goldens.py).
func TestConfigureIsTensorFlows(t *testing.T) {
	content, err := os.ReadFile("testdata/configure.pb")
	if err != nil {
		t.Fatal(err)
	}
	var want, got gpb.GraphDef
	if err := proto.Unmarshal(content, &want); err != nil {
		t.Fatal(err)
	}
	g := tf.NewGraph()
	if _, err := g.AddOperation(configureOp("/job:worker/device:TPU_SYSTEM:0")); err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	if _, err := g.WriteTo(&written); err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(written.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	node := got.GetNode()[0]
	node.Name = want.GetNode()[0].GetName()
	if !proto.Equal(node, want.GetNode()[0]) {
		t.Errorf("got %v\nwant %v", node, want.GetNode()[0])
	}
}

func TestTPUAmong(t *testing.T) {
	host := func(job string, task, cores int) []string {
		prefix := fmt.Sprintf("/job:%s/replica:0/task:%d/device:", job, task)
		names := []string{prefix + "CPU:0", prefix + "XLA_CPU:0", prefix + "TPU_SYSTEM:0"}
		for core := range cores {
			names = append(names, fmt.Sprintf("%sTPU:%d", prefix, core))
		}
		return names
	}
	join := func(parts ...[]string) (out []string) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	for name, c := range map[string]struct {
		devices []string
		want    shown
		err     string
	}{
		"one host":        {host("worker", 0, 8), shown{job: "worker", tasks: 1, cores: 8}, ""},
		"two, any order":  {join(host("tpu_worker", 1, 4), host("tpu_worker", 0, 4)), shown{job: "tpu_worker", tasks: 2, cores: 4}, ""},
		"a client beside": {join([]string{"/job:client/replica:0/task:0/device:CPU:0"}, host("worker", 0, 2)), shown{job: "worker", tasks: 1, cores: 2}, ""},
		"emulated":        {join(host("worker", 0, 2), []string{"/job:worker/replica:0/task:0/device:TPU_EMULATOR:0"}), shown{job: "worker", tasks: 1, cores: 2, emulated: true}, ""},
		"nothing":         {nil, shown{}, "no TPU is among the devices ()"},
		"no cores":        {host("worker", 0, 0), shown{}, "no TPU is among the devices"},
		"no system":       {[]string{"/job:worker/replica:0/task:0/device:TPU:0"}, shown{}, "no TPU is among the devices"},
		"two jobs":        {join(host("a", 0, 2), host("b", 0, 2)), shown{}, "the jobs a and b both have TPUs"},
		"uneven":          {join(host("worker", 0, 4), host("worker", 1, 2)), shown{}, "task 1 has 2 cores; expected 4"},
		"a gap":           {join(host("worker", 0, 4), host("worker", 2, 4)), shown{}, "task 1 has no device TPU_SYSTEM:0"},
		"a bare host":     {join(host("worker", 0, 4), host("worker", 1, 0)), shown{}, "1 of 2 tasks have cores"},
		"a wrong number":  {[]string{"/job:worker/replica:0/task:99999999999999999999/device:TPU:0"}, shown{}, "99999999999999999999"},
	} {
		got, err := tpuAmong(c.devices)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %s", name, err, c.err)
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}

func TestSystemConfig(t *testing.T) {
	if _, err := Start(t.Context(), Cluster{Local: true}, SystemConfig{Timeout: -time.Second}); err == nil || !strings.Contains(err.Error(), "TPU timeout -1s") {
		t.Errorf("got %v", err)
	}
	var failed *SystemError
	if _, err := Start(t.Context(), Cluster{}, SystemConfig{}); !errors.As(err, &failed) || failed.Phase != PhaseConnect {
		t.Errorf("got %v", err)
	}
}
