package testkit

import (
	"os"
	"testing"
)

// MemoryDir returns a new folder that is removed after the test. It is in memory if the
// system supports that, so that tests that sync many files do not wait for a disk.
func MemoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "gorbit-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
