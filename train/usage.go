package train

import (
	"math"
	"syscall"
	"time"
)

// rounded returns a number with so many digits behind the point, for people.
func rounded(v float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(v*unit) / unit
}

// peakMemory is the most bytes that the process had in memory.
func peakMemory() int64 { return resources().Maxrss << 10 }

// processorTime is what the process has computed, on all cores together.
func processorTime() time.Duration {
	u := resources()
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resources are what the process has used, nothing where the system does not say.
func resources() (u syscall.Rusage) {
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return syscall.Rusage{}
	}
	return u
}
