package train

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/params"
)

// histogramsInPython writes histograms of a checkpoint's variables with TensorFlow, and compares those of
// the run with them as TensorBoard reads both. It prints the steps of the gradients of each variable, and
// how many values their buckets count.
const histogramsInPython = `
import json, sys
import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run, scratch, step = sys.argv[1], sys.argv[2], int(sys.argv[3])
values = {}
checkpoint = f"{run}/checkpoints/ckpt-{step}"
for key, _ in tf.train.list_variables(checkpoint):
    if key.startswith("model/") and key.endswith("/.ATTRIBUTES/VARIABLE_VALUE"):
        values[key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")] = tf.train.load_variable(checkpoint, key)
with tf.summary.create_file_writer(scratch).as_default():
    for name, value in values.items():
        tf.summary.histogram("weights/" + name, value, step=step, buckets=30)

def read(folder):
    a = EventAccumulator(folder, size_guidance={"tensors": 0})
    a.Reload()
    return {
        tag: {e.step: tf.make_ndarray(e.tensor_proto) for e in a.Tensors(tag)}
        for tag in a.Tags()["tensors"] if tag.startswith(("weights/", "gradients/"))
    }

ours, theirs = read(run + "/train"), read(scratch)
for tag, by_step in theirs.items():
    np.testing.assert_allclose(ours[tag][step], by_step[step], rtol=1e-13, atol=1e-18, err_msg=tag)
print(json.dumps({
    "weights": sorted(t.removeprefix("weights/") for t in theirs),
    "gradients": {t.removeprefix("gradients/"): sorted(s) for t, s in ours.items() if t.startswith("gradients/")},
    "counts": {t.removeprefix("gradients/"): float(s[step][:, 2].sum()) for t, s in ours.items() if t.startswith("gradients/")},
    "sizes": {name: float(np.size(v)) for name, v in values.items()},
}))
`

// TestHistograms trains with histograms of weights and gradients, stopped and continued in between. The
// run has the bits of one without them, and TensorBoard reads of them what TensorFlow writes of the
// checkpoint's values.
func TestHistograms(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.Steps, p.Train.StepsPerCall = 9, 4
	plain := filepath.Join(t.TempDir(), "plain")
	mustTrain(t, p, plain)
	p.Summary.HistogramInterval = 3
	run := filepath.Join(t.TempDir(), "run")
	stopAt(t, p, run, 4)
	mustTrain(t, p, run)
	sameRuns(t, run, plain)
	var got struct {
		Weights       []string
		Gradients     map[string][]int64
		Counts, Sizes map[string]float64
	}
	if err := json.Unmarshal([]byte(testkit.RunPython(t, histogramsInPython, run, t.TempDir(), "9")), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Weights) == 0 || len(got.Gradients) != len(got.Weights) {
		t.Errorf("histograms of %d variables and %d gradients", len(got.Weights), len(got.Gradients))
	}
	for _, name := range got.Weights {
		if steps := got.Gradients[name]; !slices.Equal(steps, []int64{3, 6, 9}) {
			t.Errorf("gradients of %s at steps %v, expected 3, 6 and 9", name, steps)
		}
		if math.Abs(got.Counts[name]-got.Sizes[name]) > 0 {
			t.Errorf("the gradients of %s are %v, expected %v", name, got.Counts[name], got.Sizes[name])
		}
	}
}

func TestHistogramsRefused(t *testing.T) {
	p := testParams(t)
	p.Summary.HistogramInterval, p.Summary.Enabled = 3, false
	if _, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), quiet()); err == nil || !strings.Contains(err.Error(), "summary.histogram_interval is 3 and summary.enabled is false") {
		t.Errorf("without event files: %v", err)
	}
}

// chromeTrace is a trace in Chrome's Trace Event Format.
type chromeTrace struct {
	TraceEvents []struct {
		Ph, Name string
		Pid, Tid int
		Ts, Dur  float64
		Args     map[string]any
	}
}

func readTrace(t *testing.T, path string) (out chromeTrace) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// toolsInPython lets TensorFlow's converter, which TensorBoard's profile plugin calls, read an XSpace. It
// prints the trace that the plugin shows, and the operations of its page of statistics.
const toolsInPython = `
import json, sys
from tensorflow.tsl.profiler.protobuf import trace_events_pb2
from tensorflow.python.profiler.internal import _pywrap_profiler
trace, ok = _pywrap_profiler.xspace_to_tools_data(sys.argv[1:], "trace_viewer", {})
assert ok
stats, ok = _pywrap_profiler.xspace_to_tools_data(sys.argv[1:], "framework_op_stats", {})
assert ok
events = trace_events_pb2.Trace.FromString(trace).trace_events
print(json.dumps({"names": sorted({e.name for e in events}), "ops": [op for op in ("MatMul", "GorbitAdamw") if op.encode() in stats]}))
`

// TestProfile traces steps of a run, by itself and in calls of several steps. The run has the bits of one
// without it; the trace has the steps, the kernels and what Go did, and TensorFlow's own converter reads
// the same operations.
func TestProfile(t *testing.T) {
	long(t)
	for _, perCall := range []int{1, 3} {
		p := testParams(t)
		p.Train.Steps, p.Train.StepsPerCall, p.Train.StepsPerLoop = 6, perCall, params.Interval(6)
		plain, run := filepath.Join(t.TempDir(), "plain"), filepath.Join(t.TempDir(), "run")
		mustTrain(t, p, plain)
		p.Train.Profile = "4-5"
		env := quiet()
		var out strings.Builder
		env.Out = &out
		if _, err := Train(t.Context(), p, run, env); err != nil {
			t.Fatal(err)
		}
		sameRuns(t, run, plain)
		if !strings.Contains(out.String(), "profile of steps 4 to 5 in ") || !strings.Contains(out.String(), "MatMul") {
			t.Errorf("the output has no table:\n%s", out.String())
		}
		trace := readTrace(t, filepath.Join(run, "profile", "4-5", "trace.json.gz"))
		names := make(map[string]int)
		ends := make(map[int][]float64)
		for _, e := range trace.TraceEvents {
			if e.Ph == "M" {
				continue
			}
			names[strings.TrimPrefix(e.Name, "_Mkl")]++ // oneDNN's, on some processors
			open := ends[e.Tid]
			for len(open) > 0 && open[len(open)-1] <= e.Ts+1e-3 {
				open = open[:len(open)-1]
			}
			if e.Ts < 0 || e.Dur < 0 || len(open) > 0 && open[len(open)-1] < e.Ts+e.Dur-1e-3 {
				t.Fatalf("%+v begins within another event of its row and ends after it, or is no time", e)
			}
			ends[e.Tid] = append(open, e.Ts+e.Dur)
		}
		want := []string{"step 4", "step 5", "call", "input", "GorbitAdamw", "MatMul", "ReadVariableOp"}
		if perCall > 1 {
			want[0], want[1] = "steps 4 to 5", "LoopCond"
		}
		for _, name := range want {
			if names[name] == 0 {
				t.Errorf("the trace has no %s, only %v", name, names)
			}
		}
		spaces, err := filepath.Glob(filepath.Join(run, "train", "plugins", "profile", "steps_4-5", "*.xplane.pb"))
		if err != nil || len(spaces) != 1 {
			t.Fatalf("XSpaces %v, %v", spaces, err)
		}
		var read struct {
			Names, Ops []string
		}
		if err := json.Unmarshal([]byte(testkit.RunPython(t, toolsInPython, spaces...)), &read); err != nil {
			t.Fatal(err)
		}
		if len(read.Ops) != 2 || !slices.Contains(read.Names, want[0]) {
			t.Errorf("TensorFlow reads the operations %v, and of the events %v", read.Ops, read.Names)
		}
	}
}

// TestDebugNumerics trains until the loss is not finite, in calls of one step and of several. The error
// names the first tensor and the first gradient; the run is the same otherwise.
func TestDebugNumerics(t *testing.T) {
	for _, perCall := range []int{1, 4} {
		p := testParams(t)
		p.Train.Steps, p.Train.StepsPerCall, p.Train.DebugNumerics = 6, perCall, true
		p.Optimizer.LearningRate = 1e30 // the second step has no finite loss
		p.Optimizer.WarmupRatio = 0
		_, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), quiet())
		var nonFinite *runner.NonFiniteError
		if !errors.As(err, &nonFinite) || nonFinite.Step != 2 {
			t.Fatalf("got %v, want an error of step 2", err)
		}
		for _, want := range []string{"train-0000", "computed again, the first tensor that is not finite is ", "[float32: ", "the largest other ", "the first gradient that of model/"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v\ndoes not say %q", err, want)
			}
		}
	}
}
