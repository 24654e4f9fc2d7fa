package testkit

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// nobody is the id of the user without any rights.
const nobody = 65534

// AsUser drops the rights of root, who is not bound by file permissions, for the rest of a test.
// The folder of t.TempDir and everything in it gets a new owner. AsUser changes the whole process
// until the test ends, so the test and its siblings must not be parallel. It does nothing if the
// process is not root's.
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
	// The parent folder, which holds all folders of the test, is closed to others.
	if err := os.Chmod(filepath.Dir(folder), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Seteuid(nobody); err != nil {
		t.Fatalf("switch to an ordinary user: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Seteuid(0); err != nil {
			t.Fatalf("switch back to root: %v", err)
		}
	})
}
