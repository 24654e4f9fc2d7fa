package testkit

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// nobody is the user that has no rights anywhere.
const nobody = 65534

// AsUser lets the rest of a test run without the rights of root, to whom permissions of files mean
// nothing. The folder of t.TempDir, and all in it, becomes the user's. It changes the whole process until the
// test ends, so the test and its siblings must not be parallel. Where the process is not root's
// there is nothing to do.
func AsUser(t testing.TB, folder string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	})
	if err != nil {
		t.Fatal(err)
	}
	// The folder above, of all that the test has, is closed to others.
	if err := os.Chmod(filepath.Dir(folder), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Seteuid(nobody); err != nil {
		t.Fatalf("go on as an ordinary user: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Seteuid(0); err != nil {
			t.Fatalf("become root again: %v", err)
		}
	})
}
