package devices

import (
	"bufio"
	"os"
	"strings"
)

// Processor returns the kernel's name of the CPU, or "" if it has none.
func Processor() string { return cpuinfo("model name") }

// cpuinfo returns a value of the first CPU that the kernel lists, or "".
func cpuinfo(name string) string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
