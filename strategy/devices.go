package strategy

import (
	"fmt"
	"strconv"
	"strings"
)

// Devices says which devices of a process have replicas.
type Devices struct {
	// Type is "CPU" or "GPU".
	Type string
	// Count is how many there are, from number 0 on.
	Count int
}

// ParseDevices reads "cpu:4" or "gpu:2"; without a number it is one device.
func ParseDevices(text string) (Devices, error) {
	kind, number, numbered := strings.Cut(text, ":")
	d := Devices{Type: strings.ToUpper(kind), Count: 1}
	if d.Type != "CPU" && d.Type != "GPU" {
		return Devices{}, fmt.Errorf("devices %q: expected cpu:N or gpu:N", text)
	}
	if numbered {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > 1024 {
			return Devices{}, fmt.Errorf("devices %q: expected a number of 1 to 1024 behind the colon", text)
		}
		d.Count = n
	}
	return d, nil
}

// String returns what ParseDevices reads.
func (d Devices) String() string { return fmt.Sprintf("%s:%d", strings.ToLower(d.Type), d.Count) }

// Names returns TensorFlow's names of the devices.
func (d Devices) Names() []string {
	out := make([]string, d.Count)
	for i := range out {
		out[i] = fmt.Sprintf("/device:%s:%d", d.Type, i)
	}
	return out
}

// cpuNumber returns the number of a CPU device, whatever its job.
func cpuNumber(device string) (int, bool) {
	i := strings.LastIndex(strings.ToUpper(device), "CPU:")
	if i < 0 {
		return 0, false
	}
	n, err := strconv.Atoi(device[i+len("CPU:"):])
	return n, err == nil
}
