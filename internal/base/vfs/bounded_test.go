package vfs

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

func TestReadBounded(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, content := range map[string]string{"empty": "", "three": "abc", "four": "abcd"} {
		if err := os.WriteFile(path(name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(path("three"), path("link")); err != nil {
		t.Fatal(err)
	}
	huge, err := os.Create(path("huge"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(huge.Truncate(1<<40), huge.Close()); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path("pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ path, content, err string }{
		{path("empty"), "", ""},
		{path("three"), "abc", ""},
		{path("link"), "abc", ""},
		{path("four"), "", path("four") + " has 4 bytes; expected at most 3"},
		{path("huge"), "", "has 1099511627776 bytes; expected at most 3"},
		{path("pipe"), "", "is a pipe; expected a regular file"},
		{"/dev/zero", "", "/dev/zero is a device; expected a regular file"},
		{dir, "", "is a folder; expected a file"},
	} {
		data, err := ReadBounded(test.path, 3)
		if string(data) != test.content || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %q, %v; expected %q, %q", test.path, data, err, test.content, test.err)
		}
	}
	if _, err := ReadBounded(path("missing"), 3); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestOpen opens what is no regular file, from which reading might never end. No writer ever opens the
// pipe.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	pipe, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "socket")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, want := range map[string]string{pipe: "is a pipe; expected a regular file", socket: "is a socket", "/dev/zero": "is a device; expected a regular file"} {
		f, err := Open(path)
		if f != nil || fault.Of(err) != fault.Usage || !strings.Contains(err.Error(), path+" "+want) {
			t.Errorf("%s: %v; expected %q", path, err, want)
		}
		if _, err := ReadFile(path); fault.Of(err) != fault.Damaged {
			t.Errorf("%s, which gorbit wrote: %v; expected class %s", path, err, fault.Damaged)
		}
	}
}
