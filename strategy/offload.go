package strategy

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// checkSpace returns an error if the disk of the folder of files has no place for so many bytes.
func checkSpace(config Config, need int64) error {
	folder, what := config.Offload, "the slots of the optimizer"
	if config.OffloadAll {
		what = "variables, gradients and slots"
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(folder, &disk); err != nil {
		return fmt.Errorf("offload %s to %s: %w", what, folder, err)
	}
	if free := int64(disk.Bavail) * disk.Bsize; free < need {
		return fault.Usagef("%s take %d MiB on the disk of %s, which has %d MiB free; make room there, or have the run on another disk", what, need>>20, folder, free>>20)
	}
	return nil
}
