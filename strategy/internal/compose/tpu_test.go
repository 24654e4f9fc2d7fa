package compose

import (
	"fmt"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/tpu"
)

// mesh returns the topology of a TPU of 2x2 chips of 2 cores.
func mesh(t *testing.T) *tpu.Topology {
	t.Helper()
	var at []tpu.Coordinate
	for y := range int32(2) {
		for x := range int32(2) {
			at = append(at, tpu.Coordinate{x, y, 0, 0}, tpu.Coordinate{x, y, 0, 1})
		}
	}
	topology, err := tpu.NewTopology(tpu.Coordinate{2, 2, 1, 2}, 1, at)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

var tpuAxes = map[string]int64{"rows": 4, "length": 16, "examples": 6}

// TestTPUGraph lets TensorFlow check the graphs, and wants every variable on every core.
func TestTPUGraph(t *testing.T) {
	export := exported(t)
	for _, replicas := range []int{1, 2, 8} {
		for _, steps := range []int{1, 5} {
			t.Run(fmt.Sprintf("%d replicas, %d steps", replicas, steps), func(t *testing.T) {
				p, err := ComposeTPU(export, TPULayout{Topology: mesh(t), Job: "worker", Replicas: replicas, Train: true, Axes: tpuAxes, Steps: steps})
				if err != nil {
					t.Fatal(err)
				}
				def, err := p.GraphDef()
				if err != nil {
					t.Fatal(err)
				}
				g := tf.NewGraph()
				if err := g.Import(def, ""); err != nil {
					t.Fatal(err)
				}
				for _, v := range p.Variables {
					if len(p.Reads[v.Name]) != replicas {
						t.Errorf("%s is on %d of %d cores", v.Name, len(p.Reads[v.Name]), replicas)
					}
				}
				want := map[int]string{1: "[3]", 5: "[5, 3]"}[steps] // loss, weight and accuracy
				if got := g.Operation(p.TPU.Train.Fetches[0].Node).Output(0).Shape().String(); got != want {
					t.Errorf("the sums have shape %s, want %s", got, want)
				}
			})
		}
	}
}

func TestTPULayoutErrors(t *testing.T) {
	export := exported(t)
	without := func(axis string) map[string]int64 {
		out := map[string]int64{"width": 1}
		for name, size := range tpuAxes {
			if out[name] = size; name == axis {
				out[name] = 0
			}
		}
		return out
	}
	for want, l := range map[string]TPULayout{
		"0 steps per call":           {Topology: mesh(t), Replicas: 1, Axes: tpuAxes},
		"axis length has no size":    {Topology: mesh(t), Replicas: 1, Steps: 1, Axes: without("length")},
		"axis width not found":       {Topology: mesh(t), Replicas: 1, Steps: 1, Axes: without("")},
		"9 replicas given; expected": {Topology: mesh(t), Replicas: 9, Steps: 1, Axes: tpuAxes},
	} {
		if _, err := ComposeTPU(export, l); err == nil || !strings.Contains(err.Error(), want) || fault.Of(err) != fault.Usage {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
