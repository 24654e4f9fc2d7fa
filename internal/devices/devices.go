// Package devices reads how users name what a process computes on: cpu:2, gpu, gpu:4. It
// knows what this machine's CPU can, too, and the names of the strategies.
package devices

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Most is the greatest number of devices of a process.
const Most = 1024

// ErrTPU is of devices that are TPUs.
var ErrTPU = errors.New("training on TPUs is not supported yet; CPUs and GPUs are")

// Spec says which devices of a process are meant.
type Spec struct {
	// Type is CPU or GPU.
	Type string
	// Count is how many there are, from number 0 on; 0 is all GPUs.
	Count int
}

// Parse reads cpu (one), cpu:N (N virtual ones), gpu (all) or gpu:N.
func Parse(text string) (Spec, error) {
	kind, number, numbered := strings.Cut(text, ":")
	s := Spec{Type: strings.ToUpper(kind)}
	if s.Type == "TPU" {
		return Spec{}, fmt.Errorf("devices %q: %w", text, ErrTPU)
	}
	if kind != "cpu" && kind != "gpu" {
		return Spec{}, fmt.Errorf("devices %q are not of the form cpu, cpu:2, gpu or gpu:4", text)
	}
	if numbered {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > Most {
			return Spec{}, fmt.Errorf("devices %q: %q is not a number from 1 to %d", text, number, Most)
		}
		s.Count = n
	} else if s.Type == "CPU" {
		s.Count = 1
	}
	return s, nil
}

// String is what Parse reads.
func (s Spec) String() string {
	if s.Count == 0 {
		return strings.ToLower(s.Type)
	}
	return fmt.Sprintf("%s:%d", strings.ToLower(s.Type), s.Count)
}

// Names are TensorFlow's names of the devices, of which there are Count.
func (s Spec) Names() []string {
	out := make([]string, s.Count)
	for i := range out {
		out[i] = fmt.Sprintf("/device:%s:%d", s.Type, i)
	}
	return out
}
