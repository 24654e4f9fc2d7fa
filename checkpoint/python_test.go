package checkpoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

const pythonReads = `
import base64, json, os, sys
import numpy as np
import tensorflow as tf

out = {}
saved, exported, written, plain = sys.argv[1:]

def describe(v):
    v = v.numpy()
    if isinstance(v, (bytes, str)) or v.dtype == object:
        return {"dtype": "string", "shape": list(np.shape(v)),
                "strings": [base64.b64encode(s).decode() for s in np.ravel(np.array(v, dtype=object)).tolist()]}
    return {"dtype": tf.as_dtype(v.dtype).name, "shape": list(v.shape), "bytes": base64.b64encode(v.tobytes()).decode()}

class Net(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def forward(self, x):
        return x + tf.reduce_sum(self.model.layers[0].kernel)

def kernel(columns):
    m = tf.Module()
    m.kernel = tf.Variable(tf.zeros([8, columns]))
    return m

def build():
    net = Net()
    net.model = tf.Module()
    net.model.embeddings = tf.Module()
    net.model.embeddings.table = tf.Variable(tf.zeros([8, 16]))
    net.model.layers = [kernel(32), kernel(48)]
    net.optimizer = tf.Module()
    net.optimizer.iterations = tf.Variable(0, dtype=tf.int64)
    net.optimizer.m = tf.Module()
    net.optimizer.m.model = tf.Module()
    net.optimizer.m.model.layers = [kernel(64)]
    net.runner_state = tf.Variable("")
    return net

def values(net):
    return {
        "model/embeddings/table": describe(net.model.embeddings.table),
        "model/layers/0/kernel": describe(net.model.layers[0].kernel),
        "model/layers/1/kernel": describe(net.model.layers[1].kernel),
        "optimizer/m/model/layers/0/kernel": describe(net.optimizer.m.model.layers[0].kernel),
        "optimizer/iterations": describe(net.optimizer.iterations),
        "runner_state": describe(net.runner_state),
    }

latest = tf.train.latest_checkpoint(saved)
net = build()
checkpoint = tf.train.Checkpoint(root=net)
checkpoint.restore(latest).assert_consumed()
out["latest"] = latest
out["net"] = values(net)
out["counter"] = int(checkpoint.save_counter)
manager = tf.train.CheckpointManager(checkpoint, saved, max_to_keep=2)
out["kept"] = manager.checkpoints

# A loaded SavedModel is an object of the same children.
fresh = build()
tf.saved_model.save(fresh, exported)
loaded = tf.saved_model.load(exported)
tf.train.Checkpoint(root=loaded).restore(latest).assert_consumed()
out["loaded"] = values(loaded)

# Python goes on from it, in a folder of its own.
net.optimizer.iterations.assign_add(1)
net.runner_state.assign("state of 7")
own = tf.train.CheckpointManager(checkpoint, written, max_to_keep=2)
own.save(checkpoint_number=7)

reader = tf.train.load_checkpoint(plain)
out["plain"] = {k: describe(tf.constant(reader.get_tensor(k))) for k in reader.get_variable_to_shape_map()}
json.dump(out, sys.stdout)
`

// Python restores what is written here, with nothing left over on either side,
// and what Python then writes restores here.
func TestPython(t *testing.T) {
	dir := t.TempDir()
	saved, written := filepath.Join(dir, "saved"), filepath.Join(dir, "written")
	m := openTest(t, ManagerConfig{Dir: saved, MaxToKeep: 2})
	save(t, m, 4, 5, 6)

	// All types of the goldens, written from here, under an index of many
	// compressed blocks.
	source, err := OpenBundle("testdata/plain/model.ckpt")
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := source.Read(background)
	if err != nil {
		t.Fatal(err)
	}
	var list []NamedTensor
	for name, x := range tensors {
		list = append(list, NamedTensor{name, x})
	}
	plain := filepath.Join(dir, "plain")
	if err := WriteBundle(background, plain, list); err != nil {
		t.Fatal(err)
	}
	writeFile(t, IndexPath(plain), reblock(t, readFile(t, IndexPath(plain)), 3))

	var got struct {
		Latest  string
		Net     map[string]golden
		Loaded  map[string]golden
		Plain   map[string]golden
		Kept    []string
		Counter int
	}
	text := testkit.RunPython(t, pythonReads, saved, filepath.Join(dir, "exported"), written, plain)
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if got.Latest != filepath.Join(saved, "ckpt-6") || got.Counter != 3 {
		t.Errorf("latest is %s, counter %d", got.Latest, got.Counter)
	}
	if want := []string{filepath.Join(saved, "ckpt-5"), filepath.Join(saved, "ckpt-6")}; !slices.Equal(got.Kept, want) {
		t.Errorf("kept %q, want %q", got.Kept, want)
	}
	want := append(mustModel(t, 6), NamedTensor{StateVariable, tensor(t, "state of 6")})
	for _, x := range want {
		checkTensor(t, "restored: "+x.Name, x.Value, got.Net[x.Name])
		checkTensor(t, "loaded: "+x.Name, x.Value, got.Loaded[x.Name])
	}
	if len(got.Plain) != len(list) {
		t.Errorf("%d tensors under the rewritten index, want %d", len(got.Plain), len(list))
	}
	for name, x := range tensors {
		checkTensor(t, "plain: "+name, x, got.Plain[name])
	}

	r, err := openTest(t, ManagerConfig{Dir: written, ReadOnly: true}).Restore(background, entriesOf(mustModel(t, 6)))
	if err != nil {
		t.Fatal(err)
	}
	if r.Step != 7 || r.SaveCounter != 4 || string(r.State) != "state of 7" || r.Tensors["optimizer/iterations"].Value() != int64(7) {
		t.Errorf("restored step %d, counter %d, state %q, iterations %v", r.Step, r.SaveCounter, r.State, r.Tensors["optimizer/iterations"].Value())
	}
	for _, x := range mustModel(t, 6)[:4] {
		checkTensor(t, "written by Python: "+x.Name, r.Tensors[x.Name], golden{"float32", x.Value.Shape(), rawBytes(t, x.Value), nil})
	}
	// The folder is one that a manager of ours continues with.
	w := openTest(t, ManagerConfig{Dir: written, MaxToKeep: 1})
	if _, err := w.Restore(background, nil); err != nil {
		t.Fatal(err)
	}
	save(t, w, 8)
	if names := fileNames(t, written); !slices.Equal(names, filesFor(8)) {
		t.Errorf("files %q", names)
	}
}

// A variable list long enough for an index of several blocks, as TensorFlow cuts them.
func TestManyVariables(t *testing.T) {
	var list []NamedTensor
	for i := range 4000 {
		list = append(list, NamedTensor{fmt.Sprintf("model/%04d/%s", i, "a_rather_long_name_of_a_variable_in_a_deep_model/kernel"), tensor(t, int32(i))})
	}
	prefix := filepath.Join(t.TempDir(), "many")
	if err := WriteBundle(background, prefix, list); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBundle(prefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(background); err != nil {
		t.Error(err)
	}
	got, err := b.Read(background)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range list {
		if got[x.Name] == nil || got[x.Name].DataType() != tf.Int32 || got[x.Name].Value() != int32(i) {
			t.Fatalf("%s is %v", x.Name, got[x.Name])
		}
	}
	if info, err := os.Stat(IndexPath(prefix)); err != nil || info.Size() < 256<<10 {
		t.Errorf("an index of %d bytes, error %v", info.Size(), err)
	}
}
