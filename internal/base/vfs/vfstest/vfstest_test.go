package vfstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// with calls do while all paths lie on a file system.
func with(f vfs.WorkFS, do func() error) error {
	defer vfs.Mount("/", f)()
	return do()
}

// change does a random operation below a folder and says what came of it.
func change(r *rand.Rand, f vfs.WorkFS, dir string) string {
	name := func() string { return filepath.Join(dir, []string{"a", "b", "d", "d/x", "d/y"}[r.IntN(5)]) }
	word := func(err error) string {
		for _, e := range []error{fs.ErrNotExist, fs.ErrExist, syscall.EPERM, syscall.ENOTEMPTY, syscall.EISDIR, syscall.ENOTDIR} {
			if errors.Is(err, e) {
				return e.Error()
			}
		}
		return fmt.Sprint(err)
	}
	switch op := r.IntN(10); op {
	case 0, 1, 2:
		flags := []int{os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_RDWR | os.O_CREATE | os.O_TRUNC, os.O_RDWR | os.O_CREATE | os.O_EXCL, os.O_WRONLY | os.O_APPEND}
		file, err := f.OpenFile(name(), flags[r.IntN(len(flags))], 0o644)
		data, at, size := bytes.Repeat([]byte{byte('a' + r.IntN(26))}, r.IntN(9)), r.Int64N(12), r.Int64N(12)
		which := r.IntN(3)
		if err != nil {
			return word(err)
		}
		defer file.Close()
		if _, err := file.Write(data); err != nil {
			return word(err)
		}
		if which == 1 {
			err = file.Truncate(size)
		}
		if which == 2 {
			_, err = file.WriteAt(data, at)
			if err != nil {
				return "not written" // O_APPEND and WriteAt do not go together
			}
		}
		return word(errors.Join(err, file.Sync()))
	case 3:
		from, to := name(), name()
		if from == filepath.Join(dir, "d") && filepath.Dir(to) == from {
			return "" // a folder into itself
		}
		return word(f.Rename(from, to))
	case 4:
		return word(f.Remove(name()))
	case 5:
		return word(f.Mkdir(name(), 0o777))
	case 6:
		content := []byte{byte(r.IntN(256))}
		return word(with(f, func() error { return vfs.ReplaceFile(filepath.Join(dir, "a"), content) }))
	case 7:
		return word(f.Link(name(), name()))
	case 8:
		return word(f.SyncDir(dir))
	default:
		list, err := f.ReadDir(dir)
		out := word(err)
		for _, e := range list {
			out += " " + e.Name()
		}
		return out
	}
}

// tree returns all files of a folder of the operating system as Memory.Files does.
func tree(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	r, err := NewRecorder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r.start.Files()
}

func sameFiles(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// TestMemoryIsAsTheSystem does the same operations on a Memory, on the operating system
// and on a Recorder.
func TestMemoryIsAsTheSystem(t *testing.T) {
	for seed := range uint64(300) {
		m, onDisk, recorded := NewMemory(), testkit.MemoryDir(t), testkit.MemoryDir(t)
		rec, err := NewRecorder(recorded)
		if err != nil {
			t.Fatal(err)
		}
		a, b, c := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 0))
		for i := range 60 {
			x, y, z := change(a, m, "/"), change(b, vfs.OS{}, onDisk), change(c, rec, recorded)
			if x != y || y != z {
				t.Fatalf("seed %d, operation %d: in memory %q, on disk %q, recorded %q", seed, i, x, y, z)
			}
		}
		want := tree(t, onDisk)
		if got := m.Files(); !sameFiles(got, want) {
			t.Fatalf("seed %d: in memory %q, on disk %q", seed, got, want)
		}
		var last *Memory
		points := 0
		if err := rec.Crashes(func(c Crash) error {
			points++
			if c.Loss == NoLoss {
				last = c.Disk
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if got := last.Files(); !sameFiles(got, want) || points != 3*(rec.Len()+1) {
			t.Fatalf("seed %d: done again %q, on disk %q, %d points", seed, got, want, points)
		}
		out := testkit.MemoryDir(t)
		if err := last.WriteTo(out); err != nil {
			t.Fatal(err)
		}
		if got := tree(t, out); !sameFiles(got, want) {
			t.Fatalf("seed %d: written %q, want %q", seed, got, want)
		}
	}
}

// TestAfterCrash says what a crash takes.
func TestAfterCrash(t *testing.T) {
	m := NewMemory()
	do := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	defer vfs.Mount("/", m)()
	do(m.Mkdir("/d", 0o777), m.SyncDir("/"))
	do(vfs.WriteFile("/d/old", []byte("1")), vfs.WriteFile("/d/gone", nil), m.SyncDir("/d"))
	do(m.Remove("/d/gone"), m.Rename("/d/old", "/d/new"))
	f, err := vfs.Create("/d/torn")
	do(err)
	_, err = f.Write([]byte("half"))
	do(err, f.Sync())
	_, err = f.Write([]byte("whole"))
	do(err)
	for loss, want := range map[Loss]map[string][]byte{
		NoLoss:       {"d/": nil, "d/new": []byte("1"), "d/torn": []byte("halfwhole")},
		UnsyncedData: {"d/": nil, "d/new": []byte("1"), "d/torn": []byte("half")},
		Unsynced:     {"d/": nil, "d/old": []byte("1"), "d/gone": nil},
	} {
		if got := m.AfterCrash(loss).Files(); !sameFiles(got, want) {
			t.Errorf("%v: %q, want %q", loss, got, want)
		}
	}
}

// TestReplaceAnywhere fails or kills the writing of a file at every operation: the file is as it was or
// as it is to be, and the next call leaves nothing behind.
func TestReplaceAnywhere(t *testing.T) {
	for what, c := range map[string]struct {
		old   string // "" for no file
		write func(content string) error
	}{
		"replace":   {"old", func(content string) error { return vfs.ReplaceFile("/f", []byte(content)) }},
		"overwrite": {"old", func(content string) error { return writeWhole(content, true) }},
		"new":       {"", func(content string) error { return writeWhole(content, false) }},
	} {
		for _, kill := range []bool{false, true} {
			for at := 1; ; at++ {
				m := NewMemory()
				if c.old != "" {
					if err := with(m, func() error { return errors.Join(vfs.WriteFile("/f", []byte(c.old)), m.SyncDir("/")) }); err != nil {
						t.Fatal(err)
					}
				}
				f := &Failing{WorkFS: m, At: at, Kill: kill, Err: syscall.ENOSPC}
				err := with(f, func() error { return c.write("new and longer") })
				if done := f.Count() < at; done && err != nil || err != nil && !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("%s: operation %d of %d: %v", what, at, f.Count(), err)
				}
				for _, loss := range []Loss{NoLoss, UnsyncedData, Unsynced} {
					disk := m.AfterCrash(loss)
					if s := string(disk.Files()["f"]); s != c.old && s != "new and longer" || err == nil && s == c.old {
						t.Errorf("%s: operation %d, kill %v, %v: %q", what, at, kill, loss, s)
					}
					if err := with(disk, func() error { return vfs.ReplaceFile("/f", []byte("new")) }); err != nil {
						t.Fatal(err)
					}
					if files := disk.Files(); len(files) != 1 || string(files["f"]) != "new" {
						t.Errorf("%s: operation %d, kill %v, %v: then %q", what, at, kill, loss, files)
					}
				}
				if f.Count() < at {
					break
				}
			}
		}
	}
}

// writeWhole writes a file that appears whole.
func writeWhole(content string, overwrite bool) error {
	w, err := vfs.CreateWhole("/f", overwrite)
	if err != nil {
		return err
	}
	defer w.Discard()
	if _, err := w.Write([]byte(content)); err != nil {
		return err
	}
	return w.End(context.Background())
}

// TestRecorderSeesOthers syncs and renames files that were written past the Recorder.
func TestRecorderSeesOthers(t *testing.T) {
	dir := t.TempDir()
	r, err := NewRecorder(dir)
	if err != nil {
		t.Fatal(err)
	}
	path, final := filepath.Join(dir, "f"), filepath.Join(dir, "g")
	if err := os.WriteFile(path, []byte("abcd"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(with(r, func() error { return vfs.SyncFile(path) }), r.Rename(path, final), r.SyncDir(dir)); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := r.Crashes(func(c Crash) error {
		if c.Loss == NoLoss {
			got = append(got, fmt.Sprintf("%s | %s", slices.Sorted(maps.Keys(c.Disk.Files())), c.Next))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"[] | create f", "[f] | write f", "[f] | write f", "[f] | sync f", "[f] | rename g", "[g] | sync ./", "[g] | "}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRemoveAll(t *testing.T) {
	m := NewMemory()
	defer vfs.Mount("/", m)()
	if err := errors.Join(vfs.MkdirAll("/a/b/c", 0o777), vfs.WriteFile("/a/b/f", nil), vfs.RemoveAll("/a"), vfs.RemoveAll("/a")); err != nil {
		t.Fatal(err)
	}
	if files := m.Files(); len(files) > 0 {
		t.Errorf("left %q", files)
	}
	f, err := vfs.Create("/x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("z"), 3); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(f); err != nil || string(got) != "\x00\x00\x00z" {
		t.Errorf("%q, %v", got, err)
	}
}
