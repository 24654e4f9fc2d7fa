package emulator_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/tpu/emulator"
)

// client is a session with an emulator.
type client struct {
	t       *testing.T
	graph   *tf.Graph
	session *tf.Session
}

// open makes a session with an emulator and a graph that tf.compat.v1.tpu.replicate of
// TensorFlow 2.18 wrote, and adds the operations that configure the TPU.
func open(t *testing.T, address, path string) *client {
	t.Helper()
	return openFor(t, address, path, time.Minute)
}

// openFor is open with a limit for each call.
func openFor(t *testing.T, address, path string, limit time.Duration) *client {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, graph: tf.NewGraph()}
	if err := c.graph.Import(content, ""); err != nil {
		t.Fatal(err)
	}
	for op, name := range map[string]string{"ConfigureDistributedTPU": "configure", "ShutdownDistributedTPU": "shutdown"} {
		if _, err := c.graph.AddOperation(tf.OpSpec{Type: op, Name: name, Device: "/job:worker/device:TPU_SYSTEM:0"}); err != nil {
			t.Fatal(err)
		}
	}
	config, err := proto.Marshal(&cpb.ConfigProto{OperationTimeoutInMs: limit.Milliseconds(), GraphOptions: &cpb.GraphOptions{RewriteOptions: &cpb.RewriterConfig{DisableMetaOptimizer: true}}})
	if err != nil {
		t.Fatal(err)
	}
	if c.session, err = tf.NewSession(c.graph, &tf.SessionOptions{Target: "grpc://" + address, Config: config}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.session.Close() })
	return c
}

// try feeds and fetches by name.
func (c *client) try(feeds map[string]any, fetches []string, targets ...string) ([]any, error) {
	c.t.Helper()
	in := make(map[tf.Output]*tf.Tensor)
	for name, value := range feeds {
		tensor, err := tf.NewTensor(value)
		if err != nil {
			c.t.Fatal(err)
		}
		in[c.graph.Operation(name).Output(0)] = tensor
	}
	var from []tf.Output
	for _, name := range fetches {
		from = append(from, c.graph.Operation(name).Output(0))
	}
	var ops []*tf.Operation
	for _, name := range targets {
		ops = append(ops, c.graph.Operation(name))
	}
	tensors, err := c.session.Run(in, from, ops)
	var out []any
	for _, tensor := range tensors {
		out = append(out, tensor.Value())
	}
	return out, err
}

func (c *client) run(feeds map[string]any, fetches []string, targets ...string) []any {
	c.t.Helper()
	out, err := c.try(feeds, fetches, targets...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// start configures the TPU and initializes the variables.
func (c *client) start() {
	c.t.Helper()
	c.run(nil, nil, "configure")
	c.run(nil, nil, "init")
}

// numbers are those of the same steps on the full batch, see testdata/generate.py.
type numbers struct {
	X      [][][][]float32 // by step, replica and example
	Rates  []float32
	Losses []float64
	W      [][][]float64 // after each step
}

func readNumbers(t *testing.T, replicas int) (out numbers) {
	t.Helper()
	content, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]numbers)
	if err := json.Unmarshal(content, &all); err != nil {
		t.Fatal(err)
	}
	return all[fmt.Sprint(replicas)]
}

// feeds are those of one step, or of all of a loop.
func (e numbers) feeds(replicas, step, n int) map[string]any {
	in := make(map[string]any)
	for r := range replicas {
		if n == 0 {
			in[fmt.Sprint("x", r)] = e.X[step][r]
			continue
		}
		var all [][][]float32
		for _, x := range e.X {
			all = append(all, x[r])
		}
		in[fmt.Sprint("x", r)] = all
	}
	in["rate"] = e.Rates[step]
	if n > 0 {
		in["rate"], in["n"] = e.Rates, int32(n)
	}
	return in
}

// check compares all replicas' variables with those after so many steps.
func (e numbers) check(c *client, replicas, steps int) {
	c.t.Helper()
	for r := range replicas {
		out := c.run(nil, []string{fmt.Sprintf("w_%d/Read", r), fmt.Sprintf("it_%d/Read", r)})
		for i, row := range out[0].([][]float32) {
			for j, v := range row {
				if want := e.W[steps-1][i][j]; math.Abs(float64(v)-want) > 1e-6 {
					c.t.Errorf("replica %d after %d steps: w[%d][%d] is %v, want %v", r, steps, i, j, v, want)
				}
			}
		}
		if out[1] != int64(steps) {
			c.t.Errorf("replica %d counts %v steps, want %d", r, out[1], steps)
		}
	}
}

func close64(got any, want float64) bool {
	v, ok := got.(float32)
	return ok && math.Abs(float64(v)-want) <= 1e-5*math.Abs(want)
}

// TestSteps runs single steps. Only the first replica's result is fetched; all are updated.
func TestSteps(t *testing.T) {
	for kind, replicas := range map[string]int{"step_2": 2, "step_8": 8, "branch_2": 2} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			want := readNumbers(t, replicas)
			c := open(t, emulate(t, 1, emulator.None), filepath.Join("testdata", kind+".pb"))
			c.start()
			for k := range want.Losses {
				out := c.run(want.feeds(replicas, k, 0), []string{"output_0_shard_0"})
				if !close64(out[0], want.Losses[k]) {
					t.Errorf("step %d: loss %v, want %v", k, out[0], want.Losses[k])
				}
				want.check(c, replicas, k+1)
			}
		})
	}
}

// TestLoops runs loops of several lengths, which end at a step that is not applied.
func TestLoops(t *testing.T) {
	for _, k := range []struct {
		graph           string
		replicas, hosts int
	}{{"loop_2", 2, 1}, {"loop_8", 8, 1}, {"loop_8", 8, 2}, {"calls_2", 2, 1}} {
		t.Run(fmt.Sprint(k.graph, "/", k.hosts, " hosts"), func(t *testing.T) {
			t.Parallel()
			want := readNumbers(t, k.replicas)
			path := edit(t, filepath.Join("testdata", k.graph+".pb"), func(g *graphDef) { g.spread(k.hosts) })
			c := open(t, emulate(t, k.hosts, emulator.None), path)
			last := fmt.Sprintf("output_2_shard_%d", k.replicas-1)
			for _, n := range []int{1, len(want.Losses)} {
				c.start()
				out := c.run(want.feeds(k.replicas, 0, n), []string{last, "TPUCompilationResult"})
				for i, loss := range out[0].([]float32) {
					if i < n && !close64(loss, want.Losses[i]) || i >= n && loss != 0 {
						t.Errorf("%d steps: loss %d is %v, want %v", n, i, loss, want.Losses[i])
					}
				}
				if out[1] != "" {
					t.Errorf("the compilation's result is %q", out[1])
				}
				want.check(c, k.replicas, n)
			}
			c.start()
			in := want.feeds(k.replicas, 0, len(want.Losses))
			in["x1"].([][][]float32)[2][0][0] = float32(math.NaN())
			if out := c.run(in, []string{"output_0_shard_0", "output_1_shard_0"}); out[0] != int32(3) || out[1] != false {
				t.Errorf("the loop ended after %v steps, applied %v, want 3 and false", out[0], out[1])
			}
			want.check(c, k.replicas, 2)
		})
	}
}

// TestInside feeds and fetches inside of the computation. A TPU's server has replaced those nodes.
func TestInside(t *testing.T) {
	t.Parallel()
	c := open(t, emulate(t, 1, emulator.None), filepath.Join("testdata", "step_2.pb"))
	c.start()
	numbers := readNumbers(t, 2)
	in := numbers.feeds(2, 0, 0)
	in["replicated_input_1"] = float32(1)
	if _, err := c.try(in, []string{"output_0_shard_0"}); err == nil || !strings.Contains(err.Error(), "FeedInputs: unable to find feed output replicated_input_1:0") {
		t.Errorf("a feed: %v", err)
	}
	if _, err := c.try(numbers.feeds(2, 0, 0), []string{"CrossReplicaSum"}); err == nil || !strings.Contains(err.Error(), "FetchOutputs node CrossReplicaSum:0: not found") {
		t.Errorf("a fetch: %v", err)
	}
}

// TestReplicasDisagree gives the replicas different conditions.
func TestReplicasDisagree(t *testing.T) {
	t.Parallel()
	path := edit(t, "testdata/loop_2.pb", func(g *graphDef) {
		g.node("input2").Input = []string{"n", "one"}
		g.add(`node { name: "one" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape {} } } }`)
	})
	want := readNumbers(t, 2)
	c := open(t, emulate(t, 1, emulator.None), path)
	c.start()
	in := want.feeds(2, 0, 2)
	in["one"] = int32(1)
	_, err := c.try(in, []string{"output_0_shard_0"})
	if err == nil || !strings.Contains(err.Error(), "disagree about the condition of while_cond") || !strings.Contains(err.Error(), "a TPU would hang") {
		t.Errorf("got %v", err)
	}
}
