package devices

import (
	"bufio"
	"os"
	"strings"
)

// Processor returns the kernel's name of the CPU, or "" if it has none. For ARM it has numbers only: those
// of the maker and of the part.
func Processor() string {
	name, part := cpuinfo("model name"), cpuinfo("CPU part")
	if name == "" && part != "" {
		name = "ARM " + cpuinfo("CPU implementer") + " " + part
	}
	return name
}

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
