package strategy

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/tfrecord"
)

// kerasModel exports a Keras model with features of all dtypes, batch normalization, dropout, and a
// layer that assigns its trained kernel in training. The export "keras" has no dropout and Adagrad,
// whose slots start at 0.1: Keras' own training of the model is written next to it. "factored" has
// dropout and an optimizer of two updates, with slots of shapes of their own; "grouped" has factors
// of learning rates and decays.
const kerasModel = `
import json, sys
import keras
import numpy as np
import tensorflow as tf
from keras import layers
from gorbit_export import Feature, Model, export
from gorbit_export import optimizers as own
from gorbit_export.models import task

out = sys.argv[1]

class Shift(layers.Layer):
    """Adds a number of whole numbers, if a flag is set: frozen states that are no floats."""

    def build(self, shape):
        self.by = self.add_weight(name="by", shape=(1,), dtype="int64", initializer="ones", trainable=False)
        self.on = self.add_weight(name="on", shape=(1,), dtype="bool", initializer="ones", trainable=False)

    def call(self, x):
        return x + tf.where(self.on, self.by, 0)

def build(rate, optimizer, groups=()):
    keras.utils.set_random_seed(3)
    image = keras.Input((6, 6, 1), name="image", dtype="uint8")
    words = keras.Input((None,), name="words", dtype="int64")
    real = keras.Input((None,), name="real", dtype="bool")
    conv = layers.Conv2D(4, 3, use_bias=False, name="conv")
    x = layers.SpectralNormalization(conv, name="spectral")(layers.Rescaling(1 / 64)(image))
    x = layers.BatchNormalization(momentum=0.8, name="norm")(x)
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(x))
    w = layers.GlobalAveragePooling1D()(layers.Embedding(10, 3, name="table")(Shift(name="shift")(words)), mask=real)
    x = layers.Dropout(rate)(layers.Concatenate()([x, w]))
    return Model(
        model=keras.Model([image, words, real], layers.Dense(3, name="head")(x)),
        features=[
            Feature("image", "uint8", (None, 6, 6, 1)),
            Feature("words", "int64", (None, None), below=9),
            Feature("real", "bool", (None, None), make="mask"),
            Feature("digit", "int32", (None,), label=True, below=3),
        ],
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        labels="digit",
        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2, name="top2")],
        optimizer=optimizer,
        groups=groups,
    )

def write(folder, user):
    made = task.ModelTask(user)
    export.write(made, made.optimizer, f"{out}/{folder}")
    return made

def batch(seed, n=8):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, n)
    real = np.arange(lengths.max()) < lengths[:, None]
    return {
        "image": rng.integers(0, 256, (n, 6, 6, 1)).astype("uint8"),
        "words": rng.integers(0, 9, real.shape) * real,
        "real": real,
        "digit": rng.integers(0, 3, n).astype("int32"),
        "example_weights": np.ones(n, "float32"),
    }

user = build(0.0, keras.optimizers.Adagrad(learning_rate=0.1))
made = write("keras", user)

def variables():
    return {path: np.ravel(leaf.value).astype(float).tolist() for path, leaf in made.named.variables.items()}

golden = {"before": variables(), "steps": []}
for step in range(6):
    b = batch(step)
    with tf.GradientTape() as tape:
        y = user.model([b["image"], b["words"], b["real"]], training=True)
        loss = user.loss(b["digit"], y)
    gradients = tape.gradient(loss, [v.value for v in user.model.trainable_variables])
    gradients = [tf.convert_to_tensor(g) for g in gradients]
    user.optimizer.apply(gradients, user.model.trainable_variables)
    golden["steps"].append({
        "features": {name: {"shape": v.shape, "values": v.ravel().astype(float).tolist()} for name, v in b.items()},
        "loss": float(loss), "norm": float(tf.linalg.global_norm(gradients)), "after": variables(),
    })
b = batch(100, 20)
y = user.model([b["image"], b["words"], b["real"]])
golden["evaluation"] = {
    "features": {name: {"shape": v.shape, "values": v.ravel().astype(float).tolist()} for name, v in b.items()},
    "loss": float(user.loss(b["digit"], y)),
    "accuracy": float(np.mean(np.argmax(y, -1) == b["digit"])),
    "probabilities": np.ravel(tf.nn.softmax(y)).tolist(),
}
json.dump(golden, open(out + "/golden.json", "w"))
write("factored", build(0.3, own.Adafactor()))
groups = [("norm", {"learning_rate": 0.5}), ("head/kernel", {"weight_decay": 2.0})]
write("grouped", build(0.3, own.SGD(), groups))
`

// kerasGolden is what Keras' own training gives.
type kerasGolden struct {
	Before map[string][]float64
	Steps  []struct {
		Features   tensorsOf
		Loss, Norm float64
		After      map[string][]float64
	}
	Evaluation struct {
		Features       tensorsOf
		Loss, Accuracy float64
		Probabilities  []float64
	}
}

// tensorsOf are the features of a batch as JSON has them.
type tensorsOf map[string]struct {
	Shape  []int
	Values []float64
}

// of returns the features with the dtypes of a contract.
func (b tensorsOf) of(c *graphs.Contract) []Feature {
	var out []Feature
	for _, f := range c.Features {
		given := b[f.Name]
		x := Feature{Name: f.Name, Shape: given.Shape}
		for _, v := range given.Values {
			switch f.DType {
			case "uint8":
				x.Uint8 = append(x.Uint8, uint8(v))
			case "int32":
				x.Int32 = append(x.Int32, int32(v))
			case "int64":
				x.Int64 = append(x.Int64, int64(v))
			case "bool":
				x.Bool = append(x.Bool, v != 0)
			default:
				x.Float32 = append(x.Float32, float32(v))
			}
		}
		out = append(out, x)
	}
	return out
}

// kerasExport opens an export of kerasModel.
func kerasExport(t testing.TB, folder string) (*graphs.Export, kerasGolden) {
	t.Helper()
	dir := testkit.Made(t, kerasModel)
	export, err := graphs.Open(filepath.Join(dir, folder))
	if err != nil {
		t.Fatal(err)
	}
	return export, readJSON[kerasGolden](t, filepath.Join(dir, "golden.json"))
}

// begin sets the variables that are not the optimizer's. All exports have the same.
func begin(t testing.TB, m Strategy, values map[string][]float64) {
	t.Helper()
	set := make(map[string]*tf.Tensor)
	for _, v := range m.Variables() {
		if v.Slot {
			continue
		}
		var data []byte
		for _, x := range values[v.Name] {
			switch v.DType {
			case tf.Int64:
				data = append(data, raw([]int64{int64(x)})...)
			case tf.Bool:
				data = append(data, byte(x))
			default:
				data = append(data, raw([]float32{float32(x)})...)
			}
		}
		var err error
		if set[v.Name], err = newTensor(v.DType, v.Shape, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Assign(t.Context(), set); err != nil {
		t.Fatal(err)
	}
}

// TestTrainsAsKeras holds losses, norms of gradients, variables and statistics of several steps, and
// evaluation, prediction and metrics after them, against Keras' own.
func TestTrainsAsKeras(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	for _, w := range []way{{name: "operations", replicas: 1}, {name: "XLA", replicas: 1}} {
		t.Run(w.name, func(t *testing.T) { trainsAsKeras(t, w) })
	}
}

func trainsAsKeras(t *testing.T, w way) {
	export, golden := kerasExport(t, "keras")
	m := w.open(t, export)
	begin(t, m, golden.Before)
	for i, want := range golden.Steps {
		r, err := stepOf(t.Context(), m, [][]Feature{want.Features.of(export.Contract)}, [2]int64{1, int64(i)}, Scalars{"learning_rate": 0.1, "clip_norm": 0})
		if err != nil {
			t.Fatal(err)
		}
		if loss := r.Sums["loss_sum"][0] / r.Sums["weight_sum"][0]; !near(loss, want.Loss, 1e-5) || !near(r.GradientNorm, want.Norm, 1e-5) || !r.Applied {
			t.Errorf("step %d: loss %v, norm %v, applied %v; Keras has %v, %v", i, loss, r.GradientNorm, r.Applied, want.Loss, want.Norm)
		}
		got := variables(t, m)
		for name, values := range want.After {
			for k := range values {
				if !near(got[name][k], values[k], 1e-5) {
					t.Fatalf("step %d: %s[%d] is %v, Keras has %v", i, name, k, got[name][k], values[k])
				}
			}
		}
	}
	features := golden.Evaluation.Features.of(export.Contract)
	sums, err := m.Evaluate(t.Context(), features)
	if err != nil {
		t.Fatal(err)
	}
	if loss := sums["loss_sum"][0] / sums["weight_sum"][0]; !near(loss, golden.Evaluation.Loss, 1e-5) {
		t.Errorf("loss %v, Keras has %v", loss, golden.Evaluation.Loss)
	}
	metrics, err := m.Results(t.Context(), sums)
	if err != nil || len(metrics) != 2 || !near(metrics["accuracy"], golden.Evaluation.Accuracy, 1e-6) || metrics["top2"] < metrics["accuracy"] {
		t.Errorf("metrics %v, %v; Keras has accuracy %v", metrics, err, golden.Evaluation.Accuracy)
	}
	predicted, err := m.Predict(t.Context(), features)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range golden.Evaluation.Probabilities {
		if got := predicted["probabilities"][i]; !near(got, want, 1e-5) {
			t.Fatalf("probability %d is %v, Keras has %v", i, got, want)
		}
	}
	delete(sums, export.Contract.Results[1])
	if _, err := m.Results(t.Context(), sums); err == nil || err.Error() != "results: the sum "+export.Contract.Results[1]+" has 0 values; expected 1" {
		t.Errorf("got %v", err)
	}
}

// drawnImages draws a batch of n examples with weights of their own.
func drawnImages(rng *rand.Rand, n int) []Feature {
	length := 1 + rng.IntN(5)
	image, words, real := Feature{Name: "image", Shape: []int{n, 6, 6, 1}}, Feature{Name: "words", Shape: []int{n, length}}, Feature{Name: "real", Shape: []int{n, length}}
	digit, weights := Feature{Name: "digit", Shape: []int{n}}, Feature{Name: "example_weights", Shape: []int{n}}
	for range n {
		for range 36 {
			image.Uint8 = append(image.Uint8, uint8(rng.IntN(256)))
		}
		own := 1 + rng.IntN(length)
		for i := range length {
			words.Int64, real.Bool = append(words.Int64, rng.Int64N(9)), append(real.Bool, i < own)
		}
		digit.Int32, weights.Float32 = append(digit.Int32, rng.Int32N(3)), append(weights.Float32, 0.5+rng.Float32())
	}
	return []Feature{weights, real, image, words, digit}
}

// imageSteps are the inputs of steps with micro-batches of several sizes.
func imageSteps(micro, steps int) []StepInput {
	rng := rand.New(rand.NewPCG(4, 2))
	out := make([]StepInput, steps)
	for i := range out {
		out[i] = StepInput{Seed: [2]int64{5, int64(i)}, Scalars: Scalars{"learning_rate": 0.05, "weight_decay": 0.1}}
		for range micro {
			out[i].Batches = append(out[i].Batches, drawnImages(rng, 2+rng.IntN(4)))
		}
	}
	return out
}

// dividing are the ways to divide a batch into four parts.
var dividing = []way{
	{"accumulate 4", 0, 1, 4, Config{}},
	{"XLA, accumulate 4", 0, 1, 4, Config{}},
	{"4 lanes", 0, 1, 1, Config{Lanes: 4}},
	{"2 lanes, accumulate 2", 0, 1, 2, Config{Lanes: 2}},
	{"mirrored 4, with collectives", 0, 4, 1, Config{}},
	{"mirrored 2, accumulate 2", 0, 2, 2, Config{}},
	{"mirrored 2, accumulate 2, a bucket per variable", 0, 2, 2, Config{BucketBytes: 1}},
	{"sharded 4", 0, 4, 1, Config{ShardOptimizer: true}},
	{"sharded 2, accumulate 2", 0, 2, 2, Config{ShardOptimizer: true}},
	{"2 workers, accumulate 2", 2, 1, 2, Config{}},
	{"mirrored 2, as on GPUs, accumulate 2", 0, 2, 2, Config{together: 1 << 20}},
	{"sharded 4, as on GPUs", 0, 4, 1, Config{together: 1 << 20, ShardOptimizer: true}},
	{"2 workers with 2 devices, sharded", 2, 2, 1, Config{ShardOptimizer: true}},
}

// nearFirst holds variables against those of the first way to divide a batch.
func nearFirst(t *testing.T, got, first map[string][]float64) {
	t.Helper()
	for name, values := range first {
		for k, v := range values {
			if !near(got[name][k], v, 1e-5) {
				t.Fatalf("%s[%d] is %v, in the first way %v", name, k, got[name][k], v)
			}
		}
	}
}

// TestStatesOfParts wants the statistics of a batch in parts to be the mean of those that each part
// alone would give, by weight, in every way to divide it, and variables and slots to be the same in
// all ways but XLA's; and nothing to change in steps that are not finite.
func TestStatesOfParts(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export, golden := kerasExport(t, "factored")
	one := way{replicas: 1}.open(t, export)
	begin(t, one, golden.Before)
	in := imageSteps(4, 3)

	// Each part alone, from the statistics at the start.
	states := export.Contract.UpdatedStates()
	if len(states) != 3 {
		t.Fatalf("states %+v", states)
	}
	want := make(map[string][]float64)
	total := 0.0
	for _, part := range in[0].Batches {
		begin(t, one, golden.Before)
		r, err := stepOf(t.Context(), one, [][]Feature{part}, in[0].Seed, in[0].Scalars)
		if err != nil || !r.Applied {
			t.Fatalf("%+v, %v", r, err)
		}
		weight := r.Sums["weight_sum"][0]
		total += weight
		after := variables(t, one)
		for _, s := range states {
			if want[s.Name] == nil {
				want[s.Name] = make([]float64, s.Elements())
			}
			for k, v := range after[s.Name] {
				want[s.Name][k] += weight * v
			}
		}
	}
	var first map[string][]float64
	for _, w := range dividing {
		t.Run(w.name, func(t *testing.T) {
			m := w.open(t, export)
			begin(t, m, golden.Before)
			for i, step := range in {
				r, err := stepOf(t.Context(), m, step.Batches, step.Seed, step.Scalars)
				if err != nil || !r.Applied {
					t.Fatalf("%+v, %v", r, err)
				}
				if i > 0 {
					continue
				}
				got := variables(t, m)
				for _, s := range states {
					for k, v := range want[s.Name] {
						if !near(got[s.Name][k], v/total, 1e-5) || near(got[s.Name][k], golden.Before[s.Name][k], 1e-3) {
							t.Errorf("%s[%d] is %v, the mean of the parts %v, and was %v", s.Name, k, got[s.Name][k], v/total, golden.Before[s.Name][k])
						}
					}
				}
			}
			got := variables(t, m)
			if first == nil {
				first = got
			}
			if !strings.HasPrefix(w.name, "XLA") { // where Keras' dropout draws other numbers
				nearFirst(t, got, first)
			}
			for name, all := range held(t, m) {
				for i, other := range all[1:] {
					if !bytes.Equal(bytesOf(t, other), bytesOf(t, all[0])) {
						t.Errorf("%s differs between replica 0 and replica %d", name, i+1)
					}
				}
			}
			// To compose a model takes longer than its steps.
			t.Run("a weight is NaN", func(t *testing.T) { nanLeavesStates(t, m, golden) })
			t.Run("statistics are infinite", func(t *testing.T) { statesThatAreNotFinite(t, m, golden) })
		})
	}
}

// nanLeavesStates makes a step of a batch with a weight that is NaN on one replica, and wants nothing
// to change, and the next step to be made.
func nanLeavesStates(t *testing.T, m *Model, golden kerasGolden) {
	begin(t, m, golden.Before)
	before := variables(t, m)
	in := imageSteps(4, 2)
	in[0].Batches[3][0].Float32[1] = float32(math.NaN())
	r, err := stepOf(t.Context(), m, in[0].Batches, in[0].Seed, in[0].Scalars)
	if err != nil || r.Applied || float64(r.Iterations) != before["optimizer/iterations"][0] {
		t.Fatalf("%+v, %v", r, err)
	}
	for name, all := range held(t, m) {
		for i, value := range all {
			if got, err := floats(value); err != nil || !slices.Equal(got, before[name]) {
				t.Errorf("%s has changed on replica %d: %v, %v", name, i, got, err)
			}
		}
	}
	if r, err := stepOf(t.Context(), m, in[1].Batches, in[1].Seed, in[1].Scalars); err != nil || !r.Applied {
		t.Errorf("the step after it: %+v, %v", r, err)
	}
}

// statesThatAreNotFinite wants no step where only the statistics are not finite.
func statesThatAreNotFinite(t *testing.T, m *Model, golden kerasGolden) {
	// The statistics are not read in training, so losses and gradients are finite.
	values := map[string][]float64{"model/norm/moving_mean": {1, math.Inf(1), 1, 1}}
	for name, v := range golden.Before {
		if values[name] == nil {
			values[name] = v
		}
	}
	begin(t, m, values)
	before := variables(t, m)
	in := imageSteps(4, 1)[0]
	r, err := stepOf(t.Context(), m, in.Batches, in.Seed, in.Scalars)
	if err != nil || r.Applied || math.IsNaN(r.GradientNorm) || math.IsNaN(r.Sums["loss_sum"][0]) {
		t.Fatalf("%+v, %v", r, err)
	}
	for name, v := range variables(t, m) {
		if fmt.Sprint(v) != fmt.Sprint(before[name]) {
			t.Errorf("%s has changed", name)
		}
	}
}

// TestLoopUpdatesStates wants the same bits of results, variables and statistics of steps one at a
// time and five at a time, one of which is not applied.
func TestLoopUpdatesStates(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export, golden := kerasExport(t, "factored")
	for _, w := range []way{{"one device", 0, 1, 1, Config{}}, {"2 lanes", 0, 1, 1, Config{Lanes: 2}}, {"mirrored 2", 0, 2, 1, Config{}}, {"sharded 2", 0, 2, 1, Config{ShardOptimizer: true}},
		{"mirrored 2, as on GPUs", 0, 2, 1, Config{together: 1 << 20}}} {
		t.Run(w.name, func(t *testing.T) {
			single := w.open(t, export)
			begin(t, single, golden.Before)
			in := imageSteps(single.runtime.MicroBatches, 10)
			in[7].Batches[0][0].Float32[0] = float32(math.NaN())
			w.config.StepsPerCall = 5
			m := w.open(t, export)
			begin(t, m, golden.Before)
			for _, each := range [][]StepInput{in[:5], in[5:7], in[7:8], in[8:]} {
				want := makeAll(t, single, each, 1)
				got := makeAll(t, m, each, len(each))
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("results %v, one at a time %v", got, want)
				}
			}
			sameBits(t, m, single)
		})
	}
}

// TestSlotsOfTheContract checks shapes and first values of slots, and their bytes on every replica.
func TestSlotsOfTheContract(t *testing.T) {
	for _, test := range []struct {
		folder  string
		initial float64
		bytes   int64
	}{
		// Adagrad has a slot like each of 3*3*4 + 2*4 + 10*3 + 7*3 + 3 parameters.
		{"keras", 0.1, 4*(36+8+30+21+3) + 8},
		// Adafactor has a row and a column of each variable with two axes or more.
		{"factored", 0, 0},
	} {
		t.Run(test.folder, func(t *testing.T) {
			export, golden := kerasExport(t, test.folder)
			c := export.Contract
			shapes := make(map[string][]int64)
			size := int64(8) // of iterations
			for _, v := range c.Variables {
				for _, s := range c.SlotsOf(v) {
					shapes[graphs.SlotName(s.Name, v.Name)] = s.Shape
					size += 4 * s.Elements()
				}
			}
			if test.bytes > 0 && size != test.bytes {
				t.Errorf("%d bytes of slots, expected %d", size, test.bytes)
			}
			if test.bytes == 0 && size >= 4*c.Parameters() {
				t.Errorf("%d bytes of factored slots of %d parameters", size, c.Parameters())
			}
			one := way{replicas: 1}.open(t, export)
			begin(t, one, golden.Before)
			if got := one.Runtime().OptimizerBytes; !slices.Equal(got, []int64{size}) {
				t.Errorf("%v bytes, expected %d", got, size)
			}
			for _, v := range one.Variables() {
				shape, slot := shapes[v.Name]
				if !slot {
					continue
				}
				if !v.Slot || !slices.Equal(v.Shape, shape) {
					t.Errorf("%s is %+v, expected the shape %v", v.Name, v, shape)
				}
			}
			for name, values := range variables(t, one) {
				if _, ok := shapes[name]; ok && slices.ContainsFunc(values, func(v float64) bool { return v != float64(float32(test.initial)) }) {
					t.Errorf("%s is %v at first, expected %v", name, values, test.initial)
				}
			}
			sharded := way{replicas: 2, config: Config{ShardOptimizer: true}}.open(t, export)
			total := int64(0)
			for _, n := range sharded.Runtime().OptimizerBytes {
				total += n
			}
			if total != size {
				t.Errorf("%d bytes on two replicas, expected %d", total, size)
			}
		})
	}
}

// TestFirstCall makes one call or another first: slots have their first values, but for those that it
// assigns, and later calls leave them alone.
func TestFirstCall(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export, golden := kerasExport(t, "keras")
	const initial = 0.1 // of Adagrad's slots
	first := export.Contract.Variables[0]
	slot := graphs.SlotName(export.Contract.SlotsOf(first)[0].Name, first.Name)
	given := make([]float32, first.Elements())
	for i := range given {
		given[i] = 7
	}
	value, err := newTensor(tf.Float, first.Shape, raw(given))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		call func(m *Model) error
		want float64 // of the slot
	}{
		"read":                 {func(m *Model) error { _, err := m.Read(t.Context(), slot); return err }, initial},
		"assign all but slots": {func(m *Model) error { begin(t, m, golden.Before); return nil }, initial},
		"assign a slot":        {func(m *Model) error { return m.Assign(t.Context(), map[string]*tf.Tensor{slot: value}) }, 7},
	} {
		for _, replicas := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d replicas", name, replicas), func(t *testing.T) {
				m := way{replicas: replicas}.open(t, export)
				if err := test.call(m); err != nil {
					t.Fatal(err)
				}
				begin(t, m, golden.Before)
				for name, values := range variables(t, m) {
					want := float64(float32(initial))
					switch {
					case name == slot:
						want = float64(float32(test.want))
					case name == export.Contract.Optimizer.Iterations:
						want = 0
					case !strings.HasPrefix(name, "optimizer/"):
						continue
					}
					if slices.ContainsFunc(values, func(v float64) bool { return v != want }) {
						t.Errorf("%s is %v, want %v", name, values, want)
					}
				}
			})
		}
	}
}

// TestFactors makes a step with and without weight decay and wants the variables to be moved by
// their own factors of the learning rate and of the decay.
func TestFactors(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export, golden := kerasExport(t, "grouped")
	factors, assigned := make(map[string][2]float64), make(map[string]bool)
	for _, v := range export.Contract.Variables {
		factors[v.Name], assigned[v.Name] = [2]float64{v.LearningRate, v.Decay}, v.Assigned
	}
	if factors["model/norm/gamma"] != [2]float64{0.5, 0} || factors["model/head/kernel"] != [2]float64{1, 2} || factors["model/spectral/kernel"][0] != 1 {
		t.Fatalf("factors %v", factors)
	}
	m := way{replicas: 1}.open(t, export)
	after := func(rate, decay float64) map[string][]float64 {
		t.Helper()
		begin(t, m, golden.Before)
		in := imageSteps(1, 1)[0]
		in.Scalars = Scalars{"learning_rate": rate, "weight_decay": decay}
		slots := make(map[string]*tf.Tensor)
		for _, v := range m.Variables() {
			if !v.Slot {
				continue
			}
			n := int64(1)
			for _, d := range v.Shape {
				n *= d
			}
			size := map[tf.DataType]int64{tf.Float: 4, tf.Int64: 8}[v.DType]
			zero, err := newTensor(v.DType, v.Shape, make([]byte, n*size))
			if err != nil {
				t.Fatal(err)
			}
			slots[v.Name] = zero
		}
		if err := m.Assign(t.Context(), slots); err != nil {
			t.Fatal(err)
		}
		if r, err := stepOf(t.Context(), m, in.Batches, in.Seed, in.Scalars); err != nil || !r.Applied {
			t.Fatalf("%+v, %v", r, err)
		}
		return variables(t, m)
	}
	none, plain, decayed, double := after(0, 0), after(0.1, 0), after(0.1, 0.01), after(0.2, 0)
	for name, f := range factors {
		for k, was := range golden.Before[name] {
			if assigned[name] { // before the update
				was = none[name][k]
			}
			if !near(none[name][k], was, 1e-7) {
				t.Fatalf("%s moves at a learning rate of 0", name)
			}
			if got, want := double[name][k]-was, 2*(plain[name][k]-was); math.Abs(got-want) > 1e-6 {
				t.Errorf("%s[%d] moves by %v at twice the learning rate, expected %v", name, k, got, want)
			}
			// The decay takes rate * decay * factor of the value.
			if got, want := plain[name][k]-decayed[name][k], 0.1*f[0]*0.01*f[1]*was; math.Abs(got-want) > 1e-6 {
				t.Errorf("%s[%d]: the decay takes %v of %v, expected %v", name, k, got, was, want)
			}
		}
	}
}

// TestTPUUpdatesStates trains on two cores of an emulated TPU, one step and three steps a call, as on
// two CPUs: statistics, slots of two updates, and a step that is not applied.
func TestTPUUpdatesStates(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export, golden := kerasExport(t, "factored")
	var in []StepInput
	rng := rand.New(rand.NewPCG(6, 7))
	for i := range 5 {
		step := StepInput{Seed: [2]int64{5, int64(i)}, Scalars: Scalars{"learning_rate": 0.05, "weight_decay": 0.1}}
		for range 2 {
			step.Batches = append(step.Batches, fixedImages(rng))
		}
		in = append(in, step)
	}
	in[3].Batches[1][0].Float32[2] = float32(math.NaN())
	mirrored := way{replicas: 2}.open(t, export)
	begin(t, mirrored, golden.Before)
	train := func(m Strategy) []Result {
		t.Helper()
		var out []Result
		for _, part := range [][]StepInput{in[:4], in[4:]} {
			results, err := m.Steps(t.Context(), part)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, results...)
		}
		return out
	}
	want := train(mirrored)
	values := variables(t, mirrored)
	for _, perCall := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d steps", perCall), func(t *testing.T) {
			m, err := NewTPU(t.Context(), export, startTPU(t), Config{Replicas: 2, StepsPerCall: perCall, Axes: map[string]int64{"examples": 4, "length": 5}, Patience: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { m.Close() })
			begin(t, m, golden.Before)
			got := train(m)
			for i, w := range want {
				if i >= len(got) || got[i].Applied != w.Applied || got[i].Iterations != w.Iterations || w.Applied != (i != 3) {
					t.Fatalf("step %d of %d: %+v, on CPUs %+v", i, len(got), got[min(i, len(got)-1)], w)
				}
				if !w.Applied {
					continue
				}
				if loss := w.Sums["loss_sum"][0]; !near(got[i].Sums["loss_sum"][0], loss, 1e-4) || !near(got[i].GradientNorm, w.GradientNorm, 1e-4) {
					t.Errorf("step %d: %+v, on CPUs %+v", i, got[i], w)
				}
			}
			after := variables(t, m.Model)
			for name, all := range values {
				for k, v := range all {
					if !near(after[name][k], v, 1e-4) {
						t.Fatalf("%s[%d] is %v, on CPUs %v", name, k, after[name][k], v)
					}
				}
			}
			sums, err := m.Evaluate(t.Context(), in[0].Batches[0])
			if err != nil {
				t.Fatal(err)
			}
			metrics, err := m.Results(t.Context(), sums)
			if err != nil || len(metrics) != 2 {
				t.Errorf("metrics %v, %v", metrics, err)
			}
		})
	}
}

// fixedImages draws a batch of 4 examples of 5 words.
func fixedImages(rng *rand.Rand) []Feature {
	for {
		if b := drawnImages(rng, 4); b[1].Shape[1] == 5 {
			return b
		}
	}
}

// TestWorkersReadImages makes two workers read images, words and masks of all dtypes themselves, and
// wants the bits of a training that is fed the same parts.
func TestWorkersReadImages(t *testing.T) {
	export, golden := kerasExport(t, "factored")
	rng := rand.New(rand.NewPCG(8, 9))
	dir := t.TempDir()
	records.WriteFile(t, filepath.Join(dir, "train.tfrecord"), 40, func(i int) []byte {
		pixels := make([]byte, 36)
		for p := range pixels {
			pixels[p] = byte(rng.IntN(256))
		}
		words := make([]int64, 1+rng.IntN(5))
		for p := range words {
			words[p] = rng.Int64N(9)
		}
		b, err := tfrecord.AppendExample(nil, tfrecord.BytesFeature("image", pixels), tfrecord.Int64Feature("words", words...),
			tfrecord.Int64Feature("digit", rng.Int64N(3)), tfrecord.FloatFeature("example_weights", 0.5+rng.Float32()))
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
	layout := dense.Config{Features: []dataset.Spec{
		{Name: "image", DType: dataset.Uint8, Shape: []int{6, 6, 1}},
		{Name: "words", DType: dataset.Int64, Shape: []int{-1}},
		{Name: "real", DType: dataset.Bool, Shape: []int{-1}, Make: dense.MakeMask},
		{Name: "digit", DType: dataset.Int32, Role: dataset.Label},
		{Name: "example_weights", DType: dataset.Float32, Role: dataset.Weight},
	}, EvenParts: true}
	config := dataset.Config{BatchSize: 8, Seed: 3, Layout: layout, Files: []string{filepath.Join(dir, "train.tfrecord")}}
	open := func(part dataset.Part) *dataset.Dataset {
		t.Helper()
		c := config
		c.Part = part
		d, err := dataset.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	whole, parts := open(dataset.Part{}), []*dataset.Dataset{open(dataset.Part{From: 0, To: 1, Of: 2}), open(dataset.Part{From: 1, To: 2, Of: 2})}
	input := &LocalInput{Dir: dir, Files: whole.FileInfos(), Dataset: config, Layout: layout, Settings: whole.State().Settings, Workers: []string{"a", "b"}}
	input.Files[0].Path = "train.tfrecord"
	const accumulate = 2
	local, err := NewMultiWorker(t.Context(), export, connect(t, 2, "cpu:1"), Config{LocalInput: input})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	fed := way{workers: 2, replicas: 1}.open(t, export)
	begin(t, local, golden.Before)
	begin(t, fed, golden.Before)
	at := whole.State()
	for i := range 4 {
		step := StepInput{Seed: [2]int64{5, int64(i)}, Scalars: Scalars{"learning_rate": 0.05}}
		own := step
		if own.Drawn, err = local.Draw(t.Context(), at.Epoch, int64(8*i), accumulate); err != nil {
			t.Fatal(err)
		}
		step.Batches = make([][]Feature, 2*accumulate)
		for w, d := range parts {
			b, err := d.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			micro, err := layout.Divide(b, accumulate, 0)
			if err != nil {
				t.Fatal(err)
			}
			for k, m := range micro {
				step.Batches[2*k+w] = m.Features
			}
		}
		want, err := fed.Steps(t.Context(), []StepInput{step})
		if err != nil {
			t.Fatal(err)
		}
		got, err := local.Steps(t.Context(), []StepInput{own})
		if err != nil {
			t.Fatal(err)
		}
		if !got[0].Applied || fmt.Sprint(got[0].Sums) != fmt.Sprint(want[0].Sums) || got[0].GradientNorm != want[0].GradientNorm {
			t.Errorf("step %d: %+v, fed %+v", i, got[0], want[0])
		}
	}
	sameBits(t, local.Model, fed)
}
