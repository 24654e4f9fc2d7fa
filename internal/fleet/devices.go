package fleet

import (
	"fmt"
	"strconv"
	"strings"
)

// Devices says what a worker computes on: cpu:2, gpu:2, or gpu for all GPUs that
// it has.
type Devices struct {
	Kind  string // cpu or gpu
	Count int    // 0 is all
}

// ParseDevices reads cpu, cpu:N, gpu or gpu:N.
func ParseDevices(s string) (Devices, error) {
	kind, number, counted := strings.Cut(s, ":")
	d := Devices{Kind: kind}
	switch {
	case kind != "cpu" && kind != "gpu":
		return Devices{}, fmt.Errorf("devices %q are not cpu:N, gpu or gpu:N", s)
	case counted:
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > maxDevices {
			return Devices{}, fmt.Errorf("devices %q: %q is not a number from 1 to %d", s, number, maxDevices)
		}
		d.Count = n
	case kind == "cpu":
		d.Count = 1
	}
	return d, nil
}

// String is what ParseDevices reads.
func (d Devices) String() string {
	if d.Count == 0 {
		return d.Kind
	}
	return fmt.Sprintf("%s:%d", d.Kind, d.Count)
}

// of returns those of a server's devices that are meant, or what is missing.
func (d Devices) of(all []string) ([]string, error) {
	var out []string
	for _, name := range all {
		if strings.Contains(name, "/device:"+strings.ToUpper(d.Kind)+":") {
			out = append(out, name)
		}
	}
	if len(out) == 0 || len(out) < d.Count {
		return nil, fmt.Errorf("devices %v were asked for and TensorFlow found %d: check --devices, the driver, and that the library is the one for GPUs (make setup TF=gpu)", d, len(out))
	}
	return out, nil
}
