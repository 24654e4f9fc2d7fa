package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/vfstest"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

func openTest(t testing.TB, cfg ManagerConfig) *Manager {
	t.Helper()
	m, err := OpenManager(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// save writes model(step) and waits until it is durable.
func save(t testing.TB, m *Manager, steps ...int64) {
	t.Helper()
	for _, step := range steps {
		if err := m.Save(background, step, mustModel(t, step), fmt.Appendf(nil, "state of %d", step)); err != nil {
			t.Fatal(err)
		}
		if err := m.Wait(background); err != nil {
			t.Fatal(err)
		}
	}
}

func stepsOf(t testing.TB, m *Manager) []int64 {
	t.Helper()
	list, err := m.All()
	if err != nil {
		t.Fatal(err)
	}
	var steps []int64
	for _, c := range list {
		steps = append(steps, c.Step)
	}
	return steps
}

func fileNames(t testing.TB, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range list {
		names = append(names, f.Name())
	}
	return names
}

// filesFor lists what a folder holds with exactly these checkpoints.
func filesFor(steps ...int64) []string {
	names := []string{StateName}
	for _, s := range steps {
		names = append(names, fmt.Sprintf("ckpt-%d.data-00000-of-00001", s), fmt.Sprintf("ckpt-%d.index", s))
	}
	slices.Sort(names)
	return names
}

func TestManagerSaveRestore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	m := openTest(t, ManagerConfig{Dir: dir})
	if _, err := m.Restore(background, nil); !errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("restore from nothing: %v", err)
	}
	if _, err := m.Latest(); !errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("latest of nothing: %v", err)
	}
	save(t, m, 10, 20)
	if got := fileNames(t, dir); !slices.Equal(got, filesFor(10, 20)) {
		t.Errorf("files %q", got)
	}
	m = openTest(t, ManagerConfig{Dir: dir})
	r, err := m.Restore(background, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Step != 20 || r.SaveCounter != 2 || len(r.Skipped) != 0 || len(r.Tensors) != 5 {
		t.Errorf("restored %+v", r)
	}
	checkModel(t, r)
	// Only what is wanted is read, and a want of another shape is another model.
	want := entriesOf(mustModel(t, 20))
	if r, err = m.Restore(background, want[1:3]); err != nil || len(r.Tensors) != 2 {
		t.Errorf("restored %d tensors, error %v", len(r.Tensors), err)
	}
	wrong := slices.Clone(want)
	wrong[0].Shape = []int64{8, 99}
	wrong = append(wrong, Entry{Name: "model/head", DType: want[0].DType})
	var mismatch *MismatchError
	if _, err = m.Restore(background, wrong); !errors.As(err, &mismatch) || len(mismatch.Missing) != 1 || len(mismatch.Wrong) != 1 {
		t.Errorf("another model: %v", err)
	} else if s := err.Error(); !strings.Contains(s, "model/head") || !strings.Contains(s, "model/embeddings/table is float32[8,16]; expected float32[8,99]") {
		t.Errorf("the error does not say what differs: %v", err)
	}
	c, err := m.Latest()
	if err != nil || c.Step != 20 || c.Prefix != filepath.Join(dir, "ckpt-20") {
		t.Errorf("latest %+v, error %v", c, err)
	}
	if r, err = m.RestoreFrom(background, Checkpoint{Step: 10, Prefix: filepath.Join(dir, "ckpt-10")}, want); err != nil || r.SaveCounter != 1 {
		t.Errorf("restored %+v, error %v", r, err)
	}
}

// TestManagerLater restores some variables at once, and reads the others later.
func TestManagerLater(t *testing.T) {
	m := openTest(t, ManagerConfig{Dir: t.TempDir()})
	save(t, m, 10)
	want := entriesOf(mustModel(t, 10))
	whole, err := m.Restore(background, want)
	if err != nil {
		t.Fatal(err)
	}
	want[1].Later, want[3].Later = true, true
	r, err := m.Restore(background, want)
	if err != nil || len(r.Tensors) != len(want)-2 {
		t.Fatalf("restored %d of %d variables, error %v; expected all but two", len(r.Tensors), len(want), err)
	}
	later, err := r.Read(background, want[3].Name, want[1].Name)
	if err != nil || len(later) != 2 {
		t.Fatalf("read %d variables, error %v; expected two", len(later), err)
	}
	maps.Copy(r.Tensors, later)
	for name, value := range whole.Tensors {
		if !reflect.DeepEqual(r.Tensors[name].Value(), value.Value()) {
			t.Errorf("%s is %v, expected %v", name, r.Tensors[name].Value(), value.Value())
		}
	}
	if none, err := r.Read(background); err != nil || len(none) != 0 {
		t.Errorf("nothing to read gave %d variables, error %v", len(none), err)
	}
	if _, err := r.Read(background, want[0].Name); err == nil || !strings.Contains(err.Error(), "was not left to be read later") {
		t.Errorf("%v; expected a refusal of what was read at once", err)
	}
	want[1].Name = "none"
	if _, err := m.Restore(background, want); !errors.As(err, new(*MismatchError)) {
		t.Errorf("%v; expected that a variable is missing", err)
	}
}

func TestManagerRefuses(t *testing.T) {
	for _, cfg := range []ManagerConfig{
		{}, {Dir: "d", Name: "a/b"}, {Dir: "d", Name: "*"}, {Dir: "d", Name: ".saving-"}, {Dir: "d", MaxToKeep: -1},
		{Dir: "d", KeepEvery: -1}, {Dir: "d", IntraOpThreads: -1},
	} {
		if _, err := OpenManager(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	dir := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: dir})
	save(t, m, 5)
	one := tensor(t, float32(1))
	for _, test := range []struct {
		step    int64
		tensors []NamedTensor
		want    string
	}{
		{-1, nil, "negative step"},
		{4, nil, "ckpt-5 is newer"},
		{6, []NamedTensor{{"a", one}, {"a", one}}, `two variables are named "a"`},
		{6, []NamedTensor{{"a", one}, {"a/b", one}}, "cannot be one"},
		{6, []NamedTensor{{"a", nil}}, "no value"},
		{6, []NamedTensor{{"save_counter", one}}, `two variables are named "save_counter"`},
		{6, []NamedTensor{{"runner_state", one}}, `two variables are named "runner_state"`},
	} {
		err := m.Save(background, test.step, test.tensors, nil)
		var failed *SaveError
		if !errors.As(err, &failed) || failed.Step != test.step || !strings.Contains(err.Error(), test.want) {
			t.Errorf("step %d: error %v, want %q", test.step, err, test.want)
		}
	}
	reader := openTest(t, ManagerConfig{Dir: dir, ReadOnly: true})
	if err := reader.Save(background, 9, mustModel(t, 9), nil); err == nil {
		t.Error("a reader saved")
	}
	if reader.Protect(5) == nil || reader.DiscardAfter(0) == nil {
		t.Error("a reader changed the folder")
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := m.Save(background, 9, mustModel(t, 9), nil); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("save after close: %v", err)
	}
}

func TestManagerDiscardAfter(t *testing.T) {
	dir := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: dir})
	save(t, m, 1, 2, 3)
	if err := m.DiscardAfter(1); err != nil {
		t.Fatal(err)
	}
	if got := fileNames(t, dir); !slices.Equal(got, filesFor(1)) {
		t.Errorf("files %q", got)
	}
	save(t, m, 2)
	if err := m.DiscardAfter(0); err != nil {
		t.Fatal(err)
	}
	if got := fileNames(t, dir); len(got) != 0 {
		t.Errorf("files %q", got)
	}
	save(t, m, 1)
}

// Which checkpoints remain after saves at the given hours.
func TestManagerRetention(t *testing.T) {
	hours := func(list ...float64) []float64 { return list }
	for _, test := range []struct {
		name    string
		cfg     ManagerConfig
		protect map[int64][]int64 // before the save of a step
		reopen  bool              // a new manager for every save
		at      []float64         // step i+1 is saved at this hour
		want    []int64           // in the folder
		state   []int64           // in the state file
	}{
		{name: "all", at: hours(0, 1, 2, 3), want: []int64{1, 2, 3, 4}, state: []int64{1, 2, 3, 4}},
		{name: "two", cfg: ManagerConfig{MaxToKeep: 2}, at: hours(0, 1, 2, 3), want: []int64{3, 4}, state: []int64{3, 4}},
		{name: "one, reopened", cfg: ManagerConfig{MaxToKeep: 1}, reopen: true, at: hours(0, 1, 2, 3), want: []int64{4}, state: []int64{4}},
		{
			// As TensorFlow counts: from the opening, then from the last one that was kept.
			name: "every two hours", cfg: ManagerConfig{MaxToKeep: 1, KeepEvery: 2 * time.Hour},
			at: hours(1, 2, 3, 3.5, 4, 5, 6.5, 7), want: []int64{2, 5, 7, 8}, state: []int64{8},
		}, {
			name: "every two hours, reopened", cfg: ManagerConfig{MaxToKeep: 1, KeepEvery: 2 * time.Hour}, reopen: true,
			at: hours(1, 2, 3, 3.5, 4, 5, 6.5, 7), want: []int64{3, 6, 8}, state: []int64{8},
		}, {
			name: "the best is kept", cfg: ManagerConfig{MaxToKeep: 2}, protect: map[int64][]int64{3: {2}},
			at: hours(0, 1, 2, 3, 4, 5), want: []int64{2, 5, 6}, state: []int64{2, 5, 6},
		}, {
			name: "the best changes", cfg: ManagerConfig{MaxToKeep: 2}, protect: map[int64][]int64{3: {2}, 6: {5}},
			at: hours(0, 1, 2, 3, 4, 5, 6, 7), want: []int64{5, 7, 8}, state: []int64{5, 7, 8},
		}, {
			name: "the best survives a restart", cfg: ManagerConfig{MaxToKeep: 1}, protect: map[int64][]int64{2: {1}}, reopen: true,
			at: hours(0, 1, 2, 3), want: []int64{1, 4}, state: []int64{1, 4},
		}, {
			name: "nothing is protected any more", cfg: ManagerConfig{MaxToKeep: 1}, protect: map[int64][]int64{2: {1}, 4: nil}, reopen: true,
			at: hours(0, 1, 2, 3), want: []int64{4}, state: []int64{4},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			start := time.Unix(1_700_000_000, 0)
			clock := start
			open := func() *Manager {
				cfg := test.cfg
				cfg.Dir = dir
				m, err := openManager(&Manager{cfg: cfg, bundle: WriteBundle, now: func() time.Time { return clock }})
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			m := open()
			for i, hour := range test.at {
				step := int64(i + 1)
				clock = start.Add(time.Duration(hour * float64(time.Hour)))
				if test.reopen {
					m = open()
				}
				if list, ok := test.protect[step]; ok {
					if err := m.Protect(list...); err != nil {
						t.Fatal(err)
					}
				}
				save(t, m, step)
			}
			if got := stepsOf(t, m); !slices.Equal(got, test.want) {
				t.Errorf("in the folder %v, want %v", got, test.want)
			}
			want := filesFor(test.want...)
			if test.protect != nil {
				want = append(want, protectedName)
			}
			if got := fileNames(t, dir); !slices.Equal(got, want) {
				t.Errorf("files %q, want %q", got, want)
			}
			state, err := parseState(readFile(t, filepath.Join(dir, StateName)))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, s := range test.state {
				names = append(names, fmt.Sprintf("ckpt-%d", s))
			}
			if !slices.Equal(state.all, names) || state.latest != names[len(names)-1] || len(state.times) != len(names) {
				t.Errorf("state %+v, want %q", state, names)
			}
		})
	}
}

// A folder whose state file is gone, damaged or behind is read from its files.
func TestManagerStateFileLost(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"gone":    os.Remove,
		"damaged": func(path string) error { return os.WriteFile(path, []byte("}{"), 0o644) },
		"behind": func(path string) error {
			return os.WriteFile(path, []byte(`model_checkpoint_path: "ckpt-1" all_model_checkpoint_paths: "ckpt-1"`), 0o644)
		},
		"of another tool": func(path string) error {
			return os.WriteFile(path, []byte(`model_checkpoint_path: "/elsewhere/model.ckpt"`), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m := openTest(t, ManagerConfig{Dir: dir, MaxToKeep: 3})
			save(t, m, 1, 2, 3)
			if err := spoil(filepath.Join(dir, StateName)); err != nil {
				t.Fatal(err)
			}
			m = openTest(t, ManagerConfig{Dir: dir, MaxToKeep: 3})
			r, err := m.Restore(background, nil)
			if err != nil || r.Step != 3 {
				t.Fatalf("restored %+v, error %v", r, err)
			}
			save(t, m, 4)
			if got := stepsOf(t, m); !slices.Equal(got, []int64{2, 3, 4}) {
				t.Errorf("kept %v", got)
			}
		})
	}
}

func TestManagerLeftovers(t *testing.T) {
	dir := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: dir})
	save(t, m, 7)
	keep := []string{"ckpt-8.data", "other-9.data-00000-of-00001", ".saving-other-3.index", "ckpt-x.data-00000-of-00001", "params.yaml", "ckpt-007.data-00000-of-00001"}
	leftovers := []string{
		".saving-ckpt-8.data-00000-of-00001", ".saving-ckpt-8.index", ".saving-ckpt-9.index",
		".saving-ckpt-9.data-00000-of-00001.tempstate123", ".saving-ckpt-10.index.tempstate99", ".checkpoint.part-ABCDEFGHIJKLMNOP",
		"ckpt-9.data-00000-of-00001", "ckpt-11.data-00001-of-00002",
	}
	for _, name := range append(keep, leftovers...) {
		writeFile(t, filepath.Join(dir, name), []byte("partial"))
	}
	// Someone who only reads must leave a save in flight alone.
	openTest(t, ManagerConfig{Dir: dir, ReadOnly: true})
	if got := len(fileNames(t, dir)); got != 3+len(keep)+len(leftovers) {
		t.Errorf("a reader removed files: %d are left", got)
	}
	m = openTest(t, ManagerConfig{Dir: dir})
	want := append(filesFor(7), keep...)
	slices.Sort(want)
	if got := fileNames(t, dir); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	if r, err := m.Restore(background, nil); err != nil || r.Step != 7 {
		t.Errorf("restored %+v, error %v", r, err)
	}
}

// TestUnreadLeftover opens a folder in which a killed save left a whole checkpoint that cannot be read now.
func TestUnreadLeftover(t *testing.T) {
	dir := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: dir})
	save(t, m, 7, 8)
	m.Close()
	if err := os.Rename(IndexPath(m.prefix(8)), IndexPath(m.tempPrefix(8))); err != nil {
		t.Fatal(err)
	}
	unmount := vfs.Mount(DataPath(m.prefix(8), 0, 1), &vfstest.Unread{WorkFS: vfs.OS{}, From: 1, Times: math.MaxInt, Err: syscall.EMFILE})
	if _, err := OpenManager(ManagerConfig{Dir: dir}); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("error %v; expected %v", err, syscall.EMFILE)
	}
	unmount()
	if got := stepsOf(t, openTest(t, ManagerConfig{Dir: dir})); !slices.Equal(got, []int64{7, 8}) {
		t.Errorf("checkpoints are %v; expected 7 and 8", got)
	}
}

const index, data = ".index", ".data-00000-of-00001"

// threeSaved is a folder with checkpoints of steps 1 to 3, and what tells at which offset of the
// third one's data a tensor is.
func threeSaved(t *testing.T) (dir string, at func(tensor string) int) {
	t.Helper()
	dir = t.TempDir()
	save(t, openTest(t, ManagerConfig{Dir: dir}), 1, 2, 3)
	b, err := OpenBundle(filepath.Join(dir, "ckpt-3"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, func(tensor string) int {
		e, ok := b.Entry(tensor)
		if !ok {
			t.Fatal(tensor)
		}
		return int(e.Offset)
	}
}

// copied is a folder with the files of another.
func copied(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// flip flips a bit of a file's byte at an offset, which counts from the end where it is below 0.
func flip(offset int) func([]byte) []byte {
	return func(b []byte) []byte {
		if offset < 0 {
			offset += len(b)
		}
		b[offset] ^= 4
		return b
	}
}

// Damage in any part of the newest checkpoint leads to the one before, with the
// reason in the log and in the result; the next save sweeps the damaged one away.
func TestManagerDamage(t *testing.T) {
	master, at := threeSaved(t)
	for _, test := range []struct {
		name, file string
		change     func([]byte) []byte // nil removes the file
		want       string              // what the reason says
	}{
		{"entry block", index, flip(5), "checksum of the index block"},
		{"index block", index, flip(-48 - 20), "checksum of the index block"},
		{"handle in the footer", index, flip(-48 + 3), "block"},
		{"magic number", index, flip(-1), "magic number"},
		{"index cut", index, func(b []byte) []byte { return b[:len(b)-1] }, "magic number"},
		{"index empty", index, func([]byte) []byte { return nil }, "too few"},
		{"variable", data, flip(at(VariableKey("model/layers/1/kernel")) + 100), `tensor "model/layers/1/kernel/.ATTRIBUTES/VARIABLE_VALUE"`},
		{"state", data, flip(at(VariableKey(StateVariable))), `tensor "runner_state/.ATTRIBUTES/VARIABLE_VALUE"`},
		{"object graph", data, flip(at(ObjectGraphKey) + 30), `tensor "_CHECKPOINTABLE_OBJECT_GRAPH"`},
		{"data cut", data, func(b []byte) []byte { return b[:len(b)/2] }, "; expected at least"},
		{"data empty", data, func([]byte) []byte { return nil }, "; expected at least"},
		{"data gone", data, nil, "no such file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := copied(t, master)
			path := filepath.Join(dir, "ckpt-3"+test.file)
			if test.change == nil {
				os.Remove(path)
			} else {
				writeFile(t, path, test.change(readFile(t, path)))
			}
			var log bytes.Buffer
			m := openTest(t, ManagerConfig{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			r, err := m.Restore(background, nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.Step != 2 || len(r.Skipped) != 1 || r.Skipped[0].Step != 3 {
				t.Fatalf("restored step %d, skipped %+v", r.Step, r.Skipped)
			}
			checkModel(t, r)
			reason := r.Skipped[0].Err.Error()
			if !strings.Contains(reason, test.want) || !strings.Contains(reason, "ckpt-3.") {
				t.Errorf("reason %q, want the file and %q", reason, test.want)
			}
			if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "ckpt-3") {
				t.Errorf("log: %s", log.String())
			}
			// The run continues from 2, and may save at other steps than before. (The
			// index that is gone from a checkpoint without data is gone, too.)
			if err := m.Save(background, 2, mustModel(t, 2), nil); err != nil {
				t.Fatal(err)
			}
			if err := m.Wait(background); err != nil {
				t.Fatal(err)
			}
			if got := fileNames(t, dir); !slices.Equal(got, filesFor(1, 2)) {
				t.Errorf("files %q", got)
			}
		})
	}
}

func TestManagerAllDamaged(t *testing.T) {
	dir, at := threeSaved(t)
	for step := 1; step <= 3; step++ {
		path := filepath.Join(dir, fmt.Sprintf("ckpt-%d%s", step, data))
		writeFile(t, path, flip(at(ObjectGraphKey)+30)(readFile(t, path)))
	}
	_, err := openTest(t, ManagerConfig{Dir: dir}).Restore(background, nil)
	var lost *AllDamagedError
	var corrupt *CorruptError
	if !errors.As(err, &lost) || len(lost.Skipped) != 3 || !errors.As(err, &corrupt) || errors.Is(err, ErrNoCheckpoint) || !strings.Contains(err.Error(), "all 3 checkpoints are damaged") {
		t.Errorf("error %v", err)
	}
}

// TestManagerUnreadable checks that a checkpoint that cannot be read is not taken for a damaged one.
func TestManagerUnreadable(t *testing.T) {
	dir, _ := threeSaved(t)
	if err := os.Chmod(filepath.Join(dir, "ckpt-3"+data), 0); err != nil {
		t.Fatal(err)
	}
	testkit.AsUser(t, dir)
	if _, err := openTest(t, ManagerConfig{Dir: dir}).Restore(background, nil); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v", err)
	}
}

// faultyFiles counts operations, notes them, and fails all from number crash on,
// as if the process had died there.
type faultyFiles struct {
	vfs.OS
	unmount func()

	mu    sync.Mutex
	n     int
	crash int // 0: never
	ops   []string
}

var errCrash = errors.New("crash")

func (f *faultyFiles) op(kind, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	f.ops = append(f.ops, kind+" "+filepath.Base(name))
	if f.crash > 0 && f.n >= f.crash {
		return errCrash
	}
	return nil
}

func (f *faultyFiles) Rename(from, to string) error {
	if err := f.op("rename", to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

func (f *faultyFiles) Link(from, to string) error {
	if err := f.op("link", to); err != nil {
		return err
	}
	return os.Link(from, to)
}

func (f *faultyFiles) Remove(name string) error {
	if err := f.op("remove", name); err != nil {
		return err
	}
	return os.Remove(name)
}

func (f *faultyFiles) SyncDir(dir string) error {
	if err := f.op("sync", ""); err != nil {
		return err
	}
	return vfs.OS{}.SyncDir(dir)
}

func (f *faultyFiles) OpenFile(name string, flag int, perm fs.FileMode) (vfs.WorkFile, error) {
	if flag&os.O_CREATE != 0 {
		if err := f.op("write", name); err != nil {
			// The process died while it wrote.
			os.WriteFile(name, []byte("half"), 0o644)
			return nil, err
		}
	}
	return vfs.OS{}.OpenFile(name, flag, perm)
}

func (f *faultyFiles) bundle(ctx context.Context, prefix string, tensors []NamedTensor, opts ...Option) error {
	if err := f.op("bundle", prefix); err != nil {
		return err
	}
	if err := WriteBundle(ctx, prefix, tensors, opts...); err != nil {
		return err
	}
	if err := f.op("bundle written", prefix); err != nil {
		// Within SaveV2 the data file is renamed before the index is begun.
		os.Rename(IndexPath(prefix), IndexPath(prefix)+".tempstate42")
		return err
	}
	return nil
}

// openFaulty opens a manager whose folder lies on f until f.unmount.
func openFaulty(t testing.TB, cfg ManagerConfig, f *faultyFiles) *Manager {
	t.Helper()
	f.unmount = vfs.Mount(cfg.Dir, f)
	t.Cleanup(f.unmount)
	m, err := openManager(&Manager{cfg: cfg, bundle: f.bundle, now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The order of operations is what makes a checkpoint complete or invisible.
func TestManagerOrder(t *testing.T) {
	dir := t.TempDir()
	f := &faultyFiles{}
	m := openFaulty(t, ManagerConfig{Dir: dir, MaxToKeep: 1}, f)
	save(t, m, 1)
	f.ops = nil
	save(t, m, 2)
	want := []string{
		"bundle .saving-ckpt-2", "sync .", "bundle written .saving-ckpt-2",
		"rename ckpt-2.data-00000-of-00001", "sync .", "rename ckpt-2.index", "sync .",
		"write .saving-pruned.json", "write .checkpoint.part-", "rename checkpoint", "sync .",
		"remove ckpt-1.index", "remove ckpt-1.data-00000-of-00001", "remove .saving-pruned.json",
	}
	for i, op := range f.ops {
		if part, _, ok := strings.Cut(op, ".part-"); ok {
			f.ops[i] = part + ".part-"
		}
	}
	if !slices.Equal(f.ops, want) {
		t.Errorf("operations:\n%s\nwant:\n%s", strings.Join(f.ops, "\n"), strings.Join(want, "\n"))
	}
}

// A crash before, in or after any operation of a save leaves the checkpoint
// before it or the new one, whole, and the next process cleans up.
func TestManagerCrashAnywhere(t *testing.T) {
	for _, test := range []struct {
		name   string
		cfg    ManagerConfig
		before []int64
		step   int64
		// other values than model(step) that the saved checkpoint may have: of the one it replaces
		replaces bool
	}{
		{name: "another", before: []int64{1}, step: 2},
		{name: "first", step: 2},
		{name: "with pruning", cfg: ManagerConfig{MaxToKeep: 1}, before: []int64{1}, step: 2},
		{name: "replace", before: []int64{1, 2}, step: 2, replaces: true},
		{name: "replace the only one", cfg: ManagerConfig{MaxToKeep: 1}, before: []int64{2}, step: 2, replaces: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			master := t.TempDir()
			save(t, openTest(t, ManagerConfig{Dir: master}), test.before...)
			for crash := 1; ; crash++ {
				dir := copied(t, master)
				cfg := test.cfg
				cfg.Dir = dir
				f := &faultyFiles{crash: 0}
				m := openFaulty(t, cfg, f)
				f.n, f.crash = 0, crash
				values := mustModel(t, test.step)
				state := fmt.Sprintf("state of %d", test.step)
				if test.replaces {
					values, state = mustModel(t, 1000), "new"
				}
				if err := m.Save(background, test.step, values, []byte(state)); err != nil {
					t.Fatal(err)
				}
				err := m.Close()
				f.unmount()
				if f.n < crash {
					if err != nil {
						t.Fatal(err)
					}
					if crash < 9 {
						t.Errorf("a save of only %d operations", f.n)
					}
					return
				}
				name := fmt.Sprintf("crash at %q", f.ops[len(f.ops)-1])
				if crash-1 < len(f.ops) {
					name = fmt.Sprintf("crash at operation %d, %q", crash, f.ops[crash-1])
				}
				cfg.MaxToKeep = 0
				r, err := openTest(t, cfg).Restore(background, nil)
				switch {
				case errors.Is(err, ErrNoCheckpoint) && len(test.before) == 0:
				case err != nil:
					t.Errorf("%s: %v", name, err)
					continue
				case len(r.Skipped) > 0:
					t.Errorf("%s: skipped %v", name, r.Skipped)
				case test.replaces && string(r.State) == "new":
					r.Checkpoint.Step, r.State = 1000, []byte("state of 1000")
					checkModel(t, r)
				default:
					checkModel(t, r)
				}
				for _, file := range fileNames(t, dir) {
					if strings.HasPrefix(file, tempPrefix) || strings.Contains(file, "tempstate") {
						t.Errorf("%s: %s is left", name, file)
					}
				}
				if state, err := parseState(readFileOr(filepath.Join(dir, StateName))); err != nil {
					t.Errorf("%s: %v", name, err)
				} else if state.latest != "" && whole(Checkpoint{Prefix: filepath.Join(dir, state.latest)}) != nil {
					t.Errorf("%s: the state file names %s, which is not there", name, state.latest)
				}
			}
		})
	}
}

func readFileOr(path string) []byte {
	data, _ := os.ReadFile(path)
	return data
}

// failingBundle writes half a bundle and fails, like a full disk.
func failingBundle(_ context.Context, prefix string, _ []NamedTensor, _ ...Option) error {
	os.WriteFile(DataPath(prefix, 0, 1)+".tempstate7", []byte("half"), 0o644)
	return fromTensorFlow(errors.New(prefix + ": write: No space left on device"))
}

// A background failure is told at the next call, once, and does not keep the
// next save from beginning.
func TestManagerBackgroundError(t *testing.T) {
	dir := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: dir})
	save(t, m, 1)
	isFull := func(err error, step int64) {
		t.Helper()
		var failed *SaveError
		if !errors.As(err, &failed) || failed.Step != step || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("error %v, want a SaveError of step %d with ENOSPC", err, step)
		}
	}
	m.bundle = failingBundle
	if err := m.Save(background, 2, mustModel(t, 2), nil); err != nil {
		t.Fatal(err)
	}
	isFull(m.Wait(background), 2)
	if err := m.Wait(background); err != nil {
		t.Errorf("told twice: %v", err)
	}
	if got := fileNames(t, dir); !slices.Equal(got, filesFor(1)) {
		t.Errorf("files %q", got)
	}
	if err := m.Save(background, 3, mustModel(t, 3), nil); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	written := m.inflight
	m.mu.Unlock()
	if written != nil {
		<-written
	}
	m.bundle = WriteBundle
	isFull(m.Save(background, 4, mustModel(t, 4), []byte("state of 4")), 3)
	if err := m.Wait(background); err != nil {
		t.Error(err)
	}
	if r, err := m.Restore(background, nil); err != nil || r.Step != 4 {
		t.Errorf("restored %+v, error %v", r, err)
	} else {
		checkModel(t, r)
	}
	m.bundle = failingBundle
	if err := m.Save(background, 5, mustModel(t, 5), nil); err != nil {
		t.Fatal(err)
	}
	isFull(m.Close(), 5)
}

// Save returns while the one it began is written; the next waits for it.
func TestManagerOneInFlight(t *testing.T) {
	m := openTest(t, ManagerConfig{Dir: t.TempDir()})
	begun, proceed := make(chan string, 2), make(chan struct{})
	m.bundle = func(ctx context.Context, prefix string, tensors []NamedTensor, opts ...Option) error {
		begun <- filepath.Base(prefix)
		<-proceed
		return WriteBundle(ctx, prefix, tensors, opts...)
	}
	ctx, cancel := context.WithCancel(background)
	if err := m.Save(ctx, 1, mustModel(t, 1), nil); err != nil {
		t.Fatal(err)
	}
	<-begun
	cancel() // which must not stop the write
	if err := m.Save(ctx, 2, mustModel(t, 2), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled save: %v", err)
	}
	if err := m.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled wait: %v", err)
	}
	second := make(chan error)
	go func() { second <- m.Save(background, 3, mustModel(t, 3), nil) }()
	select {
	case err := <-second:
		t.Errorf("the second save did not wait: %v", err)
	case name := <-begun:
		t.Errorf("%s began beside the first", name)
	case <-time.After(10 * time.Millisecond):
	}
	close(proceed)
	if err := <-second; err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if got := stepsOf(t, m); !slices.Equal(got, []int64{1, 3}) {
		t.Errorf("saved %v", got)
	}
}

// Readers at the same time as a writer that prunes: they always find a whole checkpoint.
func TestManagerConcurrentReaders(t *testing.T) {
	dir := t.TempDir()
	w := openTest(t, ManagerConfig{Dir: dir, MaxToKeep: 1})
	save(t, w, 1)
	const last = 25
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			r := openTest(t, ManagerConfig{Dir: dir, ReadOnly: true})
			for step := int64(0); step < last; {
				c, err := r.Latest()
				if errors.Is(err, ErrNoCheckpoint) || err == nil && c.Step <= step {
					time.Sleep(time.Millisecond) // the writer is not further, or deleted what was listed
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				got, err := r.Restore(background, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if got.Step < c.Step || len(got.Skipped) > 0 {
					t.Errorf("the latest was %d, restored %d, skipped %v", c.Step, got.Step, got.Skipped)
				}
				checkModel(t, got)
				step = got.Step
			}
		})
	}
	for step := int64(2); step <= last; step++ {
		if err := w.Save(background, step, mustModel(t, step), fmt.Appendf(nil, "state of %d", step)); err != nil {
			t.Error(err)
		}
		if err := w.Protect(step - 1); err != nil {
			t.Error(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestLatestNeedsData(t *testing.T) {
	dir := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: dir})
	save(t, m, 4)
	writeFile(t, filepath.Join(dir, "ckpt-6.index"), readFile(t, filepath.Join(dir, "ckpt-4.index")))
	if c, err := m.Latest(); err != nil || c.Step != 4 {
		t.Errorf("latest %+v, error %v; expected that of step 4, for 6 has no data", c, err)
	}
}
