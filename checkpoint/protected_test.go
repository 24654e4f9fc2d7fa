package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// TestProtectedIsReadByOthers looks at the list from a manager that was opened for
// reading before it was written.
func TestProtectedIsReadByOthers(t *testing.T) {
	dir := t.TempDir()
	writer, err := OpenManager(ManagerConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := OpenManager(ManagerConfig{Dir: dir, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]int64{{3}, {5, 7}} {
		if err := writer.Protect(want...); err != nil {
			t.Fatal(err)
		}
		for name, m := range map[string]*Manager{"writer": writer, "reader": reader} {
			got, err := m.Protected()
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, %v, want %v", name, got, err, want)
			}
		}
	}
}

// TestProtectedSaveCrashAnywhere kills a save of a protected checkpoint at every
// operation: the newest protected step whose checkpoint is there is that of the newest
// checkpoint, or the one before where the new one cannot be seen.
func TestProtectedSaveCrashAnywhere(t *testing.T) {
	master := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: master})
	if err := m.Save(background, 1, mustModel(t, 1), nil, Protected()); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for crash := 1; ; crash++ {
		dir := copied(t, master)
		f := &faultyFiles{}
		m := openFaulty(t, ManagerConfig{Dir: dir, MaxToKeep: 1}, f)
		f.n, f.crash = 0, crash
		if err := m.Save(background, 2, mustModel(t, 2), nil, Protected()); err != nil {
			t.Fatal(err)
		}
		_ = m.Close()
		f.unmount()
		for _, cfg := range []ManagerConfig{{Dir: dir, ReadOnly: true}, {Dir: dir}} {
			m := openTest(t, cfg)
			newest, err := m.Newest()
			if err != nil {
				t.Fatal(err)
			}
			list, err := m.Protected()
			if err != nil {
				t.Fatal(err)
			}
			best := int64(-1)
			for _, step := range list {
				if _, err := m.Find(step); err == nil {
					best = step
				}
			}
			if best != newest.Step {
				t.Errorf("crash %d, read only %v: protected %v, the newest checkpoint is %d", crash, cfg.ReadOnly, list, newest.Step)
			}
		}
		if f.n < crash {
			if crash < 15 {
				t.Errorf("a save of only %d operations", f.n)
			}
			return
		}
	}
}

// TestProtectedDamaged reads a list whose bytes are lost: a reader refuses, a writer
// continues and writes the list again.
func TestProtectedDamaged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, protectedName)
	for _, content := range []string{"", "[3, 4", `[3, "x"]`, "null and more", "\x00\x00\x00"} {
		writeFile(t, path, []byte(content))
		_, err := openTest(t, ManagerConfig{Dir: dir, ReadOnly: true}).Protected()
		if corrupt := (*CorruptError)(nil); !errors.As(err, &corrupt) || corrupt.Path != path {
			t.Errorf("%q: %v", content, err)
		}
		m := openTest(t, ManagerConfig{Dir: dir})
		if list, err := m.Protected(); len(list) > 0 || err != nil {
			t.Errorf("%q: %v, %v", content, list, err)
		}
		if err := m.Protect(); err != nil {
			t.Fatal(err)
		}
		if got := string(readFile(t, path)); got != "[]\n" {
			t.Errorf("%q became %q", content, got)
		}
	}
}

// TestBeforeFails holds a checkpoint back whose state counts on what could not be
// brought to the disk.
func TestBeforeFails(t *testing.T) {
	dir := t.TempDir()
	m := openTest(t, ManagerConfig{Dir: dir})
	broken := errors.New("the log was not synced")
	if err := m.Save(background, 1, mustModel(t, 1), nil, Before(func() error { return broken })); err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(background); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if files := fileNames(t, dir); len(files) > 0 {
		t.Errorf("left %q", files)
	}
}

// TestDamagedIsNotMissing restores a given checkpoint that is damaged, and one that is
// not there: the first is damage, the second is not.
func TestDamagedIsNotMissing(t *testing.T) {
	for name, damage := range map[string]func(prefix string) error{
		"index cut":    func(prefix string) error { return os.Truncate(IndexPath(prefix), 20) },
		"index empty":  func(prefix string) error { return os.Truncate(IndexPath(prefix), 0) },
		"data cut":     func(prefix string) error { return os.Truncate(DataPath(prefix, 0, 1), 20) },
		"data missing": func(prefix string) error { return os.Remove(DataPath(prefix, 0, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			m := openTest(t, ManagerConfig{Dir: t.TempDir()})
			save(t, m, 3)
			c, err := m.Find(3)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(c.Prefix); err != nil {
				t.Fatal(err)
			}
			if c, err = m.Find(3); err != nil {
				t.Fatalf("the checkpoint is there: %v", err)
			}
			if _, err := m.RestoreFrom(background, c, nil); !errors.Is(err, fault.Damaged) || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("error %v", err)
			}
			if _, err := m.Find(4); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("step 4: %v", err)
			}
		})
	}
}

// TestFolderInPlaceOfProtected finds a folder where the list should be.
func TestFolderInPlaceOfProtected(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, protectedName)
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := OpenManager(ManagerConfig{Dir: dir})
	want := "checkpoints: " + path + " is a folder; expected a file; remove it and type the same command again: the run rewrites the list"
	if err == nil || err.Error() != want || !errors.Is(err, fault.Damaged) {
		t.Errorf("%v, want %s", err, want)
	}
}
