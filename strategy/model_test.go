package strategy

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// golden exports a small model and drives its own train_step for some steps. It
// writes the batches, what each step gave, and all variables before and after.
const golden = `
import json, sys
import numpy as np
import tensorflow as tf
from gorbit_export import classifier, config, export, optimizers

out, pooling, steps = sys.argv[1], sys.argv[2], 10
c = config.BertConfig(32, 2, 4, 64, vocab_size=50, max_position_embeddings=16)
m = export.write(classifier.Classification(c, 3, pooling), optimizers.AdamW(), out + "/graph")

def variables(name):
    found = {}
    for path, v in m.variables_by_path.items():
        found[path] = v
        for slot in ("m", "v"):
            node = m.optimizer
            for part in [slot, *path.split("/")]:
                node = getattr(node, part)
            found[f"optimizer/{slot}/{path}"] = node
    json.dump({k: v.numpy().ravel().tolist() for k, v in found.items()}, open(f"{out}/{name}.json", "w"))

variables("before")
rng = np.random.default_rng(1)
log = []
for step in range(steps):
    shape = (2 + step % 3, 12)
    lengths = [5, 4]
    f = {n: np.zeros(shape, np.int32) for n in ("input_ids", "type_ids", "sequence_ids", "position_ids")}
    cls = []
    for r in range(shape[0]):
        at = 0
        for i, n in enumerate(lengths, 1):
            cls.append(r * shape[1] + at)
            f["input_ids"][r, at:at+n] = rng.integers(0, 50, n)
            f["type_ids"][r, at:at+n] = rng.integers(0, 2, n)
            f["sequence_ids"][r, at:at+n] = i
            f["position_ids"][r, at:at+n] = np.arange(n)
            at += n
    f["cls_positions"] = np.array(cls, np.int32)
    f["labels"] = rng.integers(0, 3, len(cls)).astype(np.int32)
    f["example_weights"] = rng.uniform(0.5, 1.5, len(cls)).astype(np.float32)
    scalars = dict(hidden_dropout=.1, attention_dropout=.2, classifier_dropout=.1, label_smoothing=.05,
                   learning_rate=1e-3 / (1 + step), weight_decay=.1, beta_1=.9, beta_2=.98, epsilon=1e-6, clip_norm=.5)
    r = m.train_step(seed=tf.constant([7, step], tf.int64),
                     **{k: tf.constant(v) for k, v in f.items()},
                     **{k: tf.constant(v, tf.float32) for k, v in scalars.items()})
    log.append(dict(
        features={k: dict(shape=v.shape, values=v.ravel().tolist()) for k, v in f.items()},
        seed=[7, step], scalars=scalars, result={k: float(v) for k, v in r.items()}))
variables("after")
json.dump(log, open(out + "/steps.json", "w"))
`

type goldenStep struct {
	Features map[string]struct {
		Shape  []int
		Values []float64
	}
	Seed    [2]int64
	Scalars map[string]float64
	Result  map[string]float64
}

func (g goldenStep) features() []Feature {
	var out []Feature
	for name, f := range g.Features {
		x := Feature{Name: name, Shape: f.Shape}
		for _, v := range f.Values {
			if name == "example_weights" {
				x.Float32 = append(x.Float32, float32(v))
			} else {
				x.Int32 = append(x.Int32, int32(v))
			}
		}
		out = append(out, x)
	}
	return out
}

func readJSON[T any](t testing.TB, path string) T {
	t.Helper()
	var v T
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func open(t testing.TB, dir string, functions Functions) *Model {
	t.Helper()
	export, err := graphs.Open(filepath.Join(dir, "graph"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewOneDevice(context.Background(), export, "", Config{Functions: functions})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	values := make(map[string]*tf.Tensor)
	before := readJSON[map[string][]float64](t, filepath.Join(dir, "before.json"))
	for _, v := range s.Variables() {
		if v.Slot {
			continue
		}
		flat := make([]float32, len(before[v.Name]))
		for i, x := range before[v.Name] {
			flat[i] = float32(x)
		}
		if values[v.Name], err = newTensor(tf.Float, v.Shape, raw(flat)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Assign(context.Background(), values); err != nil {
		t.Fatal(err)
	}
	return s
}

func variables(t testing.TB, s *Model) map[string][]float64 {
	t.Helper()
	var names []string
	for _, v := range s.Variables() {
		names = append(names, v.Name)
	}
	tensors, err := s.Read(context.Background(), names...)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]float64)
	for i, name := range names {
		if out[name], err = floats(tensors[i]); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func near(a, b, tolerance float64) bool {
	return math.Abs(a-b) <= tolerance*math.Max(1, math.Abs(b))
}

func TestComposedStepEqualsTrainStep(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	for _, pooling := range []string{"first", "mean"} {
		t.Run(pooling, func(t *testing.T) {
			dir := testkit.Made(t, golden, pooling)
			s := open(t, dir, FunctionsTrain)
			steps := readJSON[[]goldenStep](t, filepath.Join(dir, "steps.json"))
			if len(steps) != 10 {
				t.Fatalf("%d golden steps", len(steps))
			}
			for i, g := range steps {
				r, err := stepOf(context.Background(), s, [][]Feature{g.features()}, g.Seed, g.Scalars)
				if err != nil {
					t.Fatal(err)
				}
				if !r.Applied || r.Iterations != int64(i+1) {
					t.Errorf("step %d: applied %v, iterations %d", i+1, r.Applied, r.Iterations)
				}
				if want := g.Result["gradient_norm"]; !near(r.GradientNorm, want, 1e-6) {
					t.Errorf("step %d: gradient norm %v, train_step's %v", i+1, r.GradientNorm, want)
				}
				for _, name := range []string{"loss_sum", "weight_sum", "accuracy_sum"} {
					if want := g.Result[name]; !near(r.Sums[name][0], want, 1e-6) {
						t.Errorf("step %d: %s %v, train_step's %v", i+1, name, r.Sums[name][0], want)
					}
				}
			}
			got, want := variables(t, s), readJSON[map[string][]float64](t, filepath.Join(dir, "after.json"))
			for name := range want {
				for i := range want[name] {
					if !near(got[name][i], want[name][i], 1e-6) {
						t.Fatalf("%s[%d] is %v after 10 steps, train_step's %v", name, i, got[name][i], want[name][i])
					}
				}
			}
			before := readJSON[map[string][]float64](t, filepath.Join(dir, "before.json"))
			for name := range want {
				if allEqual(before[name], want[name]) {
					t.Errorf("%s did not change: the test shows nothing", name)
				}
			}
		})
	}
}

func allEqual(a, b []float64) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestStepErrors(t *testing.T) {
	dir := testkit.Made(t, golden, "mean")
	s := open(t, dir, FunctionsTrain)
	g := readJSON[[]goldenStep](t, filepath.Join(dir, "steps.json"))[0]
	ctx := context.Background()
	for _, test := range []struct {
		name   string
		change func(f []Feature, s Scalars) []Feature
		want   string
	}{
		{"missing feature", func(f []Feature, _ Scalars) []Feature { return f[:0] }, "the batch has no feature input_ids; the graph needs it"},
		{"unknown scalar", func(f []Feature, s Scalars) []Feature { s["momentum"] = 1; return f }, `the graph has no hyperparameter "momentum"`},
		{"no learning rate", func(f []Feature, s Scalars) []Feature { delete(s, "learning_rate"); return f }, "the step has no learning_rate; set it in StepInput.Scalars"},
		{"short feature", func(f []Feature, _ Scalars) []Feature {
			for i := range f {
				if f[i].Name == "labels" {
					f[i].Int32 = f[i].Int32[1:]
				}
			}
			return f
		}, "feature labels has 3 values; expected 4 for shape [4]"},
	} {
		scalars := make(Scalars)
		for k, v := range g.Scalars {
			scalars[k] = v
		}
		_, err := stepOf(ctx, s, [][]Feature{test.change(g.features(), scalars)}, g.Seed, scalars)
		if err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
	}
	if _, err := stepOf(ctx, open(t, dir, FunctionsEvaluate), [][]Feature{g.features()}, g.Seed, g.Scalars); err == nil {
		t.Error("a graph composed for evaluation made a step")
	}
}

// TestSteps makes several steps in a call, and wants what each call of one gives: the results of
// those that were made where one cannot be.
func TestSteps(t *testing.T) {
	dir := testkit.Made(t, golden, "mean")
	var in []StepInput
	for _, g := range readJSON[[]goldenStep](t, filepath.Join(dir, "steps.json"))[:3] {
		in = append(in, StepInput{Batches: [][]Feature{g.features()}, Seed: g.Seed, Scalars: g.Scalars})
	}
	ctx := context.Background()
	together, one := open(t, dir, FunctionsTrain), open(t, dir, FunctionsTrain)
	results, err := together.Steps(ctx, in)
	if err != nil || len(results) != len(in) {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i, s := range in {
		want, err := one.Steps(ctx, []StepInput{s})
		if err != nil {
			t.Fatal(err)
		}
		want[0].InSession, results[i].InSession = 0, 0
		if !reflect.DeepEqual(results[i], want[0]) {
			t.Errorf("step %d gives %+v, alone %+v", i, results[i], want[0])
		}
	}
	for name, values := range variables(t, one) {
		if got := variables(t, together)[name]; !allEqual(got, values) {
			t.Errorf("%s differs", name)
		}
	}
	in[1].Batches = append(in[1].Batches, in[1].Batches[0], in[0].Batches[0])
	in[2].Drawn = new(Drawn)
	results, err = together.Steps(ctx, in)
	if err == nil || len(results) != 2 || results[1].Iterations != 5 {
		t.Errorf("%d results, %v; expected two and an error", len(results), err)
	}
	if results, err = together.Steps(ctx, nil); len(results) != 0 || err != nil {
		t.Errorf("no steps give %v, %v", results, err)
	}
}

func TestUnknownDevice(t *testing.T) {
	dir := testkit.Made(t, golden, "mean")
	export, err := graphs.Open(filepath.Join(dir, "graph"))
	if err != nil {
		t.Fatal(err)
	}
	for device, ok := range map[string]bool{"/device:CPU:0": true, "cpu:7": false, "/device:GPU:99": false, "U:0": false} {
		s, err := NewOneDevice(context.Background(), export, device, Config{Functions: FunctionsEvaluate})
		if err == nil {
			s.Close()
		}
		var unknown *DeviceError
		if ok != (err == nil) || !ok && !errors.As(err, &unknown) {
			t.Errorf("%s: %v", device, err)
		}
	}
}

// TestOutOfMemory has what TensorFlow says where memory ran out, and what only
// resembles it.
func TestOutOfMemory(t *testing.T) {
	for message, want := range map[string]bool{
		"OOM when allocating tensor with shape[32,12,128,128] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc": true,
		"OOM when allocating temporary tensor with shape[64]":                              true,
		"failed to allocate memory\n\t [[{{node gradients/AddV2}}]]":                       true,
		"Out of memory while trying to allocate 7406166528 bytes.":                         true,
		"Out of memory allocating 4096 bytes.":                                             true,
		"Failed to allocate request for 2.58GiB (2770000000B) on device ordinal 0":         true,
		"SameWorkerRecvDone unable to allocate output tensor. Key: /job:localhost/...":     true,
		"Dst tensor is not initialized.\n\t [[{{node features}}]]":                         true,
		"CUDNN failed to allocate the scratch space for the runner or to find a working":   true,
		"failed to allocate 32.00M (33554432 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY": true,
		"failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED":                       true,
		"Received message larger than max (5242880 vs. 4194304)":                           false,
		"failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED":                     false,
		"Blas xGEMM launch failed : a.shape=[1,32,128], b.shape=[1,128,2], m=32, n=2":      false,
		"Socket closed": false,
	} {
		if got := oom(errors.New(message)); got != want {
			t.Errorf("%s: out of memory %v", message, got)
		}
	}
}
