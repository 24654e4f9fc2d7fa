package convert

import (
	"os"

	"golang.org/x/sys/unix"
)

// sendToDisk has n bytes of a file from offset on written to the disk, without waiting
// for it. An error shows when the file is synced.
func sendToDisk(f *os.File, offset, n int64) {
	unix.SyncFileRange(int(f.Fd()), offset, n, unix.SYNC_FILE_RANGE_WRITE)
}
