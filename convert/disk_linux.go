package convert

import (
	"os"

	"golang.org/x/sys/unix"
)

// sendToDisk starts writing n bytes of a file at offset to disk, without waiting. Errors
// are reported when the file is synced.
func sendToDisk(f *os.File, offset, n int64) {
	unix.SyncFileRange(int(f.Fd()), offset, n, unix.SYNC_FILE_RANGE_WRITE)
}
