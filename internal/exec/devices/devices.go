// Package devices parses the devices that users choose, such as cpu:2, gpu or gpu:4, and checks the
// addresses of workers. It also knows the abilities of this machine's CPU and the names of the
// strategies.
package devices

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Most is the largest number of devices of a process.
const Most = 1024

// MostThreads is the largest size of a pool of TensorFlow's threads, more than any machine has cores.
const MostThreads = 4096

// ErrTPU is the error for TPU devices.
var ErrTPU = errors.New("a TPU is not a device of this machine; train on one with gorbit train --tpu NAME")

// Spec selects devices of a process.
type Spec struct {
	// Type is CPU or GPU.
	Type string
	// Count is the number of devices, starting at device 0; 0 means all GPUs.
	Count int
}

// Parse parses cpu (one), cpu:N (N virtual ones), gpu (all) or gpu:N.
func Parse(text string) (Spec, error) {
	kind, number, numbered := strings.Cut(text, ":")
	s := Spec{Type: strings.ToUpper(kind)}
	if s.Type == "TPU" {
		return Spec{}, fmt.Errorf("devices %q: %w", text, ErrTPU)
	}
	if kind != "cpu" && kind != "gpu" {
		return Spec{}, fmt.Errorf("devices %q: expected cpu, gpu, cpu:N or gpu:N, such as cpu:2", text)
	}
	if numbered {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > Most {
			return Spec{}, fmt.Errorf("devices %q: the number is %q; expected 1 to %d", text, number, Most)
		}
		s.Count = n
	} else if s.Type == "CPU" {
		s.Count = 1
	}
	return s, nil
}

// String returns the form that Parse accepts.
func (s Spec) String() string {
	if s.Count == 0 {
		return strings.ToLower(s.Type)
	}
	return fmt.Sprintf("%s:%d", strings.ToLower(s.Type), s.Count)
}

// Names returns TensorFlow's names of the Count devices.
func (s Spec) Names() []string {
	out := make([]string, s.Count)
	for i := range out {
		out[i] = fmt.Sprintf("/device:%s:%d", s.Type, i)
	}
	return out
}
