package strategy

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster/clustertest"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// replicaModel exports a model in float32 and in fp16. It has one layer: more layers would make each
// way to divide a batch slower to compose, and test nothing more of it.
const replicaModel = `
import sys
from gorbit_export import classifier, config, export, optimizers

c = config.BertConfig(32, 1, 2, 48, vocab_size=30, max_position_embeddings=16)
export.write(classifier.Classification(c, 3, "mean"), optimizers.AdamW(), sys.argv[1] + "/graph")
export.write(classifier.Classification(c, 3, "mean", precision="fp16"), optimizers.AdamW(), sys.argv[1] + "/fp16")
`

// replicaExport opens the float32 export of replicaModel.
func replicaExport(t testing.TB) *graphs.Export { return replicaExportIn(t, "graph") }

// replicaExportIn opens an export of replicaModel, which is made once.
func replicaExportIn(t testing.TB, folder string) *graphs.Export {
	t.Helper()
	export, err := graphs.Open(filepath.Join(testkit.Made(t, replicaModel), folder))
	if err != nil {
		t.Fatal(err)
	}
	return export
}

// TestMain lets the test binary be a worker's child, too.
func TestMain(m *testing.M) {
	clustertest.Serve(nil)
	os.Exit(m.Run())
}

// connect starts workers and connects to them.
func connect(t *testing.T, n int, devices string) *cluster.Cluster {
	t.Helper()
	addresses := clustertest.StartSelf(t, devices, make([]string, n)...)
	f, err := cluster.Connect(t.Context(), cluster.Config{Addresses: addresses, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

var rows16 = packed.Config{RowLength: 16}

// randomBatch makes a batch of examples with weights of their own.
func randomBatch(t testing.TB, rng *rand.Rand, n int) *dataset.Batch {
	t.Helper()
	examples := make([]packed.Example, n)
	for i := range examples {
		e := packed.Example{Label: rng.Int32N(3), Labeled: true}
		for range 1 + rng.IntN(16) {
			e.IDs = append(e.IDs, rng.Int32N(30))
			e.TypeIDs = append(e.TypeIDs, rng.Int32N(2))
		}
		examples[i] = e
	}
	b, err := packed.FromExamples(rows16, examples)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Feature(packed.ExampleWeights).Float32 {
		b.Feature(packed.ExampleWeights).Float32[i] = 0.5 + rng.Float32()
	}
	return b
}

// micro divides a batch.
func micro(t testing.TB, b *dataset.Batch, n int) [][]Feature {
	t.Helper()
	parts, err := rows16.Split(b, n)
	if err != nil {
		t.Fatal(err)
	}
	out := make([][]Feature, n)
	for i, p := range parts {
		out[i] = p.Features
	}
	return out
}

// held reads every variable from every replica that has it.
func held(t testing.TB, m *Model) map[string][]*tf.Tensor {
	t.Helper()
	var names []string
	var fetches []build.Ref
	for _, v := range m.Variables() {
		for _, ref := range m.plan.Reads[v.Name] {
			names = append(names, v.Name)
			fetches = append(fetches, ref)
		}
	}
	values, err := m.session.run(context.Background(), nil, fetches)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]*tf.Tensor)
	for i, name := range names {
		out[name] = append(out[name], values[i])
	}
	return out
}

func bytesOf(t testing.TB, v *tf.Tensor) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := v.WriteContentsTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// way is one of the ways to train the same.
type way struct {
	name       string
	workers    int // with as many devices each as there are replicas; 0 is this process
	replicas   int
	accumulate int
	config     Config
}

var ways = []way{
	{"accumulate 4", 0, 1, 4, Config{}},
	{"2 lanes", 0, 1, 1, Config{Lanes: 2}},
	{"2 lanes, accumulate 2, standard operations", 0, 1, 2, Config{Lanes: 2, StandardOps: true}},
	{"mirrored 2", 0, 2, 1, Config{}},
	{"mirrored 4", 0, 4, 1, Config{}},
	{"mirrored 2, standard operations", 0, 2, 1, Config{StandardOps: true}},
	{"mirrored 2, a bucket per variable", 0, 2, 1, Config{BucketBytes: 1}},
	{"mirrored 3, a bucket for all", 0, 3, 1, Config{BucketBytes: 1 << 30}},
	{"mirrored 2, accumulate 3", 0, 2, 3, Config{}},
	{"sharded 2", 0, 2, 1, Config{ShardOptimizer: true}},
	{"sharded 4, accumulate 2", 0, 4, 2, Config{ShardOptimizer: true}},
	{"sharded 2, standard operations", 0, 2, 1, Config{ShardOptimizer: true, StandardOps: true}},
	{"2 workers", 2, 1, 1, Config{}},
	{"2 workers, sharded", 2, 1, 1, Config{ShardOptimizer: true}},
	{"2 workers with 2 devices, accumulate 2", 2, 2, 2, Config{}},
}

// TestWaysAgree holds every way to divide a batch against one replica that takes it
// whole, uneven last batches included: variables and slots after 20 steps, and what
// each step says. Replicas must agree with each other bit for bit.
func TestWaysAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export := replicaExport(t)
	ctx := context.Background()
	one, err := NewOneDevice(ctx, export, "", Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	trained := train(t, one, 1)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			m := w.open(t, export)
			agree(t, m, train(t, m, w.accumulate), one, trained)
			timed(t, m)
		})
	}
}

// TestSameBitsAgain wants a training to end in the same bits however its parts were
// scheduled.
func TestSameBitsAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export := replicaExport(t)
	for _, w := range []way{
		{"4 lanes", 0, 1, 1, Config{Lanes: 4}},
		{"2 lanes, standard operations", 0, 1, 1, Config{Lanes: 2, StandardOps: true}},
		{"4 lanes, standard operations", 0, 1, 1, Config{Lanes: 4, StandardOps: true}},
		{"sharded 4", 0, 4, 1, Config{ShardOptimizer: true}},
	} {
		t.Run(w.name, func(t *testing.T) {
			want := make(map[string][]byte)
			m := w.open(t, export)
			begin, err := m.Read(t.Context(), export.Contract.Optimizer.Iterations)
			if err != nil {
				t.Fatal(err)
			}
			for run := range 3 {
				if err := m.Assign(t.Context(), map[string]*tf.Tensor{export.Contract.Optimizer.Iterations: begin[0]}); err != nil {
					t.Fatal(err)
				}
				train(t, m, w.accumulate)
				for name, all := range held(t, m) {
					got := bytesOf(t, all[0])
					if run == 0 {
						want[name] = got
					} else if !bytes.Equal(got, want[name]) {
						t.Fatalf("run %d: %s has other bits than in the first run", run, name)
					}
				}
			}
		})
	}
}

// open composes an export. A way whose name begins with "XLA" takes it as if it were made with --xla.
func (w way) open(t *testing.T, export *graphs.Export) *Model {
	t.Helper()
	if strings.HasPrefix(w.name, "XLA") {
		export = asCompiled(export)
	}
	ctx := context.Background()
	var m *Model
	var err error
	switch {
	case w.workers > 0:
		var on *MultiWorker
		if on, err = NewMultiWorker(ctx, export, connect(t, w.workers, fmt.Sprintf("cpu:%d", w.replicas)), w.config); err == nil {
			m = on.Model
		}
	case w.replicas == 1:
		m, err = NewOneDevice(ctx, export, "", w.config)
	default:
		m, err = NewMirrored(ctx, export, cpus(w.replicas), w.config)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// started is open with random variables, and what random numbers follow.
func (w way) started(t *testing.T, export *graphs.Export) (*Model, *rand.Rand) {
	t.Helper()
	m, rng := w.open(t, export), rand.New(rand.NewPCG(1, 1))
	start(t, m, rng)
	return m, rng
}

// train makes 20 steps without dropout, with last batches of an epoch among them
// that are smaller than the number of replicas.
func train(t *testing.T, m *Model, accumulate int) []*Result {
	t.Helper()
	start(t, m, rand.New(rand.NewPCG(3, 5)))
	rng := rand.New(rand.NewPCG(7, 8))
	var out []*Result
	for step := range 20 {
		n := 13
		if step%5 == 4 {
			n = 1 + step/5
		}
		b := randomBatch(t, rng, n)
		scalars := Scalars{"learning_rate": 0.01, "weight_decay": 0.1, "clip_norm": 1, "hidden_dropout": 0, "attention_dropout": 0, "classifier_dropout": 0}
		r, err := stepOf(context.Background(), m, micro(t, b, m.runtime.MicroBatches*accumulate), [2]int64{1, int64(step)}, scalars)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// timed wants every replica of several to know where its time went.
func timed(t *testing.T, m *Model) {
	t.Helper()
	times := m.Times()
	want := len(m.runtime.Devices)
	if want == 1 {
		want = 0
	}
	if len(times) != want {
		t.Fatalf("times of %d replicas, expected %d", len(times), want)
	}
	for i, r := range times {
		if r.Compute <= 0 || r.Reduce < 0 || r.Update <= 0 || r.Compute+r.Reduce+r.Update > time.Hour {
			t.Errorf("replica %d took %+v", i, r)
		}
	}
}

func agree(t *testing.T, m *Model, got []*Result, one *Model, want []*Result) {
	t.Helper()
	for step, w := range want {
		g := got[step]
		if !near(g.GradientNorm, w.GradientNorm, 1e-5) || !g.Applied || g.Iterations != w.Iterations {
			t.Fatalf("step %d: norm %v, applied %v, iteration %d; one replica has %v, %v, %d",
				step, g.GradientNorm, g.Applied, g.Iterations, w.GradientNorm, w.Applied, w.Iterations)
		}
		for name, sum := range w.Sums {
			for i := range sum {
				if !near(g.Sums[name][i], sum[i], 1e-5) {
					t.Fatalf("step %d: %s is %v, of one replica %v", step, name, g.Sums[name], sum)
				}
			}
		}
	}
	theirs, wanted := held(t, m), held(t, one)
	for _, v := range one.Variables() {
		all := theirs[v.Name]
		for i, other := range all[1:] {
			if !bytes.Equal(bytesOf(t, other), bytesOf(t, all[0])) {
				t.Errorf("%s differs between replica 0 and replica %d", v.Name, i+1)
			}
		}
		mine, err := floats(all[0])
		if err != nil {
			t.Fatal(err)
		}
		his, err := floats(wanted[v.Name][0])
		if err != nil {
			t.Fatal(err)
		}
		for i := range his {
			if math.Abs(mine[i]-his[i]) > 1e-5 {
				t.Errorf("%s[%d] is %v, of one replica %v", v.Name, i, mine[i], his[i])
				break
			}
		}
	}
}

// TestOverflowEverywhere wants a step whose gradients are too large for float16 on one
// replica alone to be skipped by all, and the next to be made by all; also where the step is a program.
func TestOverflowEverywhere(t *testing.T) {
	if why := devices.NoFP16(); why != "" {
		t.Skip(why)
	}
	if testing.Short() {
		t.Skip("computes for long")
	}
	export := replicaExportIn(t, "fp16")
	ctx := context.Background()
	for _, w := range []way{{"mirrored", 0, 2, 1, Config{}}, {"sharded", 0, 2, 1, Config{ShardOptimizer: true}}, {"XLA", 0, 1, 1, Config{}}} {
		t.Run(w.name, func(t *testing.T) {
			m, rng := w.started(t, export)
			parts := micro(t, randomBatch(t, rng, 9), len(m.runtime.Devices))
			step := func(weight float32) *Result {
				t.Helper()
				last := parts[len(parts)-1]
				for i := range last {
					if f := &last[i]; f.Name == packed.ExampleWeights {
						f.Float32[0] = weight
					}
				}
				r, err := stepOf(ctx, m, parts, [2]int64{1, 1}, Scalars{"learning_rate": 0.1, graphs.LossScale: 256})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			before := variables(t, m)
			if r := step(1e6); r.Applied || r.Iterations != 0 || math.IsInf(r.Sums["loss_sum"][0], 0) || math.IsNaN(r.Sums["loss_sum"][0]) {
				t.Errorf("the step that overflows: %+v", r)
			}
			for name, all := range held(t, m) {
				for i, value := range all {
					if got, err := floats(value); err != nil || fmt.Sprint(got) != fmt.Sprint(before[name]) {
						t.Errorf("%s has changed on replica %d (%v)", name, i, err)
					}
				}
			}
			if r := step(1); !r.Applied || r.Iterations != 1 {
				t.Errorf("the step that does not: %+v", r)
			}
			changed := 0
			for name, all := range held(t, m) {
				for i, value := range all {
					if !bytes.Equal(bytesOf(t, value), bytesOf(t, all[0])) {
						t.Errorf("%s differs between replica 0 and replica %d", name, i)
					}
				}
				if got, err := floats(all[0]); err != nil || fmt.Sprint(got) != fmt.Sprint(before[name]) {
					changed++
				}
			}
			if changed < len(before)/2 {
				t.Errorf("%d of %d variables have changed", changed, len(before))
			}
		})
	}
}

// TestEvaluateOnReplicas wants the same sums and outputs from every replica.
func TestEvaluateOnReplicas(t *testing.T) {
	export := replicaExport(t)
	ctx := context.Background()
	m, err := NewMirrored(ctx, export, cpus(3), Config{Functions: FunctionsEvaluate})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	rng := rand.New(rand.NewPCG(1, 1))
	start(t, m, rng)
	features := micro(t, randomBatch(t, rng, 9), 1)[0]
	var sums, outputs []string
	for i := range m.calls {
		// The others are busy.
		for j := range m.calls {
			m.calls[j] = 1
		}
		m.calls[i] = 0
		s, err := m.Evaluate(ctx, features)
		if err != nil {
			t.Fatal(err)
		}
		m.calls[i] = 0
		o, err := m.Predict(ctx, features)
		if err != nil {
			t.Fatal(err)
		}
		sums, outputs = append(sums, fmt.Sprint(s)), append(outputs, fmt.Sprint(o))
	}
	for i := range sums {
		if sums[i] != sums[0] || outputs[i] != outputs[0] {
			t.Errorf("replica %d gives %s, replica 0 %s", i, sums[i], sums[0])
		}
	}
}

// cpus names so many CPU devices.
func cpus(n int) []string { return devices.Spec{Type: "CPU", Count: n}.Names() }

// stepOf makes one step.
func stepOf(ctx context.Context, s Strategy, batches [][]Feature, seed [2]int64, scalars Scalars) (*Result, error) {
	results, err := s.Steps(ctx, []StepInput{{Batches: batches, Seed: seed, Scalars: scalars}})
	if err != nil {
		return nil, err
	}
	return &results[0], nil
}
