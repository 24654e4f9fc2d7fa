package strategy

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// phasedModels exports models whose steps have several losses or optimizers, and writes what loops in
// Python make of the same values with tf.GradientTape and Keras' optimizers.
const phasedModels = `
import json, sys
import keras
import numpy as np
import tensorflow as tf
from keras import layers
from gorbit_export import Feature, Model, Phase, export
from gorbit_export.models import task

out = sys.argv[1]
STEPS = 20
cross = tf.nn.sigmoid_cross_entropy_with_logits
FEATURES = [
    Feature("image", "float32", (None, 64), label=True),
    Feature("noise", "float32", (None, 8)),
    Feature("mix", "float32", (None, 1), label=True),
]

def batch(seed, n=8):
    rng = np.random.default_rng(seed)
    return {
        "image": rng.random((n, 64)).astype("float32"),
        "noise": rng.normal(size=(n, 8)).astype("float32"),
        "mix": rng.random((n, 1)).astype("float32"),
        "example_weights": np.ones(n, "float32"),
    }

class GAN(keras.Model):
    def __init__(self, norm):
        super().__init__()
        norms = [layers.BatchNormalization(momentum=0.8)] if norm else []
        self.generator = keras.Sequential([keras.Input((8,)), layers.Dense(16), *norms, layers.ReLU(), layers.Dense(64, "sigmoid")])
        self.discriminator = keras.Sequential([keras.Input((64,)), layers.Dense(16), layers.LeakyReLU(), layers.Dense(1)])
        self.seed_generator = keras.random.SeedGenerator(3)

    def call(self, noise, training=False):
        return self.generator(noise, training=training)

    def train_step(self, data):
        raise NotImplementedError("the phases take its place")

    def answers(self, image, training):
        return self.discriminator(image, training=training)[:, 0]

    def discriminator_loss(self, batch, training):
        real = self.answers(batch["image"], training)
        fake = self.answers(self.generator(batch["noise"], training=training), training)
        found = tf.cast(real > 0, "float32")
        return cross(tf.ones_like(real), real) + cross(tf.zeros_like(fake), fake), {"found": found}

    def generator_loss(self, batch, training):
        fake = self.answers(self.generator(batch["noise"], training=training), training)
        return cross(tf.ones_like(fake), fake)

    def critic_loss(self, batch, training):
        real, fake = batch["image"], self.generator(batch["noise"], training=training)
        between = real + batch["mix"] * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            answers = self.answers(between, training)
        slope = tf.norm(tape.gradient(answers, between), axis=1)
        return self.answers(fake, training) - self.answers(real, training) + 10 * (slope - 1) ** 2

    def critics_generator_loss(self, batch, training):
        return -self.answers(self.generator(batch["noise"], training=training), training)

    def drawing(self, loss):
        def drawn(batch, training):
            noise = keras.random.normal((tf.shape(batch["image"])[0], 8), seed=self.seed_generator)
            given = loss({**batch, "noise": noise}, training)
            return given[0] if isinstance(given, tuple) else given, {"noise": noise[:, 0]}
        return drawn

def phased(model, phases, **more):
    return Model(model=model, features=FEATURES, phases=phases, **more)

def gan(model):
    return phased(model, [
        Phase("discriminator", model.discriminator_loss, model.discriminator.trainable_variables, keras.optimizers.Adam(4e-3, beta_1=0.5)),
        Phase("generator", model.generator_loss, model.generator.trainable_variables, keras.optimizers.Adam(1e-3, beta_1=0.5)),
    ], evaluate=model.discriminator_loss)

def wgan(model):
    return phased(model, [
        Phase("critic", model.critic_loss, model.discriminator.trainable_variables, keras.optimizers.RMSprop(2e-3)),
        Phase("generator", model.critics_generator_loss, model.generator.trainable_variables, keras.optimizers.Adam(1e-3), every=3, offset=2),
    ], evaluate=model.critics_generator_loss)

def drawing(model):
    return phased(model, [
        Phase("discriminator", model.drawing(model.discriminator_loss), model.discriminator.trainable_variables, "adam"),
        Phase("generator", model.drawing(model.generator_loss), model.generator.trainable_variables, "sgd"),
    ], evaluate=model.generator_loss)

def classifier(name):
    return keras.Sequential([keras.Input((64,), name="image"), layers.Dense(8, "relu", name="deep"), layers.Dense(3, name="head")], name=name)

CLASSES = [Feature("image", "float32", (None, 64)), Feature("digit", "int32", (None,), label=True, below=3)]
sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

def split(model):
    return Model(
        model=model, features=CLASSES, loss=sparse, labels="digit", metrics=["accuracy"],
        optimizer=[("", keras.optimizers.Adam(1e-3)), ("head", keras.optimizers.SGD(1e-2, momentum=0.9, weight_decay=0.1))],
    )

class Distiller(keras.Model):
    def __init__(self):
        super().__init__()
        self.teacher, self.student = classifier("teacher"), classifier("student")
        self.teacher.trainable = False

    def call(self, image, training=False):
        return self.student(image, training=training)

    def distillation(self, batch, training):
        logits = self.student(batch["image"], training=training)
        known = tf.nn.softmax(self.teacher(batch["image"], training=False) / 4)
        hard = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["digit"], logits)
        return 0.1 * hard + 0.9 * 16 * keras.losses.kl_divergence(known, tf.nn.softmax(logits / 4))

def distill(model):
    return Model(
        model=model, features=CLASSES, loss=sparse, labels="digit",
        phases=[Phase("student", model.distillation, model.student.trainable_variables, keras.optimizers.Adam(1e-2))],
    )

def classes(seed, n=8):
    rng = np.random.default_rng(seed)
    return {
        "image": rng.random((n, 64)).astype("float32"), "digit": rng.integers(0, 3, n).astype("int32"),
        "example_weights": np.ones(n, "float32"),
    }

def apply(tape, loss, variables, optimizer):
    gradients = tape.gradient(loss, [v.value for v in variables])
    optimizer.apply(gradients, variables)
    return float(tf.linalg.global_norm(gradients))

def by_phases(user):
    def step(number, b):
        losses, norm = {}, 0.0
        for phase in user.phases:
            if number % phase.every != phase.offset:
                continue
            with tf.GradientTape() as tape:
                given = phase.loss(b, training=True)
                loss = tf.reduce_mean(given[0] if isinstance(given, tuple) else given)
            norm = np.hypot(norm, apply(tape, loss, phase.variables, phase.optimizer))
            losses[phase.name + "/loss"] = float(loss)
        return losses, norm
    return step

def by_split(user):
    model, (adam, sgd) = user.model, [pair[1] for pair in user.optimizer]
    def step(number, b):
        with tf.GradientTape(persistent=True) as tape:
            loss = sparse(b["digit"], model(b["image"], training=True))
        norms = [apply(tape, loss, model.get_layer("deep").trainable_variables, adam), apply(tape, loss, model.get_layer("head").trainable_variables, sgd)]
        return {"loss": float(loss)}, np.hypot(*norms)
    return step

def tensors(b):
    return {name: {"shape": v.shape, "values": v.ravel().astype(float).tolist()} for name, v in b.items()}

for name, model, build, loop, drawn in [
    ("gan", lambda: GAN(True), gan, by_phases, batch),
    ("wgan", lambda: GAN(False), wgan, by_phases, batch),
    ("split", lambda: classifier("whole"), split, by_split, classes),
    ("distill", Distiller, distill, by_phases, classes),
    ("drawing", lambda: GAN(False), drawing, None, batch),
]:
    keras.utils.set_random_seed(5)
    user = build(model())
    made = task.ModelTask(user)
    export.write(made, made.optimizer, f"{out}/{name}")
    def variables():
        return {path: np.ravel(leaf.value).astype(float).tolist() for path, leaf in made.named.variables.items()}
    golden = {"before": variables(), "steps": []}
    for number in range(STEPS):
        b = drawn(number)
        losses, norm = loop(user)(number, b) if loop else ({}, 0.0)
        golden["steps"].append({"features": tensors(b), "losses": losses, "norm": norm, "after": variables()})
    json.dump(golden, open(f"{out}/{name}/golden.json", "w"))
`

// phasedGolden is what a loop in Python gives.
type phasedGolden struct {
	Before map[string][]float64
	Steps  []struct {
		Features tensorsOf
		Losses   map[string]float64
		Norm     float64
		After    map[string][]float64
	}
}

// phasedExport opens an export of phasedModels.
func phasedExport(t testing.TB, name string) (*graphs.Export, phasedGolden) {
	t.Helper()
	dir := filepath.Join(testkit.Made(t, phasedModels), name)
	export, err := graphs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return export, readJSON[phasedGolden](t, filepath.Join(dir, "golden.json"))
}

// fitScalars are the scalars of a step that an export's own optimizers have.
func fitScalars(export *graphs.Export) Scalars {
	out := Scalars{}
	for _, name := range []string{"learning_rate", "weight_decay", "clip_norm"} {
		if v, ok := export.Contract.Optimizer.Defaults[name].(float64); ok {
			out[name] = v
		}
	}
	return out
}

// TestTrainsByPhasesAsPython holds losses by name, norms of gradients, variables and statistics of 20
// steps against loops in Python: a GAN, a WGAN with a penalty of gradients whose critic has three steps for
// each of the generator, two optimizers of one loss, and a student of a frozen teacher.
func TestTrainsByPhasesAsPython(t *testing.T) {
	for _, name := range []string{"gan", "wgan", "split", "distill"} {
		t.Run(name, func(t *testing.T) {
			export, golden := phasedExport(t, name)
			m := way{replicas: 1}.open(t, export)
			begin(t, m, golden.Before)
			for i, want := range golden.Steps {
				r, err := stepOf(t.Context(), m, [][]Feature{want.Features.of(export.Contract)}, [2]int64{1, int64(i)}, fitScalars(export))
				if err != nil {
					t.Fatal(err)
				}
				if !near(r.GradientNorm, want.Norm, 1e-4) || !r.Applied || r.Iterations != int64(i+1) {
					t.Errorf("step %d: norm %v, applied %v, iterations %d; Python has the norm %v", i, r.GradientNorm, r.Applied, r.Iterations, want.Norm)
				}
				losses := 0
				for sum := range r.Sums {
					if strings.HasSuffix(sum, "/loss_sum") {
						losses++
					}
				}
				if name != "split" && losses != len(want.Losses) {
					t.Errorf("step %d: %d losses in %v; Python has %v", i, losses, r.Sums, want.Losses)
				}
				for loss, value := range want.Losses {
					prefix := strings.TrimSuffix(loss, "loss")
					if got := r.Sums[loss+"_sum"][0] / r.Sums[prefix+"weight_sum"][0]; !near(got, value, 1e-4) {
						t.Errorf("step %d: %s is %v; Python has %v", i, loss, got, value)
					}
				}
				nearPython(t, i, variables(t, m), want.After)
			}
		})
	}
}

// nearPython holds variables against those of a loop in Python.
func nearPython(t *testing.T, step int, got, want map[string][]float64) {
	t.Helper()
	for name, values := range want {
		for k := range values {
			if !near(got[name][k], values[k], 2e-5) {
				t.Fatalf("step %d: %s[%d] is %v; Python has %v", step, name, k, got[name][k], values[k])
			}
		}
	}
}

// parts divides dense features of n examples into so many parts.
func parts(features []Feature, n, of int) [][]Feature {
	out := make([][]Feature, of)
	for _, f := range features {
		each := len(f.Float32) / n
		for i := range out {
			from, to := i*n/of, (i+1)*n/of
			shape := append([]int{to - from}, f.Shape[1:]...)
			out[i] = append(out[i], Feature{Name: f.Name, Shape: shape, Float32: f.Float32[from*each : to*each]})
		}
	}
	return out
}

// TestPhasesOfParts wants the same of a step of several phases however its batch is divided.
func TestPhasesOfParts(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export, golden := phasedExport(t, "wgan")
	for _, w := range dividing {
		if strings.Contains(w.name, "XLA") {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			m := w.open(t, export)
			begin(t, m, golden.Before)
			for i, want := range golden.Steps[:7] {
				in := parts(want.Features.of(export.Contract), 8, 4)
				if _, err := stepOf(t.Context(), m, in, [2]int64{1, int64(i)}, fitScalars(export)); err != nil {
					t.Fatal(err)
				}
				nearPython(t, i, variables(t, m), want.After)
			}
		})
	}
}

// TestPhasesCount wants the counts of updates of each phase and of steps, and a run that goes on at a step
// to have the phases that are due then.
func TestPhasesCount(t *testing.T) {
	export, golden := phasedExport(t, "wgan")
	first := way{replicas: 1}.open(t, export)
	begin(t, first, golden.Before)
	step := func(m *Model, i int) {
		t.Helper()
		if _, err := stepOf(t.Context(), m, [][]Feature{golden.Steps[i].Features.of(export.Contract)}, [2]int64{1, int64(i)}, fitScalars(export)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		step(first, i)
	}
	names := []string{"optimizer/iterations", "optimizer/phases/critic", "optimizer/phases/generator"}
	counts, err := first.Read(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(counts[0].Value(), counts[1].Value(), counts[2].Value()); got != "5 5 1" {
		t.Errorf("counts are %s; expected 5 5 1", got)
	}
	next := way{replicas: 1}.open(t, export)
	copyVariables(t, first, next)
	for i := 5; i < 9; i++ {
		step(first, i)
		step(next, i)
	}
	sameBits(t, next, first)
}

// copyVariables sets the variables of a model to those of another, as a checkpoint does.
func copyVariables(t *testing.T, from, to *Model) {
	t.Helper()
	for _, v := range from.Variables() {
		out, err := from.Read(t.Context(), v.Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := to.Assign(t.Context(), map[string]*tf.Tensor{v.Name: out[0]}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPhasesDraw wants every phase of every step and every micro-batch to draw numbers of its own, and the
// same ones again.
func TestPhasesDraw(t *testing.T) {
	export, golden := phasedExport(t, "drawing")
	drawn := make(map[float64]string)
	var again []string
	for range 2 {
		m := way{replicas: 1}.open(t, export)
		begin(t, m, golden.Before)
		var all []string
		for i, want := range golden.Steps[:3] {
			r, err := stepOf(t.Context(), m, [][]Feature{want.Features.of(export.Contract)}, [2]int64{1, int64(i)}, fitScalars(export))
			if err != nil {
				t.Fatal(err)
			}
			for _, phase := range []string{"discriminator", "generator"} {
				at, mean := fmt.Sprint(phase, " of step ", i), r.Sums[phase+"/noise_sum"][0]
				if other, ok := drawn[mean]; ok && other != at {
					t.Errorf("%s draws what %s does", at, other)
				}
				drawn[mean] = at
				all = append(all, fmt.Sprint(mean))
			}
		}
		if again == nil {
			again = all
		}
		if fmt.Sprint(all) != fmt.Sprint(again) {
			t.Errorf("drew %v, and %v before", all, again)
		}
	}
}

// TestPhaseThatIsNotApplied wants a step to end with a phase whose loss is not finite, and not to count.
func TestPhaseThatIsNotApplied(t *testing.T) {
	export, golden := phasedExport(t, "gan")
	m := way{replicas: 1}.open(t, export)
	begin(t, m, golden.Before)
	in := golden.Steps[0].Features.of(export.Contract)
	for i := range in {
		if in[i].Name == "image" {
			in[i].Float32[3] = float32(math.Inf(1))
		}
	}
	before := variables(t, m)
	r, err := stepOf(t.Context(), m, [][]Feature{in}, [2]int64{1, 0}, fitScalars(export))
	if err != nil {
		t.Fatal(err)
	}
	if _, made := r.Sums["generator/loss_sum"]; made || r.Applied || r.Iterations != 0 {
		t.Errorf("sums %v, applied %v, iterations %d; expected a step that ends with the discriminator", r.Sums, r.Applied, r.Iterations)
	}
	for name, values := range variables(t, m) {
		if fmt.Sprint(values) != fmt.Sprint(before[name]) {
			t.Errorf("%s has changed", name)
		}
	}
}

// TestPhasesRefused wants a sentence for each thing that steps of several phases do not have.
func TestPhasesRefused(t *testing.T) {
	export, _ := phasedExport(t, "gan")
	frozen := map[string]Factor{}
	for _, v := range export.Contract.Variables {
		if v.Phase == "generator" {
			frozen[v.Name] = Factor{Frozen: true}
		}
	}
	for _, c := range []struct {
		want   string
		config Config
	}{
		{"3 steps are made in a call, and a step of the graph has 2 phases; expected 1", Config{StepsPerCall: 3}},
		{"averages of the variables are kept, and a step of the graph has 2 phases; expected none", Config{Average: 0.9}},
		{"all variables of the phase generator are frozen; expected one at least to train", Config{Factors: frozen}},
	} {
		_, err := NewOneDevice(context.Background(), export, "", c.config)
		if err == nil || err.Error() != c.want {
			t.Errorf("got %v; expected %s", err, c.want)
		}
	}
	const want = "a step of the graph has 2 phases, which a TPU cannot make; use CPUs or GPUs"
	if _, err := compose.ComposeTPU(export, compose.TPULayout{Train: true}); err == nil || err.Error() != want {
		t.Errorf("got %v; expected %s", err, want)
	}
}
