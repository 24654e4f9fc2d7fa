package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// fitted trains a model by Keras' own fit, and exports it with the values that it began with.
const fitted = `
import json
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

from gorbit_export.__main__ import main

folder = pathlib.Path(sys.argv[1])
(folder / "model.py").write_text('''
import keras
from gorbit_export import Feature, Model

def build(scheduled: bool = False):
    rate = keras.optimizers.schedules.CosineDecay(0.05, 50) if scheduled else 0.02
    net = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    return Model(
        net,
        [Feature("x", "float32", (None, 4)), Feature("y", "float32", (None, 1), label=True)],
        loss="mse",
        labels="y",
        optimizer=keras.optimizers.AdamW(learning_rate=rate, weight_decay=0.1, global_clipnorm=0.05),
    )
''')
sys.path.insert(0, str(folder))
(folder / "data").mkdir()
rng = np.random.default_rng(1)
sets = {}
for name, n in (("train", 80), ("dev", 20)):
    x = rng.normal(size=(n, 4)).astype("float32")
    sets[name] = x, x[:, :1] * x[:, 1:2] + 0.5
    with tf.io.TFRecordWriter(str(folder / "data" / f"{name}.tfrecord")) as out:
        for row, answer in zip(*sets[name]):
            feature = {k: tf.train.Feature(float_list=tf.train.FloatList(value=v)) for k, v in (("x", row), ("y", answer))}
            out.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
import model

golden = {}
for name in ("plain", "scheduled"):
    words = ["--set", "scheduled=" + str(name == "scheduled"), "--out", str(folder / name)]
    if main(["keras", str(folder / "model.py"), *words]):
        sys.exit("not exported")
    keras.utils.set_random_seed(0)  # the exporter's --seed
    user = model.build(name == "scheduled")
    user.model.compile(user.optimizer, user.loss)
    history = user.model.fit(*sets["train"], batch_size=4, epochs=3, shuffle=False, verbose=0)
    golden[name] = [*history.history["loss"], user.model.evaluate(*sets["dev"], verbose=0)]
(folder / "golden.json").write_text(json.dumps(golden))
`

// TestTrainsAsFit trains exports of Keras with no flag for their optimizer: the losses are those of fit,
// and the program says whose learning rate, schedule, weight decay and clipping they are. What is given
// counts before them, but a learning rate where the schedule is the graph's.
func TestTrainsAsFit(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	made := testkit.Made(t, fitted)
	var golden map[string][]float64
	data, err := os.ReadFile(filepath.Join(made, "golden.json"))
	if err == nil {
		err = json.Unmarshal(data, &golden)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, own := range map[string]string{
		"plain":     "clip_norm=0.05 learning_rate=0.02 schedule=constant warmup_ratio=0 weight_decay=0.1",
		"scheduled": "clip_norm=0.05 learning_rate=1 schedule=constant warmup_ratio=0 weight_decay=0.1",
	} {
		out, err := u.command("gorbit", "train", "--graph", filepath.Join(made, name), "--data", filepath.Join(made, "data"), "--run", name, "--batch-size", "4",
			"--epochs", "3", "--set", "data.shuffle=none").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, part := range strings.Fields(own) {
			if !strings.Contains(string(out), part) {
				t.Errorf("gorbit train does not say %s:\n%s", part, out)
			}
		}
		if strings.Contains(string(out), "'learning_rate'") != (name == "plain") {
			t.Errorf("%s: the learning rate is that of the run, or none:\n%s", name, out)
		}
		losses := lossesOf(t, filepath.Join(u.dir, name))
		if !slices.EqualFunc(losses, golden[name], func(a, b float64) bool { return math.Abs(a-b) < 1e-5*b }) {
			t.Errorf("%s: losses of epochs and of the evaluation are %v; expected those of fit, %v", name, losses, golden[name])
		}
	}
	show := u.command("gorbit", "train", "--print-params", "--graph", filepath.Join(made, "plain"), "--learning-rate", "0.5")
	if out, err := show.Output(); err != nil || !strings.Contains(string(out), "  learning_rate: 0.5\n") || !strings.Contains(string(out), "  weight_decay: 0.1  # of the graph\n") {
		t.Errorf("%v, params are\n%s", err, out)
	}
	out, err := u.command("gorbit", "train", "--graph", filepath.Join(made, "scheduled"), "--data", filepath.Join(made, "data"), "--run", "other",
		"--learning-rate", "0.5", "--schedule", "linear").CombinedOutput()
	for _, part := range []string{"optimizer.learning_rate is 0.5, and the graph's optimizer has a schedule of its own", "optimizer.schedule is linear"} {
		if err == nil || !strings.Contains(string(out), part) {
			t.Errorf("%v; expected %q in\n%s", err, part, out)
		}
	}
}

// lossesOf returns a run's losses of three epochs, which have a line for each 20 steps, and of its evaluation.
func lossesOf(t *testing.T, run string) []float64 {
	t.Helper()
	metrics, err := os.ReadFile(filepath.Join(run, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var losses []float64
	dev := math.NaN()
	for line := range strings.Lines(string(metrics)) {
		var m struct {
			Phase   string
			Outputs struct{ Loss float64 }
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m.Phase == "train" {
			losses = append(losses, m.Outputs.Loss)
		} else {
			dev = m.Outputs.Loss
		}
	}
	return append(losses, dev)
}
