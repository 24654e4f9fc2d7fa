package strategy

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// checkSpace returns an error if the disk of a folder has no place for so many bytes of slots.
func checkSpace(folder string, need int64) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(folder, &disk); err != nil {
		return fmt.Errorf("offload the slots of the optimizer to %s: %w", folder, err)
	}
	if free := int64(disk.Bavail) * disk.Bsize; free < need {
		return fault.Usagef("the slots of the optimizer take %d MiB on the disk of %s, which has %d MiB free; make room there, or have the run on another disk", need>>20, folder, free>>20)
	}
	return nil
}
