package reclaim

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// Files takes the pages of programs and libraries that were only read out of the memory of the process. A
// library as large as TensorFlow's needs most of them while it is loaded, and then no more; those that are
// used again come back from where the system keeps the file. Where the system does not say what was only
// read, Files does nothing.
func Files() {
	const path, flags, unchanged = 5, 1, "Anonymous:"
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	var begin, end uint64 // of a mapping of a file that cannot be written
	for line := range bytes.Lines(maps) {
		field := bytes.Fields(line)
		if len(field) < 2 {
			continue
		}
		if from, to, ok := bytes.Cut(field[0], []byte("-")); ok && len(field[flags]) == 4 {
			begin, end = 0, 0
			if len(field) > path && field[path][0] == '/' && field[flags][1] == '-' && field[flags][3] == 'p' {
				begin, end = address(from), address(to)
			}
			continue
		}
		// A page that was changed, as the addresses in a library are, is not the file's any more.
		if string(field[0]) == unchanged && string(field[1]) == "0" && end > begin {
			syscall.Syscall(syscall.SYS_MADVISE, uintptr(begin), uintptr(end-begin), syscall.MADV_DONTNEED)
		}
	}
}

// address returns a number of base 16, or 0.
func address(hex []byte) uint64 {
	n, err := strconv.ParseUint(string(hex), 16, 64)
	if err != nil {
		return 0
	}
	return n
}
