package strategy

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/exec/cuda"
)

// CountGPUs returns the number of GPUs that TensorFlow can use, or an error if it takes one for which
// it has no kernels. It does not start a session, because the first session of a process fixes
// TensorFlow's threads.
func CountGPUs() (int, error) { return cuda.Count() }

// listDevices returns the devices of the process.
func listDevices(t target, config Config) ([]tf.Device, error) {
	graph := tf.NewGraph()
	session, err := newTFSession(t, graph, config, nil)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	// The finalizer of the graph frees memory that the session uses.
	defer runtime.KeepAlive(graph)
	devices, err := session.ListDevices()
	if err != nil {
		return nil, fmt.Errorf("list the devices: %w", err)
	}
	return devices, nil
}

// findDevice returns the named device, or the one that TensorFlow uses by default if the name is
// "". It returns a *DeviceError if the device does not exist: TensorFlow would silently use another
// one.
func findDevice(devices []tf.Device, device string) (tf.Device, error) {
	if device == "" {
		i := max(0, slices.IndexFunc(devices, func(d tf.Device) bool { return d.Type == "GPU" }))
		return devices[i], nil
	}
	e := &DeviceError{Device: device}
	for _, d := range devices {
		// Either the full name or its end, such as /device:GPU:0.
		if strings.EqualFold(d.Name, device) || strings.HasSuffix(strings.ToLower(d.Name), strings.ToLower("/"+strings.TrimPrefix(device, "/"))) {
			return d, nil
		}
		e.Have = append(e.Have, shortName(d.Name))
	}
	return tf.Device{}, e
}

func shortName(device string) string { return device[strings.LastIndexByte(device, '/'):] }

// cpuNumber returns the number of a CPU device of any job.
func cpuNumber(device string) (int, bool) {
	i := strings.LastIndex(strings.ToUpper(device), "CPU:")
	if i < 0 {
		return 0, false
	}
	n, err := strconv.Atoi(device[i+len("CPU:"):])
	return n, err == nil
}
