//go:build unix

package tfrecord

import (
	"math"
	"os"
	"syscall"
)

func mapFile(f *os.File, size int64) ([]byte, error) {
	if size > math.MaxInt {
		return nil, syscall.ENOMEM
	}
	return syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
}

func unmapFile(data []byte) {
	// It fails only for memory that is not mapped.
	_ = syscall.Munmap(data)
}
