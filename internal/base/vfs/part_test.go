package vfs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// content returns the files of a folder.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(data)
	}
	return files
}

// begun begins a file and writes to it.
func begun(t *testing.T, name, text string, overwrite bool) *Whole {
	t.Helper()
	w, err := CreateWhole(name, overwrite)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Discard)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return w
}

// noLinks is a file system without links.
type noLinks struct{ OS }

func (noLinks) Link(from, to string) error {
	return &os.LinkError{Op: "link", Old: from, New: to, Err: unix.EPERM}
}

// TestTwoWriters writes one file twice at once: it has the content of one of them, whole.
func TestTwoWriters(t *testing.T) {
	for _, c := range []struct {
		fs        WorkFS
		overwrite bool
		want      string
	}{{OS{}, true, "second"}, {OS{}, false, "the first"}, {noLinks{}, false, "the first"}} {
		dir := t.TempDir()
		defer Mount(dir, c.fs)()
		name := filepath.Join(dir, "out.csv")
		first, second := begun(t, name, "the first", c.overwrite), begun(t, name, "second", c.overwrite)
		if err := first.End(context.Background()); err != nil {
			t.Fatal(err)
		}
		err := second.End(context.Background())
		if refused := errors.Is(err, fault.Usage) && strings.Contains(err.Error(), "was made by another program meanwhile"); refused == c.overwrite || err != nil && !refused {
			t.Errorf("overwrite %v: the second writer: %v", c.overwrite, err)
		}
		second.Discard()
		if got := content(t, dir); !maps.Equal(got, map[string]string{"out.csv": c.want}) {
			t.Errorf("overwrite %v: %q, want %q", c.overwrite, got, c.want)
		}
	}
}

// TestLeftovers begins a file where other processes write, were killed, or have files of their own.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	live := begun(t, filepath.Join(dir, "live"), "alive", false)
	other := ".x.part-ABCDEFGHIJKLMNO" // too short
	stays := map[string]string{filepath.Base(live.Name()): "alive", other: "mine", "out": "new"}
	for _, name := range []string{other, ".out.part-ABCDEFGHIJKLMNOP", ".a b.part-QRSTUVWXYZ234567"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := ReplaceFile(filepath.Join(dir, "out"), []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got := content(t, dir); !maps.Equal(got, stays) {
		t.Errorf("the folder has %q, want %q", got, stays)
	}
}

// TestManyWriters replaces a file in many goroutines, which must not take each other's temporary files
// for leftovers.
func TestManyWriters(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	errs := make(chan error)
	for i := range 8 {
		go func() {
			var err error
			for j := range 50 {
				err = errors.Join(err, ReplaceFile(name, []byte(strings.Repeat(fmt.Sprint(i), 1+j))))
			}
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := content(t, dir); len(got) != 1 || len(got["f"]) == 0 || strings.Trim(got["f"], got["f"][:1]) != "" {
		t.Errorf("the folder has %q", got)
	}
}

// TestNothingThroughLinks writes where somebody has laid a symbolic link to another's file.
func TestNothingThroughLinks(t *testing.T) {
	for what, write := range map[string]func(name string) error{
		"create": func(name string) error { _, err := Create(name); return err },
		"write":  func(name string) error { return WriteFile(name, []byte("x")) },
		"copy":   func(name string) error { return CopyFile("/dev/null", name) },
		"append": func(name string) error {
			_, err := OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
			return err
		},
		"exclusive": func(name string) error {
			_, err := OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
			return err
		},
		"replace": func(name string) error { return ReplaceFile(name, []byte("x")) },
		"whole":   func(name string) error { return begun(t, name, "x", true).End(context.Background()) },
		"new":     func(name string) error { _, err := CreateWhole(name, false); return err },
	} {
		for _, leads := range []bool{true, false} {
			dir, elsewhere := t.TempDir(), t.TempDir()
			to := filepath.Join(elsewhere, "secret")
			want := map[string]string{}
			if leads {
				want["secret"] = "kept"
				if err := os.WriteFile(to, []byte("kept"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			name := filepath.Join(dir, "f")
			if err := os.Symlink(to, name); err != nil {
				t.Fatal(err)
			}
			err := write(name)
			if replaces := slices.Contains([]string{"replace", "whole"}, what); replaces != (err == nil) {
				t.Errorf("%s: %v", what, err)
			}
			if got := content(t, elsewhere); !maps.Equal(got, want) {
				t.Errorf("%s went through a link: %q", what, got)
			}
		}
	}
}

// TestPartsAreNamed makes files whose parts cannot be made: the error has the file's own name.
func TestPartsAreNamed(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("ä", 120)
	if err := ReplaceFile(filepath.Join(dir, long), nil); err != nil {
		t.Errorf("a long name: %v", err)
	}
	err := ReplaceFile(filepath.Join(dir, "none", "f"), nil)
	if want := "open " + filepath.Join(dir, "none", "f") + ": no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
