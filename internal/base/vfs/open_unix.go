//go:build unix

package vfs

import (
	"os"
	"syscall"
)

// openNow opens a file to read, and does not wait for the writer of a named pipe.
func openNow(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	// Only opening was not to wait. Some network file systems look at the flag in reads, too.
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.SetNonblock(int(fd), false) })
	}
	return f, nil
}
