package devices

import (
	"bytes"
	"fmt"
	"os"
)

// Resident returns the memory that a process has now, in bytes, or 0 if the system does not report it.
func Resident(pid int) int64 {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
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
