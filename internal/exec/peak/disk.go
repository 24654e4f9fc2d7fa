package peak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is how fast the disk of a folder is in bytes per second, without the system's memory for its files.
type Disk struct {
	Read  float64 `json:"read_bytes_per_second"`
	Write float64 `json:"write_bytes_per_second"`
}

// What is written to measure a disk: so many blocks at most, and for so long.
const (
	diskBlock  = 4 << 20
	diskBlocks = 64
	diskTime   = 5 * time.Second
)

// MeasureDisk writes a file of up to 256 MiB to a folder, reads it, and removes it. Something else that uses
// the disk meanwhile makes it slower.
func MeasureDisk(ctx context.Context, folder string) (Disk, error) {
	f, err := os.CreateTemp(folder, ".gorbit-disk-*")
	if err != nil {
		return Disk{}, fmt.Errorf("measure the disk: %w", err)
	}
	defer f.Close()
	defer os.Remove(f.Name())
	block := make([]byte, diskBlock)
	_, _ = rand.NewChaCha8([32]byte{}).Read(block) // what a disk cannot compress
	written, began := 0, time.Now()
	for ; written < diskBlocks && time.Since(began) < diskTime && ctx.Err() == nil; written++ {
		_, err := f.Write(block)
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			return Disk{}, fmt.Errorf("measure the disk of %s: %w", folder, err)
		}
	}
	d := Disk{Write: float64(written) * diskBlock / time.Since(began).Seconds()}
	// Written pages leave the system's memory, so that they are read from the disk.
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return Disk{}, fmt.Errorf("measure the disk of %s: %w", folder, err)
	}
	began = time.Now()
	for i := range written {
		if _, err := f.ReadAt(block, int64(i)*diskBlock); err != nil {
			return Disk{}, fmt.Errorf("measure the disk of %s: %w", folder, err)
		}
	}
	d.Read = float64(written) * diskBlock / time.Since(began).Seconds()
	return d, ctx.Err()
}
