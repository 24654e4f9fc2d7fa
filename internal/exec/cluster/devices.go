package cluster

import (
	"fmt"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

// meant returns the devices of a server that a Spec selects, or an error if there are too few.
func meant(d devices.Spec, all []string) ([]string, error) {
	var out []string
	for _, name := range all {
		if strings.Contains(name, "/device:"+d.Type+":") {
			out = append(out, name)
		}
	}
	if len(out) == 0 || len(out) < d.Count {
		return nil, fmt.Errorf("devices %v were requested, but TensorFlow found %d; check --devices, the driver, and that TensorFlow's library supports GPUs (in a checkout, make setup TF=gpu)", d, len(out))
	}
	return out, nil
}
