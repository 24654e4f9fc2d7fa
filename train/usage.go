package train

import (
	"math"
	"syscall"
	"time"
)

// rounded returns v rounded to the given number of decimal places.
func rounded(v float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(v*unit) / unit
}

// peakMemory returns the peak memory of the process in bytes.
func peakMemory() int64 { return resources().Maxrss << 10 }

// processorTime returns the CPU time of the process on all cores.
func processorTime() time.Duration {
	u := resources()
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resources returns the resource usage of the process, or zeros if the system does not report it.
func resources() (u syscall.Rusage) {
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return syscall.Rusage{}
	}
	return u
}
