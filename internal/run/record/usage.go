package record

import (
	"os"
	"syscall"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// PeakMemory returns the peak memory of the process in bytes, or 0 if the system does not report it.
func PeakMemory() int64 { return devices.PeakResident(os.Getpid()) }

// processorTime returns the CPU time of the process on all cores, or 0 if the system does not report it.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Memory returns the memory that the process has now, in bytes, or 0 if the system does not report
// it.
func Memory() int64 { return devices.Resident(os.Getpid()) }

// MachineMemory returns the memory of the machine in bytes, or 0 if the system does not report it.
func MachineMemory() int64 {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// MemoryUse is what the process has of the memory, and the most that it had so far, in bytes.
type MemoryUse struct{ now, peak int64 }

// MemoryNow returns that of this process now.
func MemoryNow() MemoryUse { return MemoryUse{Memory(), PeakMemory()} }

// Since returns the memory of a phase.
func (u MemoryUse) Since(before MemoryUse) runfolder.Memory {
	m := runfolder.Memory{Before: before.now, After: u.now}
	if u.peak > before.peak {
		m.Peak = max(u.peak, u.now) // the system reads the two at different times
	}
	return m
}
