package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// TestLockOfRemovedFile locks a file that its holders remove before they unlock it: one at a time has it.
func TestLockOfRemovedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var holders, locked atomic.Int32
	errs := make(chan error)
	for range 8 {
		go func() {
			var err error
			for locked.Load() < 1000 && err == nil {
				unlock, other, failed := Lock(path)
				if failed != nil || other != nil {
					err = failed
					continue
				}
				if holders.Add(1) > 1 {
					err = errors.New("two hold the lock")
				}
				locked.Add(1)
				holders.Add(-1)
				err = errors.Join(err, os.Remove(path), unlock())
			}
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
