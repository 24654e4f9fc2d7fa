package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// mounted is a file system that differs from others of its kind.
type mounted struct {
	OS
	name string
}

func TestMount(t *testing.T) {
	dir := t.TempDir()
	m, inner := &mounted{name: "m"}, &mounted{name: "inner"}
	unmount := Mount(dir, m)
	defer Mount(filepath.Join(dir, "in"), inner)()
	for path, want := range map[string]ReadFS{
		dir: m, dir + "/": m, filepath.Join(dir, "x"): m, dir + "x": OS{}, "/": OS{}, "relative": OS{},
		filepath.Join(dir, "in", "y"): inner, filepath.Join(dir, "inner"): m,
	} {
		if got, err := on("open", path); err != nil || got != want {
			t.Errorf("%s lies on %T, want %T", path, got, want)
		}
	}
	unmount()
	unmount()
	if got, _ := on("open", dir); got != (OS{}) {
		t.Errorf("%T after it was unmounted", got)
	}
}

func TestReadFileIsForSmallFiles(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<40); err != nil { // it has no blocks
		t.Fatal(err)
	}
	for path, want := range map[string]string{large: "has 1099511627776 bytes", dir: "is a folder; expected a file", "/dev/zero": "is a device; expected a regular file"} {
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, fault.Damaged) {
			t.Errorf("%s: %v, want %q of class damaged", path, err, want)
		}
	}
}

// TestReadOnly changes what can only be read.
func TestReadOnly(t *testing.T) {
	defer Mount("ro://", struct{ ReadFS }{OS{}})()
	const a, b = "ro://x/a", "ro://x/b"
	_, opened := OpenFile(a, os.O_RDWR, 0)
	_, created := Create(a)
	for op, err := range map[string]error{"open": opened, "create": created, "rename": Rename(a, b), "exchange": Exchange(a, b), "link": Link(a, b),
		"remove": Remove(a), "mkdir": Mkdir(a, 0o777), "sync": SyncDir(a), "write": WriteFile(a, nil)} {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "cannot be written in place") {
			t.Errorf("%s: %v", op, err)
		}
	}
}
