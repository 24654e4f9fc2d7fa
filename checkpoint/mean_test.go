package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// pythonMeans writes checkpoints with TensorFlow and prints the means of NumPy.
const pythonMeans = `
import base64, json, sys
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(1)
big = [(rng.standard_normal((300, 101)) * 10.0 ** rng.integers(-8, 8, (300, 101))).astype(np.float32) for _ in range(3)]
small = [np.float32(x) for x in (0.1, 0.2, 0.4)]
for i in range(3):
    root = tf.Module()
    root.big, root.small = tf.Variable(big[i]), tf.Variable(small[i])
    root.count = tf.Variable(7 * i, dtype=tf.int64)
    tf.train.Checkpoint(root=root).write(f"{sys.argv[1]}/{i}")
mean = lambda of: base64.b64encode(np.mean(of, axis=0, dtype=np.float64).astype(np.float32).tobytes()).decode()
print(json.dumps({"big": mean(big), "small": mean(small)}))
`

// TestMean compares the mean of checkpoints with NumPy's, bit for bit.
func TestMean(t *testing.T) {
	dir := t.TempDir()
	var want map[string][]byte
	if err := json.Unmarshal([]byte(testkit.RunPython(t, pythonMeans, dir)), &want); err != nil {
		t.Fatal(err)
	}
	var of []*Bundle
	for _, name := range []string{"0", "1", "2"} {
		b, err := OpenBundle(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		of = append(of, b)
	}
	entries := []Entry{{Name: "big", DType: tf.Float, Shape: []int64{300, 101}}, {Name: "small", DType: tf.Float, Shape: []int64{}}, {Name: "count", DType: tf.Int64, Shape: []int64{}}}
	got, _, err := Mean(t.Context(), of, entries, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, bytes := range want {
		if string(rawBytes(t, got[name])) != string(bytes) {
			t.Errorf("the mean of %s is not NumPy's", name)
		}
	}
	if count := got["count"].Value(); count != int64(14) {
		t.Errorf("count is %v; expected that of the last checkpoint, 14", count)
	}

	entries[0].Shape = []int64{101, 300}
	if _, _, err := Mean(t.Context(), of, entries, ""); !errors.As(err, new(*MismatchError)) {
		t.Errorf("another shape: %v", err)
	}
	entries[0].Shape = []int64{300, 101}
	data := DataPath(filepath.Join(dir, "1"), 0, 1)
	content, err := os.ReadFile(data)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(data, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Mean(t.Context(), of, entries, ""); !errors.Is(err, fault.Damaged) || !strings.Contains(err.Error(), data) {
		t.Errorf("a damaged checkpoint: %v", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := Mean(stopped, of, entries, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

// TestMeanOfAverages takes moving averages where all checkpoints have them.
func TestMeanOfAverages(t *testing.T) {
	dir := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: dir})
	for step, values := range []map[string]float32{{"a": 1, "average/a": 2}, {"a": 3, "average/a": 6}, {"a": 5}} {
		var tensors []NamedTensor
		for name, value := range values {
			tensor, err := tf.NewTensor(value)
			if err != nil {
				t.Fatal(err)
			}
			tensors = append(tensors, NamedTensor{Name: name, Value: tensor})
		}
		if err := errors.Join(m.Save(background, int64(step), tensors, nil), m.Wait(background)); err != nil {
			t.Fatal(err)
		}
	}
	var of []*Bundle
	for step := range int64(3) {
		b, err := OpenBundle(m.prefix(step))
		if err != nil {
			t.Fatal(err)
		}
		of = append(of, b)
	}
	want := []Entry{{Name: "a", DType: tf.Float, Shape: []int64{}}}
	for averages, value := range map[string]float32{"": 2, "average/": 4} {
		got, n, err := Mean(t.Context(), of[:2], want, averages)
		if err != nil || got["a"].Value() != value || n != len(averages)/8 {
			t.Errorf("%q: %v, %d averages, %v; expected %v", averages, got, n, err, value)
		}
	}
	if _, _, err := Mean(t.Context(), of, want, "average/"); err == nil || !strings.Contains(err.Error(), "has a moving average of a and the other has none") {
		t.Errorf("some have averages: %v", err)
	}
}
