package tpuemulator_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/internal/tpuemulator"
)

// golden returns a graph that tf.compat.v1.tpu.replicate of TensorFlow 2.18 made.
func golden(t *testing.T, name string) *tf.Graph {
	t.Helper()
	path := filepath.Join(filepath.Dir(testkit.Root()), "shared", "tpu", "goldens", name)
	content, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		t.Skipf("graphs of tpu.replicate are not beside the checkout: %s", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	g := tf.NewGraph()
	if err := g.Import(content, ""); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestReplicatedStep runs steps of gradient descent on two emulated cores. Each computes the
// loss, the sum of squares of x·w, and the gradient 2·xᵀ·x·w of its examples; the gradients
// and losses of both are added. The same is computed here of all examples.
func TestReplicatedStep(t *testing.T) {
	g := golden(t, "golden_mirrored_da_2.pb")
	s, err := tf.NewSession(g, &tf.SessionOptions{Target: "grpc://" + emulate(t, 1, tpuemulator.None)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Run(nil, nil, []*tf.Operation{g.Operation("init")}); err != nil {
		t.Fatal(err)
	}
	tensor := func(value any) *tf.Tensor {
		out, err := tf.NewTensor(value)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	output := func(name string) tf.Output { return g.Operation(name).Output(0) }
	x := [][][]float32{{{1, 2, 3}, {.5, .25, 1}, {0, 1, 0}, {1, 1, 1}}, {{-1, 2, .3}, {5, .25, 1}, {0, 2, 0}, {1, -1, 1}}}
	const rate = .001
	w := [3][2]float64{{0, .1}, {.2, .3}, {.4, .5}}
	for step := range 3 {
		var loss float64
		var gradient [3][2]float64
		for _, replica := range x {
			for _, row := range replica {
				for k := range 2 {
					y := 0.
					for j := range 3 {
						y += float64(row[j]) * w[j][k]
					}
					loss += y * y
					for j := range 3 {
						gradient[j][k] += 2 * float64(row[j]) * y
					}
				}
			}
		}
		for j := range w {
			for k := range w[j] {
				w[j][k] -= rate * gradient[j][k]
			}
		}
		out, err := s.Run(map[tf.Output]*tf.Tensor{output("x0"): tensor(x[0]), output("x1"): tensor(x[1]), output("lr"): tensor(float32(rate))},
			[]tf.Output{output("output_0_shard_0"), output("output_0_shard_1"), output("TPUCompilationResult")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for replica, got := range out[:2] {
			if v, ok := got.Value().(float32); !ok || math.Abs(float64(v)-loss) > 1e-5*loss {
				t.Errorf("step %d, replica %d: loss %v, want %v", step, replica, got.Value(), loss)
			}
		}
		if out[2].Value() != "" {
			t.Errorf("the compilation's result is %q", out[2].Value())
		}
	}
	out, err := s.Run(nil, []tf.Output{output("w_0/Read"), output("w_1/Read"), output("it_0/Read"), output("it_1/Read")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for replica, value := range out[:2] {
		got := value.Value().([][]float32)
		for j := range w {
			for k := range w[j] {
				if math.Abs(float64(got[j][k])-w[j][k]) > 1e-5 {
					t.Errorf("replica %d: w[%d][%d] is %v, want %v", replica, j, k, got[j][k], w[j][k])
				}
			}
		}
	}
	if out[2].Value() != int64(3) || out[3].Value() != int64(3) {
		t.Errorf("steps %v and %v, want 3", out[2].Value(), out[3].Value())
	}
}

// TestRefusesReplicatedLoop asks for a loop with a sum over the replicas in it.
func TestRefusesReplicatedLoop(t *testing.T) {
	g := golden(t, "golden_mirrored_da_loop_dyn_v2_2.pb")
	s, err := tf.NewSession(g, &tf.SessionOptions{Target: "grpc://" + emulate(t, 1, tpuemulator.None)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Run(nil, nil, []*tf.Operation{g.Operation("init")})
	if err == nil || !strings.Contains(err.Error(), "is a CrossReplicaSum; expected it in the graph itself") {
		t.Errorf("got %v", err)
	}
}
