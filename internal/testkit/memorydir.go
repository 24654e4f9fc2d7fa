package testkit

import (
	"os"
	"testing"
)

// MemoryDir returns a new folder that goes with the test, in memory where the system
// has such a place: tests that sync files many times wait for no disk there.
func MemoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "gorbit-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
