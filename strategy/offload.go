package strategy

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// mostMapped is how many bytes of files the process may have in memory before their pages leave it again,
// and lookAtMapped how often that is looked at. It does not bound what the system keeps: that has the pages
// as long as it has memory for them.
const (
	mostMapped   = 128 << 20
	lookAtMapped = 10 * time.Millisecond
)

// keepFewMapped takes the pages of variables in files out of the memory of the process, when they have become
// many, until the end: passes read whole variables, and do not drop what they have read as updates do.
func keepFewMapped(end <-chan struct{}) {
	tick := time.NewTicker(lookAtMapped)
	defer tick.Stop()
	own := os.Getpid()
	left := devices.ResidentFiles(own)
	for {
		select {
		case <-end:
			return
		case <-tick.C:
		}
		if devices.ResidentFiles(own) > left+mostMapped {
			kernels.DropMapped()
			left = devices.ResidentFiles(own)
		}
	}
}

// checkSpace returns an error if the disk of the folder of files has no place for so many bytes.
func checkSpace(config Config, need int64) error {
	folder, what := config.Offload, "the slots of the optimizer"
	switch {
	case config.Functions == FunctionsEvaluate:
		what = "the variables"
	case config.OffloadAll:
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
