package cluster

import (
	"fmt"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/devices"
)

// meant returns those of a server's devices that are meant, or what is missing.
func meant(d devices.Spec, all []string) ([]string, error) {
	var out []string
	for _, name := range all {
		if strings.Contains(name, "/device:"+d.Type+":") {
			out = append(out, name)
		}
	}
	if len(out) == 0 || len(out) < d.Count {
		return nil, fmt.Errorf("devices %v were asked for and TensorFlow found %d: check --devices, the driver, and that the library is the one for GPUs (make setup TF=gpu)", d, len(out))
	}
	return out, nil
}
