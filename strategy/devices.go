package strategy

import (
	"strconv"
	"strings"
)

// cpuNumber returns the number of a CPU device, whatever its job.
func cpuNumber(device string) (int, bool) {
	i := strings.LastIndex(strings.ToUpper(device), "CPU:")
	if i < 0 {
		return 0, false
	}
	n, err := strconv.Atoi(device[i+len("CPU:"):])
	return n, err == nil
}
