package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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
