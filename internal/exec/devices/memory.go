package devices

import (
	"bytes"
	"fmt"
	"os"
)

// Resident returns the memory that a process has now, in bytes, or 0 if the system does not report it.
func Resident(pid int) int64 {
	resident, _ := statm(pid)
	return resident
}

// ResidentFiles returns how much of the memory of a process is that of files, in bytes, or 0 if the system
// does not report it.
func ResidentFiles(pid int) int64 {
	_, files := statm(pid)
	return files
}

// statm returns the memory of a process, and how much of it is that of files.
func statm(pid int) (resident, files int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, 0
	}
	var size int64
	if _, err := fmt.Sscan(string(text), &size, &resident, &files); err != nil {
		return 0, 0
	}
	page := int64(os.Getpagesize())
	return resident * page, files * page
}

// PeakResident returns the most memory that a process has had, in bytes, or 0 if the system does not report it.
// The ru_maxrss of getrusage is not that: it begins with what the process had that started this one.
func PeakResident(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	var kilobytes int64
	if _, err := fmt.Sscan(string(rest[:min(len(rest), 64)]), &kilobytes); err != nil {
		return 0
	}
	return kilobytes << 10
}
