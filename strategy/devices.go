package strategy

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/cuda"
)

// CountGPUs returns the number of GPUs that TensorFlow can use. It starts no session:
// the first one of a process decides about TensorFlow's threads.
func CountGPUs() int { return cuda.Count() }

// listDevices returns the devices of the process.
func listDevices(t target, config Config) ([]tf.Device, error) {
	graph := tf.NewGraph()
	session, err := newTFSession(t, graph, config, nil)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	// The graph's finalizer frees what the session refers to.
	defer runtime.KeepAlive(graph)
	devices, err := session.ListDevices()
	if err != nil {
		return nil, fmt.Errorf("list the devices: %w", err)
	}
	return devices, nil
}

// findDevice returns the device of a name, or the one that TensorFlow takes where
// none is said. It returns a *DeviceError where there is no such device:
// TensorFlow would take another one without a word.
func findDevice(devices []tf.Device, device string) (tf.Device, error) {
	if device == "" {
		i := max(0, slices.IndexFunc(devices, func(d tf.Device) bool { return d.Type == "GPU" }))
		return devices[i], nil
	}
	e := &DeviceError{Device: device}
	for _, d := range devices {
		// The full name, or its end: /device:GPU:0.
		if strings.EqualFold(d.Name, device) || strings.HasSuffix(strings.ToLower(d.Name), strings.ToLower("/"+strings.TrimPrefix(device, "/"))) {
			return d, nil
		}
		e.Have = append(e.Have, shortName(d.Name))
	}
	return tf.Device{}, e
}

func shortName(device string) string { return device[strings.LastIndexByte(device, '/'):] }

// cpuNumber returns the number of a CPU device, whatever its job.
func cpuNumber(device string) (int, bool) {
	i := strings.LastIndex(strings.ToUpper(device), "CPU:")
	if i < 0 {
		return 0, false
	}
	n, err := strconv.Atoi(device[i+len("CPU:"):])
	return n, err == nil
}
