package strategy

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// lineTask is a task of the exporter, for the scripts that follow it: dense layers, each with a name and
// a width, with tanh between them, from 5 numbers to 3.
const lineTask = `
import sys
import tensorflow as tf
from gorbit_export import export, layers, optimizers, task

class Line(task.Task):
    name = "line"
    hyperparameters = []

    def __init__(self, **widths):
        self.model = tf.Module()
        self.layers = []
        width = 5
        for name, to in widths.items():
            self.layers.append(layers.Dense(width, to, 0.3, 0, name))
            setattr(self.model, name, self.layers[-1])
            width = to
        self.features = [
            task.Feature("x", tf.float32, ("examples", "numbers"), shape=(None, 5)),
            task.Feature("y", tf.float32, ("examples", "values"), label=True, shape=(None, 3)),
        ]

    def description(self):
        return {"architecture": "line", "config": {}}

    def evaluate_sums(self, features):
        error = self.predict(features)["values"] - features["y"]
        return {"loss_sum": tf.reduce_sum(error * error), "weight_sum": tf.cast(tf.shape(error)[0], tf.float32)}

    def train_sums(self, features, hyperparameters, random):
        return self.evaluate_sums(features)

    def predict(self, features):
        *inner, last = self.layers
        x = features["x"]
        for layer in inner:
            x = tf.tanh(layer(x))
        return {"values": last(x)}

    def serving(self):
        return [tf.TensorSpec([None, 5], tf.float32, "x")], lambda x: self.predict({"x": x})
`

// optimizerModels exports one small model with each optimizer.
const optimizerModels = lineTask + `
for name, optimizer in optimizers.OPTIMIZERS.items():
    export.write(Line(wide=37, tall=3), optimizer(), f"{sys.argv[1]}/{name}/graph")
`

// TestOptimizers holds three steps with the kernels, on two replicas, and with the optimizer sharded
// against those of TensorFlow's operations on one device.
func TestOptimizers(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	dir := testkit.Made(t, optimizerModels)
	rng := rand.New(rand.NewPCG(3, 5))
	batch := func(examples int) []Feature {
		out := []Feature{{Name: "x", Shape: []int{examples, 5}}, {Name: "y", Shape: []int{examples, 3}}}
		for i := range out {
			for range examples * out[i].Shape[1] {
				out[i].Float32 = append(out[i].Float32, float32(rng.NormFloat64()))
			}
		}
		return out
	}
	halves := [][]Feature{batch(4), batch(7)}
	all := make([]Feature, 2)
	for i := range all {
		all[i] = Feature{Name: halves[0][i].Name, Shape: []int{11, halves[0][i].Shape[1]},
			Float32: slices.Concat(halves[0][i].Float32, halves[1][i].Float32)}
	}
	scalars := Scalars{"learning_rate": 0.01, "weight_decay": 0.1, "clip_norm": 0.7}
	for _, c := range []struct {
		name   string
		kernel string // of the update
	}{{"adamw", "GorbitAdamw"}, {"sgd", "GorbitSgd"}, {"lion", "GorbitLion"}, {"lamb", ""}, {"adafactor", ""}, {"muon", ""}} {
		t.Run(c.name, func(t *testing.T) {
			export, err := graphs.Open(filepath.Join(dir, c.name, "graph"))
			if err != nil {
				t.Fatal(err)
			}
			after := func(w way) (map[string][]float64, []byte) {
				s := w.open(t, export)
				def, err := s.GraphDef()
				if err != nil {
					t.Fatal(err)
				}
				start(t, s, rand.New(rand.NewPCG(7, 7)))
				batches := halves
				if w.replicas == 1 {
					batches = [][]Feature{all}
				}
				for i := range 3 {
					if r, err := stepOf(t.Context(), s, batches, [2]int64{1, int64(i)}, scalars); err != nil || !r.Applied {
						t.Fatal(r, err)
					}
				}
				return variables(t, s), def
			}
			want, _ := after(way{replicas: 1, config: Config{StandardOps: true}})
			for _, w := range []way{
				{name: "kernels", replicas: 1},
				{name: "replicas", replicas: 2},
				{name: "sharded", replicas: 2, config: Config{ShardOptimizer: true}},
				{name: "XLA", replicas: 1},
			} {
				name := w.name
				got, def := after(w)
				if c.kernel != "" && name != "XLA" && !bytes.Contains(def, []byte(c.kernel)) {
					t.Errorf("%s: no %s in the graph", name, c.kernel)
				}
				for v, values := range want {
					for i := range values {
						if !near(got[v][i], values[i], 1e-4) {
							t.Errorf("%s: %s[%d] is %v, expected %v", name, v, i, got[v][i], values[i])
							break
						}
					}
				}
			}
		})
	}
}

// TestGroupsHaveTheSameBits wants the form of the step for GPUs, which updates variables in groups, to
// change variables, slots, averages and states as the other does, bit for bit: every optimizer, on one
// device, on two replicas, and sharded, in groups of some variables and of all. Without clipping, the
// norm, whose sums are of other parts, changes nothing.
func TestGroupsHaveTheSameBits(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	dir := testkit.Made(t, optimizerModels)
	graphsOf := map[string]string{"keras adagrad": "keras", "keras, two updates": "factored"}
	for _, name := range []string{"adamw", "sgd", "lion", "lamb", "adafactor", "muon"} {
		graphsOf[name] = filepath.Join(dir, name, "graph")
	}
	for name, folder := range graphsOf {
		t.Run(name, func(t *testing.T) {
			var export *graphs.Export
			parts := drawnNumbers
			first := func(m *Model) { start(t, m, rand.New(rand.NewPCG(7, 7))) }
			if folder == "keras" || folder == "factored" {
				var golden kerasGolden
				export, golden = kerasExport(t, folder)
				parts = func(rng *rand.Rand) []Feature { return drawnImages(rng, 3) }
				first = func(m *Model) { begin(t, m, golden.Before) }
			} else {
				var err error
				if export, err = graphs.Open(folder); err != nil {
					t.Fatal(err)
				}
			}
			for _, layout := range []way{{"one device", 0, 1, 1, Config{}}, {"mirrored", 0, 2, 1, Config{}}, {"sharded", 0, 2, 1, Config{ShardOptimizer: true}}} {
				layout.config.StandardOps, layout.config.Average = true, 0.75
				layout.config.Factors = map[string]Factor{export.Contract.Variables[0].Name: {LearningRate: 0.5, WeightDecay: 2}}
				var each *Model
				for _, together := range []int64{0, 1000, 1 << 20} {
					layout.config.together = together
					m := layout.open(t, export)
					first(m)
					rng := rand.New(rand.NewPCG(3, 5))
					for i := range 3 {
						var batches [][]Feature
						for range layout.replicas {
							batches = append(batches, parts(rng))
						}
						scalars := Scalars{"learning_rate": 0.01, "weight_decay": 0.1, "clip_norm": 0}
						if r, err := stepOf(t.Context(), m, batches, [2]int64{1, int64(i)}, scalars); err != nil || !r.Applied {
							t.Fatal(r, err)
						}
					}
					if each == nil {
						each = m
					}
					if folder != "keras" {
						sameBits(t, m, each)
						continue
					}
					// TensorFlow's reciprocal root of Adagrad rounds by the place in a vector.
					want := variables(t, each)
					for name, got := range variables(t, m) {
						for i := range got {
							if !near(got[i], want[name][i], 1e-6) {
								t.Errorf("%s[%d] is %v, expected %v", name, i, got[i], want[name][i])
							}
						}
					}
				}
			}
		})
	}
}

// drawnNumbers draws a batch of lineTask.
func drawnNumbers(rng *rand.Rand) []Feature {
	out := []Feature{{Name: "x", Shape: []int{4, 5}}, {Name: "y", Shape: []int{4, 3}}}
	for i := range out {
		for range 4 * out[i].Shape[1] {
			out[i].Float32 = append(out[i].Float32, float32(rng.NormFloat64()))
		}
	}
	return out
}
