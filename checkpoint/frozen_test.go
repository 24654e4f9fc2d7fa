package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/crashtest"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// frozenNames are the variables that saveFrozen never changes.
var frozenNames = []string{"model/layers/0/kernel", "model/table.of/words"}

// frozenModel returns variables of which the first are frozen: their values are those of step 0.
func frozenModel(t testing.TB, step int64) (frozen, changing []NamedTensor) {
	t.Helper()
	for i, x := range mustModel(t, 0)[:2] {
		frozen = append(frozen, NamedTensor{frozenNames[i], x.Value})
	}
	for _, x := range mustModel(t, step) {
		if x.Name != frozenNames[0] {
			changing = append(changing, x)
		}
	}
	return frozen, changing
}

// saveFrozen saves frozenModel, without the frozen values once they are stored.
func saveFrozen(t testing.TB, m *Manager, steps ...int64) error {
	t.Helper()
	for _, step := range steps {
		frozen, tensors := frozenModel(t, step)
		if !m.Stored(frozenNames...) {
			tensors = append(tensors, frozen...)
		}
		if err := m.Save(background, step, tensors, fmt.Appendf(nil, "state of %d", step), Frozen(frozenNames...)); err != nil {
			return err
		}
		if err := m.Wait(background); err != nil {
			return err
		}
	}
	return nil
}

// checkFrozen checks what was restored against frozenModel.
func checkFrozen(t testing.TB, r *Restored) {
	t.Helper()
	frozen, changing := frozenModel(t, r.Step)
	want := append(frozen, changing...)
	if len(r.Tensors) != len(want) || string(r.State) != fmt.Sprintf("state of %d", r.Step) {
		t.Errorf("step %d: %d tensors, state %q", r.Step, len(r.Tensors), r.State)
	}
	for _, x := range want {
		if got := r.Tensors[x.Name]; got == nil || !bytes.Equal(rawBytes(t, got), rawBytes(t, x.Value)) {
			t.Errorf("step %d: %s is not what was saved", r.Step, x.Name)
		}
	}
}

// frozenFiles lists what a folder holds with exactly these checkpoints.
func frozenFiles(steps ...int64) []string {
	names := []string{StateName}
	for _, s := range steps {
		for _, ending := range []string{"data-00000-of-00002", "data-00001-of-00002", "index"} {
			names = append(names, fmt.Sprintf("ckpt-%d.%s", s, ending))
		}
	}
	slices.Sort(names)
	return names
}

// sameFrozen fails unless the second data files of checkpoints are names of one file.
func sameFrozen(t *testing.T, dir string, steps ...int64) {
	t.Helper()
	var first os.FileInfo
	for _, s := range steps {
		info, err := os.Stat(filepath.Join(dir, fmt.Sprintf("ckpt-%d.data-00001-of-00002", s)))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = info
		}
		if !os.SameFile(first, info) {
			t.Errorf("step %d has a file of frozen variables of its own", s)
		}
	}
}

// TestFrozenIsSavedOnce follows a folder through saves, pruning, a restart, going back, and
// replacing a checkpoint.
func TestFrozenIsSavedOnce(t *testing.T) {
	dir := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: dir, MaxToKeep: 2})
	_, changing := frozenModel(t, 1)
	if err := m.Save(background, 1, changing, nil, Frozen(frozenNames...)); err == nil || !strings.Contains(err.Error(), "has no value; expected one") {
		t.Errorf("saved without values: %v", err)
	}
	check := func(name string, steps ...int64) {
		t.Helper()
		if got := fileNames(t, dir); !slices.Equal(got, frozenFiles(steps...)) {
			t.Fatalf("%s: files %q", name, got)
		}
		sameFrozen(t, dir, steps...)
		if !m.Stored(frozenNames...) || m.Stored(frozenNames[0]) || m.Stored(append(frozenNames, "x")...) {
			t.Errorf("%s: stored are not exactly the frozen variables", name)
		}
		for _, s := range steps {
			r, err := openTest(t, ManagerConfig{Dir: dir, ReadOnly: true}).RestoreFrom(background, Checkpoint{Step: s, Prefix: m.prefix(s)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			checkFrozen(t, r)
			if want := s; name == "saved" && r.SaveCounter != want {
				t.Errorf("step %d: counter is %d", s, r.SaveCounter)
			}
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(saveFrozen(t, m, 1, 2, 3))
	check("saved", 2, 3)

	must(m.Close())
	m = openTest(t, ManagerConfig{Dir: dir, MaxToKeep: 2})
	if m.Stored(frozenNames...) {
		t.Error("a new manager knows what the variables hold")
	}
	if _, err := m.Restore(background, nil); err != nil {
		t.Fatal(err)
	}
	must(saveFrozen(t, m, 4))
	check("continued", 3, 4)
	must(saveFrozen(t, m, 4))
	check("replaced", 3, 4)
	must(m.DiscardAfter(3))
	if _, err := m.Restore(background, nil); err != nil {
		t.Fatal(err)
	}
	must(saveFrozen(t, m, 4))
	check("went back", 3, 4)

	// A user removed all checkpoints: the values are asked for again.
	for _, name := range frozenFiles(3, 4) {
		must(os.Remove(filepath.Join(dir, name)))
	}
	must(saveFrozen(t, m, 5))
	check("removed by hand", 5)
}

// TestFrozenAfterAnOldCheckpoint continues from a checkpoint that has all in one file.
func TestFrozenAfterAnOldCheckpoint(t *testing.T) {
	dir := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: dir})
	frozen, changing := frozenModel(t, 1)
	if err := m.Save(background, 1, append(frozen, changing...), []byte("state of 1")); err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(background); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Restore(background, nil); err != nil {
		t.Fatal(err)
	}
	// A save that was to replace it, and was killed, left a second data file.
	stray := DataPath(m.prefix(1), 1, 2)
	writeFile(t, stray, []byte("stray"))
	m = openTest(t, ManagerConfig{Dir: dir})
	if got := fileNames(t, dir); !slices.Equal(got, filesFor(1)) {
		t.Errorf("files %q", got)
	}
	if err := saveFrozen(t, m, 1, 2); err != nil {
		t.Fatal(err)
	}
	if got := fileNames(t, dir); !slices.Equal(got, frozenFiles(1, 2)) {
		t.Errorf("files %q", got)
	}
	r, err := m.Restore(background, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkFrozen(t, r)
}

// noLinks is a file system without links.
type noLinks struct{ vfs.OS }

func (noLinks) Link(_, to string) error {
	return &os.LinkError{Op: "link", New: to, Err: errors.ErrUnsupported}
}

// TestFrozenWithoutLinks copies the file.
func TestFrozenWithoutLinks(t *testing.T) {
	dir := t.TempDir()
	defer vfs.Mount(dir, noLinks{})()
	m := openTest(t, ManagerConfig{Dir: dir})
	if err := saveFrozen(t, m, 1, 2); err != nil {
		t.Fatal(err)
	}
	a, b := readFile(t, DataPath(m.prefix(1), 1, 2)), readFile(t, DataPath(m.prefix(2), 1, 2))
	if !bytes.Equal(a, b) || len(a) == 0 {
		t.Errorf("files of %d and %d bytes", len(a), len(b))
	}
	r, err := m.Restore(background, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkFrozen(t, r)
}

// TestFrozenCrashAnywhere crashes a program that continues from its newest checkpoint at every file
// operation, and makes every operation fail once.
func TestFrozenCrashAnywhere(t *testing.T) {
	run := func(dir string) (err error) {
		m, err := OpenManager(ManagerConfig{Dir: dir, MaxToKeep: 1})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		r, err := m.Restore(background, nil)
		step := int64(0)
		switch {
		case err == nil:
			checkFrozen(t, r)
			step = r.Step
		case !errors.Is(err, ErrNoCheckpoint):
			return err
		}
		if err := m.Settle(); err != nil {
			return err
		}
		for ; step < 3; step++ {
			if err := saveFrozen(t, m, step+1); err != nil {
				return err
			}
		}
		return nil
	}
	crashtest.Survives(t, crashtest.Program{Run: run, Same: func(path string, data []byte) (name, content string) {
		if filepath.Base(path) == StateName {
			return path, "" // has times
		}
		return path, string(data)
	}})
}

// TestFrozenReadByTensorFlow reads a checkpoint of two data files in Python, and one whose index has
// many blocks.
func TestFrozenReadByTensorFlow(t *testing.T) {
	dir := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: dir})
	if err := saveFrozen(t, m, 1, 2); err != nil {
		t.Fatal(err)
	}
	frozen, changing := frozenModel(t, 2)
	var want strings.Builder
	for _, x := range append(changing, frozen...) {
		fmt.Fprintf(&want, "%s %x\n", VariableKey(x.Name), rawBytes(t, x.Value))
	}
	got := testkit.RunPython(t, `import sys, tensorflow as tf
reader = tf.train.load_checkpoint(sys.argv[1])
names = reader.get_variable_to_shape_map()
for name in names:
    if name.startswith(("model", "optimizer")):
        print(name, reader.get_tensor(name).tobytes().hex())
class Net(tf.Module):
    pass
net, rows = Net(), names["model/layers/0/kernel/.ATTRIBUTES/VARIABLE_VALUE"]
net.model = Net()
net.model.layers = [Net()]
net.model.layers[0].kernel = tf.Variable(tf.zeros(rows))
tf.train.Checkpoint(root=net).restore(tf.train.latest_checkpoint(sys.argv[1])).assert_existing_objects_matched()
assert net.model.layers[0].kernel.numpy().any()
`, dir)
	lines := func(s string) []string {
		return slices.Sorted(slices.Values(strings.Split(strings.TrimSpace(s), "\n")))
	}
	if a, b := lines(got), lines(want.String()); !slices.Equal(a, b) {
		t.Errorf("Python reads\n%.2000s\nexpected\n%.2000s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
}

// TestTableWriter reads tables of any block size.
func TestTableWriter(t *testing.T) {
	keys := map[string][]byte{"": []byte("header")}
	for i := range 1000 {
		keys[fmt.Sprintf("key/%04d/tail", i*i)] = bytes.Repeat([]byte{byte(i)}, i%90)
	}
	for _, block := range []int{1, 100, 5000, 1 << 20} {
		w := &tableWriter{block: block}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			w.add(key, keys[key])
		}
		data := w.finish()
		got := map[string][]byte{}
		r := &tableReader{r: bytes.NewReader(data), size: int64(len(data)), path: "index"}
		if err := r.each(func(key, value []byte, _ int64) error {
			got[string(key)] = bytes.Clone(value)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !maps.EqualFunc(got, keys, bytes.Equal) {
			t.Errorf("blocks of %d: %d keys", block, len(got))
		}
	}
}

// TestFrozenLeavesOtherNames keeps a save from writing into the file of other checkpoints through a
// name that a killed save left.
func TestFrozenLeavesOtherNames(t *testing.T) {
	dir := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: dir})
	if err := saveFrozen(t, m, 1); err != nil {
		t.Fatal(err)
	}
	left := DataPath(m.tempPrefix(2), 1, 2)
	if err := os.Link(DataPath(m.prefix(1), 1, 2), left); err != nil {
		t.Fatal(err)
	}
	if _, err := m.writeFrozen(left, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v", err)
	}
	r, err := m.Restore(background, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkFrozen(t, r)
}
