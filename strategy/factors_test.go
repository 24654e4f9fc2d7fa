package strategy

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// factorsModel exports a model of three layers, and trains the same one with Keras' AdamW: one
// optimizer for each layer that is trained, and a layer that is not trainable. Keras adds epsilon elsewhere,
// so it is next to nothing.
const factorsModel = lineTask + `
import json
import keras
import numpy as np

export.write(Line(low=7, middle=6, high=3), optimizers.AdamW(), sys.argv[1] + "/graph")

RATE, DECAY, CLIP = 0.02, 0.1, 0.7
SCALES = {"middle": (0.5, 3.0), "high": (1.0, 1.0)}  # of the learning rate and of the weight decay

keras.config.set_floatx("float64")  # in float32, Keras rounds the powers of the betas
rng = np.random.default_rng(5)
low = keras.layers.Dense(7, "tanh", name="low", trainable=False)
middle = keras.layers.Dense(6, "tanh", name="middle")
high = keras.layers.Dense(3, name="high")
model = keras.Sequential([keras.layers.Input((5,)), low, middle, high])
for v in model.variables:
    v.assign(rng.normal(0, 0.3, v.shape).astype(np.float32))
names = {layer.name + "/" + v.name: v for layer in model.layers for v in layer.variables}

def values(of):
    return {"model/" + name: np.asarray(v).ravel().tolist() for name, v in of.items()}

golden = {"first": values(names), "steps": []}
made = {}
for layer, (rate, decay) in SCALES.items():
    made[layer] = keras.optimizers.AdamW(RATE * rate, weight_decay=DECAY * decay, epsilon=1e-12, use_ema=True, ema_momentum=0.8)
    made[layer].exclude_from_weight_decay(var_names=["bias"])
    made[layer].build(model.get_layer(layer).trainable_variables)

for step in range(10):
    x = rng.normal(0, 1, (12, 5)).astype(np.float32).astype(np.float64)
    y = rng.normal(0, 1, (12, 3)).astype(np.float32).astype(np.float64)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((model(x) - y) ** 2) / 12
    trained = model.trainable_variables
    gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, [v.value for v in trained]), CLIP)
    gradients = dict(zip([v.path for v in trained], gradients))
    for layer, optimizer in made.items():
        own = model.get_layer(layer).trainable_variables
        optimizer.apply([gradients[v.path] for v in own], own)
    golden["steps"].append({"x": x.ravel().tolist(), "y": y.ravel().tolist(), "norm": float(norm)})
golden["last"] = values(names)
golden["averages"] = values({layer + "/" + v.name: average
    for layer, o in made.items() for v, average in zip(model.get_layer(layer).trainable_variables, o._model_variables_moving_average)})
x, y = (np.array(golden["steps"][0][k]).reshape(12, -1) for k in "xy")
for layer, o in made.items():
    for v, average in zip(model.get_layer(layer).trainable_variables, o._model_variables_moving_average):
        v.assign(average)
golden["averaged_loss_sum"] = float(tf.reduce_sum((model(x) - y) ** 2))
with open(sys.argv[1] + "/golden.json", "w") as f:
    json.dump(golden, f)
`

// factorsGolden is what factorsModel writes. Variables are flat, by name.
type factorsGolden struct {
	First, Last, Averages map[string][]float64
	Steps                 []struct {
		X, Y []float32
		Norm float64
	}
	AveragedLossSum float64 `json:"averaged_loss_sum"`
}

// Factors that freeze a layer, and train another with scales of its own.
var someFactors = map[string]Factor{
	"model/low/kernel":    {Frozen: true},
	"model/low/bias":      {Frozen: true},
	"model/middle/kernel": {LearningRate: 0.5, WeightDecay: 3},
	"model/middle/bias":   {LearningRate: 0.5, WeightDecay: 3},
}

func openFactors(t *testing.T) (*graphs.Export, factorsGolden) {
	t.Helper()
	dir := testkit.Made(t, factorsModel)
	export, err := graphs.Open(filepath.Join(dir, "graph"))
	if err != nil {
		t.Fatal(err)
	}
	return export, readJSON[factorsGolden](t, filepath.Join(dir, "golden.json"))
}

// inputs returns the golden steps, each divided into parts.
func (g factorsGolden) inputs(parts int) []StepInput {
	var out []StepInput
	for i, s := range g.Steps {
		in := StepInput{Seed: [2]int64{1, int64(i)}, Scalars: Scalars{"learning_rate": 0.02, "weight_decay": 0.1, "clip_norm": 0.7, "epsilon": 1e-12}}
		for k := range parts {
			n := 12 / parts
			in.Batches = append(in.Batches, []Feature{
				{Name: "x", Shape: []int{n, 5}, Float32: s.X[k*n*5 : (k+1)*n*5]},
				{Name: "y", Shape: []int{n, 3}, Float32: s.Y[k*n*3 : (k+1)*n*3]},
			})
		}
		out = append(out, in)
	}
	return out
}

// begin sets the model's variables to those that Keras began with.
func (g factorsGolden) begin(t *testing.T, m Strategy) {
	t.Helper()
	values := make(map[string]*tf.Tensor)
	for _, v := range m.Variables() {
		if first, ok := g.First[v.Name]; ok {
			flat := make([]float32, len(first))
			for i, x := range first {
				flat[i] = float32(x)
			}
			value, err := newTensor(tf.Float, v.Shape, raw(flat))
			if err != nil {
				t.Fatal(err)
			}
			values[v.Name] = value
		}
	}
	if err := m.Assign(t.Context(), values); err != nil {
		t.Fatal(err)
	}
}

// TestFactorsOfRuns holds ten steps with frozen variables, with factors of the learning rate and weight
// decay, and with moving averages, against Keras', in every way to divide them.
func TestFactorsOfRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export, golden := openFactors(t)
	for _, w := range []way{
		{"one device", 0, 1, 1, Config{}},
		{"standard operations", 0, 1, 1, Config{StandardOps: true}},
		{"5 steps per call", 0, 1, 1, Config{StepsPerCall: 5}},
		{"accumulate 3", 0, 1, 3, Config{}},
		{"2 lanes, 5 steps per call", 0, 1, 1, Config{Lanes: 2, StepsPerCall: 5}},
		{"XLA, 5 steps per call", 0, 1, 1, Config{StepsPerCall: 5}},
		{"XLA, accumulate 3", 0, 1, 3, Config{}},
		{"mirrored 2", 0, 2, 1, Config{}},
		{"mirrored 3, with collectives", 0, 3, 1, Config{}},
		{"sharded 2, accumulate 2", 0, 2, 2, Config{ShardOptimizer: true}},
		{"2 workers, sharded", 2, 1, 1, Config{ShardOptimizer: true}},
		{"mirrored 2, as on GPUs, 5 steps per call", 0, 2, 1, Config{together: 200, StepsPerCall: 5}},
		{"sharded 2, as on GPUs, accumulate 2", 0, 2, 2, Config{together: 1 << 20, ShardOptimizer: true}},
	} {
		t.Run(w.name, func(t *testing.T) {
			w.config.Factors, w.config.Average = someFactors, 0.8
			m := w.open(t, export)
			golden.check(t, m, m.runtime.MicroBatches*w.accumulate)
			for name, all := range held(t, m) {
				if strings.HasPrefix(name, "optimizer/") && strings.Contains(name, "/low/") {
					t.Errorf("%s exists, although its variable is frozen", name)
				}
				for i, value := range all {
					if !bytes.Equal(bytesOf(t, value), bytesOf(t, all[0])) {
						t.Errorf("%s has other bits on replica %d", name, i)
					}
				}
			}
		})
	}
	t.Run("TPU", func(t *testing.T) {
		m, err := NewTPU(t.Context(), export, startTPU(t), Config{Replicas: 2, StepsPerCall: 5, Axes: map[string]int64{"examples": 6}, Patience: time.Minute, Factors: someFactors, Average: 0.8})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		golden.check(t, m, 2)
	})
}

// check makes the golden steps, divided into parts, and compares the norms and variables.
func (g factorsGolden) check(t *testing.T, m Strategy, parts int) {
	t.Helper()
	g.begin(t, m)
	results, err := m.Steps(t.Context(), g.inputs(parts))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if !r.Applied || !near(r.GradientNorm, g.Steps[i].Norm, 1e-5) {
			t.Errorf("step %d: applied %v with norm %v; Keras has %v", i, r.Applied, r.GradientNorm, g.Steps[i].Norm)
		}
	}
	g.compare(t, m, "", g.Last)
	g.compare(t, m, graphs.AveragePrefix, g.Averages)
	first := g.inputs(parts)[:1]
	sum := 0.0
	for i := 0; i < parts; i += g.evaluated(m) {
		batches := first[0].Batches[i : i+g.evaluated(m)]
		sums, err := m.Evaluate(t.Context(), batches[0])
		if all, ok := m.(*TPU); ok {
			sums, err = all.EvaluateAll(t.Context(), batches)
		}
		if err != nil {
			t.Fatal(err)
		}
		sum += sums["loss_sum"][0]
	}
	if !near(sum, g.AveragedLossSum, 1e-5) {
		t.Errorf("evaluations give a loss of %v; Keras with the averages %v", sum, g.AveragedLossSum)
	}

	first[0].Batches[0][0].Float32 = slices.Clone(first[0].Batches[0][0].Float32)
	first[0].Batches[0][0].Float32[0] = float32(math.NaN())
	if results, err := m.Steps(t.Context(), first); err != nil || results[0].Applied {
		t.Fatal(results, err)
	}
	g.compare(t, m, "", g.Last)
	g.compare(t, m, graphs.AveragePrefix, g.Averages)
}

// TestEqualWeights trains with averages that are means from an update on, and compares them with the
// means of the variables that the updates made.
func TestEqualWeights(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export, golden := openFactors(t)
	plain := way{"plain", 0, 1, 1, Config{Factors: someFactors}}.open(t, export)
	golden.begin(t, plain)
	all := golden.inputs(1)
	const from, every = 2, 2
	want, taken := make(map[string][]float64), 0.0
	for i := range all {
		if _, err := plain.Steps(t.Context(), all[i:i+1]); err != nil {
			t.Fatal(err)
		}
		if update := i + 1; update >= from && (update-from)%every == 0 {
			taken++
			for name := range golden.Averages {
				value, err := plain.Read(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				now, err := floats(value[0])
				if err != nil {
					t.Fatal(err)
				}
				for k, x := range now {
					if taken == 1 {
						want[name] = append(want[name], x)
					} else {
						want[name][k] += (x - want[name][k]) / taken
					}
				}
			}
		}
	}
	if taken < 2 {
		t.Fatalf("the golden has %d steps; expected more to average", len(all))
	}
	for _, w := range []way{
		{"one device", 0, 1, 1, Config{}},
		{"5 steps per call", 0, 1, 1, Config{StepsPerCall: 5}},
		{"XLA, 5 steps per call", 0, 1, 1, Config{StepsPerCall: 5}},
		{"sharded 2, accumulate 2", 0, 2, 2, Config{ShardOptimizer: true}},
		{"mirrored 2, as on GPUs, 5 steps per call", 0, 2, 1, Config{together: 200, StepsPerCall: 5}},
	} {
		t.Run(w.name, func(t *testing.T) {
			w.config.Factors, w.config.AverageFrom, w.config.AverageEvery = someFactors, from, every
			m := w.open(t, export)
			golden.begin(t, m)
			if _, err := m.Steps(t.Context(), golden.inputs(m.runtime.MicroBatches*w.accumulate)); err != nil {
				t.Fatal(err)
			}
			golden.compare(t, m, graphs.AveragePrefix, want)
		})
	}
	t.Run("TPU", func(t *testing.T) {
		m, err := NewTPU(t.Context(), export, startTPU(t), Config{Replicas: 2, StepsPerCall: 5, Axes: map[string]int64{"examples": 6}, Patience: time.Minute,
			Factors: someFactors, AverageFrom: from, AverageEvery: every})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		golden.begin(t, m)
		if _, err := m.Steps(t.Context(), golden.inputs(2)); err != nil {
			t.Fatal(err)
		}
		golden.compare(t, m, graphs.AveragePrefix, want)
	})
}

// evaluated is the number of parts that a strategy evaluates at once.
func (g factorsGolden) evaluated(m Strategy) int {
	if _, ok := m.(*TPU); ok {
		return m.Runtime().MicroBatches
	}
	return 1
}

// compare holds the model's variables, whose names begin with a prefix, against those of Keras.
func (g factorsGolden) compare(t *testing.T, m Strategy, prefix string, want map[string][]float64) {
	t.Helper()
	for name, want := range want {
		value, err := m.Read(t.Context(), prefix+name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := floats(value[0])
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if !near(got[i], want[i], 1e-5) {
				t.Errorf("%s%s[%d] is %v; expected %v", prefix, name, i, got[i], want[i])
				break
			}
		}
		if strings.Contains(name, "/low/") && !slices.Equal(got, want) {
			t.Errorf("%s is frozen and has changed", name)
		}
	}
}

// TestFactorsOfOneChangeNothing wants the same graph, byte for byte, with factors of 1 and without any.
func TestFactorsOfOneChangeNothing(t *testing.T) {
	export, _ := openFactors(t)
	ones := make(map[string]Factor)
	for _, v := range export.Contract.Variables {
		ones[v.Name] = Factor{LearningRate: 1, WeightDecay: 1}
	}
	def := func(config Config) []byte {
		m, err := NewOneDevice(t.Context(), export, "", config)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		def, err := m.GraphDef()
		if err != nil {
			t.Fatal(err)
		}
		return def
	}
	if !bytes.Equal(def(Config{}), def(Config{Factors: ones})) {
		t.Error("the graph differs")
	}
}

// TestFrozenHasNoBackward wants the same bits of what is trained where a layer is frozen as where its
// learning rate is 0, but fewer products: the backward pass ends above the frozen layer.
func TestFrozenHasNoBackward(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export, golden := openFactors(t)
	trained := func(low Factor, standard bool) (values map[string][]byte, products int) {
		m, err := NewOneDevice(t.Context(), export, "", Config{StandardOps: standard, Factors: map[string]Factor{"model/low/kernel": low, "model/low/bias": low}})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		golden.begin(t, m)
		steps := golden.inputs(1)
		for _, s := range steps {
			s.Scalars["clip_norm"] = 0 // the norm is that of other gradients
		}
		if _, err := m.Steps(t.Context(), steps); err != nil {
			t.Fatal(err)
		}
		values = make(map[string][]byte)
		for name, all := range held(t, m) {
			if !strings.HasPrefix(name, "optimizer/") || !strings.Contains(name, "/low/") {
				values[name] = bytesOf(t, all[0])
			}
		}
		def, err := m.GraphDef()
		if err != nil {
			t.Fatal(err)
		}
		graph := new(gpb.GraphDef)
		if err := proto.Unmarshal(def, graph); err != nil {
			t.Fatal(err)
		}
		for _, f := range graph.GetLibrary().GetFunction() {
			if f.GetSignature().GetName() == export.Functions["gradients"].GraphName {
				for _, n := range f.GetNodeDef() {
					if n.GetOp() == "MatMul" {
						products++
					}
				}
			}
		}
		return values, products
	}
	for _, standard := range []bool{false, true} {
		frozen, few := trained(Factor{Frozen: true}, standard)
		still, all := trained(Factor{}, standard)
		if !maps.EqualFunc(frozen, still, bytes.Equal) {
			t.Errorf("standard operations %v: other bits", standard)
		}
		// The gradients of the frozen kernel and of its output.
		if few != all-2 {
			t.Errorf("standard operations %v: %d products, %d with all gradients", standard, few, all)
		}
	}
}

func TestFactorsAreChecked(t *testing.T) {
	export, _ := openFactors(t)
	all := make(map[string]Factor)
	for _, v := range export.Contract.Variables {
		all[v.Name] = Factor{Frozen: true}
	}
	for want, factors := range map[string]map[string]Factor{
		"factors are given for model/none, which is not a trained variable": {"model/none": {Frozen: true}},
		"model/low/bias are -1 of the learning rate":                        {"model/low/bias": {LearningRate: -1}},
		"all 6 variables are frozen":                                        all,
	} {
		_, err := NewOneDevice(t.Context(), export, "", Config{Factors: factors})
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, fault.Usage) {
			t.Errorf("%v; expected %q", err, want)
		}
	}
	if _, err := NewOneDevice(t.Context(), export, "", Config{Average: 1}); err == nil || !strings.Contains(err.Error(), "moving averages is 1; expected 0 (off) or more and less than 1") {
		t.Error(err)
	}
}
