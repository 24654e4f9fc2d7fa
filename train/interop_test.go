package train

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestPythonReadsRuns trains a run, lets Python restore its checkpoint into the
// export and evaluate, and reads its TensorBoard files.
func TestPythonReadsRuns(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Summary.Histograms = true
	run := filepath.Join(t.TempDir(), "run")
	out, err := Train(context.Background(), p, run, quiet())
	if err != nil {
		t.Fatal(err)
	}
	const script = `
import glob, json, sys
import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

graph, data, run = sys.argv[1:]
m = tf.saved_model.load(graph)
path = tf.train.latest_checkpoint(run + "/checkpoints")
tf.train.Checkpoint(root=m).restore(path).assert_consumed()

loss = weight = correct = 0.0
for record in tf.data.TFRecordDataset(sorted(glob.glob(data + "/dev-*.tfrecord"))):
    f = tf.io.parse_single_example(record, {
        "input_ids": tf.io.VarLenFeature(tf.int64), "segment_ids": tf.io.VarLenFeature(tf.int64),
        "label_ids": tf.io.FixedLenFeature([1], tf.int64)})
    ids = tf.cast(tf.sparse.to_dense(f["input_ids"])[None], tf.int32)
    types = tf.cast(tf.sparse.to_dense(f["segment_ids"])[None], tf.int32)
    s = m.evaluate(
        input_ids=ids, type_ids=types, sequence_ids=tf.ones_like(ids),
        position_ids=tf.range(ids.shape[1])[None], cls_positions=tf.zeros([1], tf.int32),
        labels=tf.cast(f["label_ids"], tf.int32), example_weights=tf.ones([1]))
    loss += float(s["loss_sum"]); weight += float(s["weight_sum"]); correct += float(s["accuracy_sum"])

tags, last = {}, {}
for part in ("train", "eval"):
    a = EventAccumulator(run + "/" + part, size_guidance={"tensors": 0})
    a.Reload()
    tags[part] = a.Tags()["tensors"] + (["graph"] if a.Tags()["graph"] else [])
    last[part] = float(tf.make_ndarray(a.Tensors("loss")[-1].tensor_proto))
a = EventAccumulator(run)
a.Reload()
tags["run"] = a.Tags()["tensors"]
print(json.dumps(dict(
    loss=loss / weight, accuracy=correct / weight, iterations=int(m.optimizer.iterations),
    moved=float(np.abs(m.optimizer.m.model.classifier.kernel.numpy()).max()), tags=tags, last=last)))
`
	var got struct {
		Loss, Accuracy, Moved float64
		Iterations            int64
		Tags                  map[string][]string
		Last                  map[string]float64
	}
	if err := json.Unmarshal([]byte(testkit.RunPython(t, script, p.Graph, p.Data.Dir, run)), &got); err != nil {
		t.Fatal(err)
	}
	const one = 1.0 / 50 // example whose answers may be too near to each other for two roundings to agree
	if math.Abs(got.Loss-out["loss"]) > 1e-5 || math.Abs(got.Accuracy-out["accuracy"]) > 1.01*one {
		t.Errorf("Python evaluates to loss %v and accuracy %v, gorbit to %v and %v", got.Loss, got.Accuracy, out["loss"], out["accuracy"])
	}
	if got.Iterations != 33 || got.Moved == 0 {
		t.Errorf("Python restored %d iterations, and slots of at most %v", got.Iterations, got.Moved)
	}
	if math.Abs(got.Last["eval"]-out["loss"]) > 1e-6 {
		t.Errorf("TensorBoard's last loss is %v, the run's %v", got.Last["eval"], out["loss"])
	}
	for part, want := range map[string][]string{
		"train": {"loss", "accuracy", "learning_rate", "gradient_norm", "steps_per_second", "examples_per_second", "tokens_per_second", "params", "graph"},
		"eval":  {"loss", "accuracy", "f1", "mcc", "model/classifier/kernel"},
		"run":   {"_hparams_/session_start_info", "_hparams_/session_end_info"},
	} {
		have := " " + strings.Join(got.Tags[part], " ") + " "
		for _, tag := range want {
			if !strings.Contains(have, " "+tag+" ") {
				t.Errorf("TensorBoard's %s has no %s, only%s", part, tag, have)
			}
		}
	}
}

// TestRunsStartFromPython lets Python write a checkpoint and weights, and trains on
// from them.
func TestRunsStartFromPython(t *testing.T) {
	long(t)
	p := testParams(t)
	dir := t.TempDir()
	const script = `
import sys
import tensorflow as tf
graph, out = sys.argv[1:]
m = tf.saved_model.load(graph)
for v in (m.model.classifier.kernel, m.model.encoder.layers[0].attention.query.bias):
    v.assign(tf.fill(v.shape, 0.25))
m.optimizer.iterations.assign(9)
m.optimizer.m.model.classifier.bias.assign([1.0, 2.0])
manager = tf.train.CheckpointManager(tf.train.Checkpoint(root=m), out + "/run/checkpoints", max_to_keep=3)
manager.save(checkpoint_number=9)
`
	testkit.RunPython(t, script, p.Graph, dir)

	// As the checkpoint of a run that goes on from step 9.
	run := filepath.Join(dir, "run")
	p.Train.Steps, p.Optimizer.WarmupRatio = 10, 0
	p.Optimizer.LearningRate = 1e-9
	mustTrain(t, p, run)
	values, step := final(t, run)
	if step != 10 {
		t.Errorf("went on to step %d, want 10", step)
	}
	for _, name := range []string{"model/classifier/kernel", "model/encoder/layers/0/attention/query/bias"} {
		near(t, name, values[name], 0.25, 1e-6)
	}
	if m := floatAt(values["optimizer/m/model/classifier/bias"], 1); math.Abs(m-0.9*2) > 0.2 {
		t.Errorf("the first moment is %v after a step from 2", m)
	}

	// As initial weights of a new run: variables only.
	q := testParams(t)
	q.Init = filepath.Join(run, "checkpoints", "ckpt-9")
	q.Train.Steps, q.Optimizer.LearningRate = 1, 1e-9
	fresh := filepath.Join(dir, "fresh")
	mustTrain(t, q, fresh)
	values, step = final(t, fresh)
	if step != 1 {
		t.Errorf("a new run ended at step %d, want 1", step)
	}
	near(t, "model/classifier/kernel", values["model/classifier/kernel"], 0.25, 1e-6)
}

func floatAt(content []byte, i int) float64 {
	return float64(math.Float32frombits(uint32(content[4*i]) | uint32(content[4*i+1])<<8 | uint32(content[4*i+2])<<16 | uint32(content[4*i+3])<<24))
}

func near(t *testing.T, name string, content []byte, want, tolerance float64) {
	t.Helper()
	if len(content) == 0 {
		t.Fatalf("no %s", name)
	}
	for i := range len(content) / 4 {
		if v := floatAt(content, i); math.Abs(v-want) > tolerance {
			t.Fatalf("%s[%d] is %v, want %v", name, i, v, want)
		}
	}
}

// TestRealWeights loads the demo's MiniLM weights with a report of what is
// missing and left over.
func TestRealWeights(t *testing.T) {
	long(t)
	weights := filepath.Join(testkit.Root(), ".cache", "minilm", "model.safetensors")
	if _, err := os.Stat(weights); err != nil {
		t.Skipf("the demo's weights are not there: %s", weights)
	}
	graph := testkit.Export(t, "minilm", "--pooling", "mean")
	p := testParams(t)
	p.Graph, p.Init, p.Strict = graph, weights, true
	_, err := Train(context.Background(), p, filepath.Join(t.TempDir(), "strict"), quiet())
	if err == nil || !strings.Contains(err.Error(), "model/classifier/kernel") {
		t.Errorf("strict: got %v, want the missing classifier named", err)
	}

	p.Strict, p.Train.Steps, p.Train.EvalInterval = false, 1, params.NoEval
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	report, err := os.ReadFile(filepath.Join(run, runfolder.Init))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"model/encoder/layers/0/attention/query/kernel <- encoder.layer.0.attention.self.query.weight",
		"transposed",
		"missing     model/classifier/kernel",
		"unused      pooler.dense.weight",
	} {
		if !strings.Contains(string(report), want) {
			t.Errorf("the load report does not say %q:\n%s", want, string(report))
		}
	}
}
