package tpu_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/tpu"
)

// golden is a device assignment of TensorFlow's, see testdata/assignments.py.
type golden struct {
	Topology    string
	Replicas    int
	Coordinates []tpu.Coordinate
	Devices     []string
}

func goldens(t testing.TB) []golden {
	t.Helper()
	data, err := os.ReadFile("testdata/assignments.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []golden
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAssignments(t *testing.T) {
	for _, g := range goldens(t) {
		serialized, err := hex.DecodeString(g.Topology)
		if err != nil {
			t.Fatal(err)
		}
		topology, err := tpu.ParseTopology(serialized)
		if err != nil {
			t.Fatal(err)
		}
		a, err := topology.Assign(g.Replicas)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a.Coordinates, g.Coordinates) {
			t.Errorf("mesh %v, %d of %d cores: %v, want %v", topology.Mesh, g.Replicas, topology.Cores(), a.Coordinates, g.Coordinates)
		}
		for i, c := range a.Cores {
			if got := strings.Replace(c.Name("worker"), "/replica:0", "", 1); got != g.Devices[i] {
				t.Errorf("mesh %v: replica %d is on %s, want %s", topology.Mesh, i, got, g.Devices[i])
			}
		}
		again, err := tpu.NewTopology(topology.Mesh, topology.Tasks, topology.Coordinates)
		if err != nil || !slices.Equal(again.Serialized(), serialized) {
			t.Errorf("mesh %v: the topology is written as %x, want %x (%v)", topology.Mesh, again.Serialized(), serialized, err)
		}
		if flat := a.Flat(); len(flat) != 4*g.Replicas || flat[3] != int64(a.Coordinates[0][3]) {
			t.Errorf("flat: %v", flat)
		}
	}
	one, err := tpu.NewTopology(tpu.Coordinate{1, 1, 1, 2}, 1, []tpu.Coordinate{{0, 0, 0, 0}, {0, 0, 0, 1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, -1, 3} {
		if _, err := one.Assign(n); err == nil || !strings.Contains(err.Error(), "expected 1 to 2") {
			t.Errorf("%d replicas: %v", n, err)
		}
	}
}

func TestTopologyErrors(t *testing.T) {
	two := []tpu.Coordinate{{0, 0, 0, 0}, {0, 0, 0, 1}}
	for _, c := range []struct {
		mesh    tpu.Coordinate
		tasks   int
		cores   []tpu.Coordinate
		message string
	}{
		{tpu.Coordinate{1, 1, 1, 2}, 0, two, "2 cores for 0 tasks"},
		{tpu.Coordinate{1, 1, 1, 2}, 1, nil, "1 tasks with 0 cores each"},
		{tpu.Coordinate{1, 1, 0, 2}, 1, two, "axis 2 of the mesh is 0"},
		{tpu.Coordinate{1, 1, 1, 1}, 1, two, "core 1 of task 0 is at [0 0 0 1], outside the mesh"},
		{tpu.Coordinate{1, 1, 1, 2}, 1, []tpu.Coordinate{{0, 0, 0, -1}}, "outside the mesh"},
		{tpu.Coordinate{1, 1, 1, 2}, 2, []tpu.Coordinate{{}, {}}, "core 0 of task 1 is at [0 0 0 0], like core 0 of task 0"},
	} {
		_, err := tpu.NewTopology(c.mesh, c.tasks, c.cores)
		if wrong := (*tpu.TopologyError)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%v: %v, want %q", c.mesh, err, c.message)
		}
	}
	for _, bytes := range []string{"\x08", "\x0a\x01\x80", "\x0a\x02\x01\x01", "\x0d1234", "\x10\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "\x0a\x05\x01\x01\x01\x01\x01", "hello"} {
		if _, err := tpu.ParseTopology([]byte(bytes)); err == nil {
			t.Errorf("%q is a topology", bytes)
		}
	}
}

// FuzzTopology: what is taken for a topology can be assigned in every number.
func FuzzTopology(f *testing.F) {
	for _, g := range goldens(f)[:8] {
		b, _ := hex.DecodeString(g.Topology)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, serialized []byte) {
		topology, err := tpu.ParseTopology(serialized)
		if err != nil {
			return
		}
		for n := 1; n <= min(topology.Cores(), 64); n++ {
			a, err := topology.Assign(n)
			if err != nil {
				t.Fatal(err)
			}
			seen := make(map[tpu.Core]bool)
			for i, c := range a.Cores {
				if core, ok := topology.At(a.Coordinates[i]); !ok || core != c || seen[c] {
					t.Fatalf("%d replicas: replica %d on %v at %v", n, i, c, a.Coordinates[i])
				}
				seen[c] = true
			}
		}
	})
}
