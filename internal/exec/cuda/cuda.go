// Package cuda returns the GPUs of this machine that TensorFlow can use, and the versions of CUDA.
// TensorFlow's C API does not return the names of GPUs, and counts them only in a session.
//
// The GPUs are those of CUDA's driver, libcuda.so.1, if TensorFlow's library was built with CUDA.
// TensorFlow's library for GPUs exports the functions of CUDA's runtime library, and loads that on the
// first call of one. The package looks for all of them at run time, and works with every binding.
package cuda

// #cgo LDFLAGS: -ltensorflow -ltensorflow_framework
// #cgo linux LDFLAGS: -ldl
// #include "cuda.h"
import "C"

import "fmt"

// Info describes CUDA in this process.
type Info struct {
	// Built says whether TensorFlow's library is one for GPUs.
	Built bool `json:"built"`
	// Runtime is the version of the runtime library, such as "12.5". Driver is the newest
	// version that the driver supports. "" means that there is none.
	Runtime string `json:"runtime,omitempty"`
	Driver  string `json:"driver,omitempty"`
	// GPUs are the GPUs that CUDA finds, in CUDA's order, which is the order of TensorFlow's
	// devices.
	GPUs []GPU `json:"-"`
}

// GPU is a CUDA device.
type GPU struct {
	Name string
	// Capability is the compute capability, such as "9.0".
	Capability string
	// MemoryBytes is the size of its memory.
	MemoryBytes int64
}

// Query returns what CUDA says about this machine. If there is no CUDA or no driver, the fields are
// empty.
func Query() Info {
	info := Info{Built: Built()}
	info.Runtime = version(int(C.gorbit_cuda_runtime()))
	info.Driver = version(int(C.gorbit_cuda_driver()))
	for i := range Count() {
		var gpu C.gorbit_gpu
		if !C.gorbit_cuda_device(C.int(i), &gpu) {
			break
		}
		info.GPUs = append(info.GPUs, GPU{Name: C.GoString(&gpu.name[0]),
			Capability: fmt.Sprintf("%d.%d", gpu.major, gpu.minor), MemoryBytes: int64(gpu.memory)})
	}
	return info
}

// Built says whether TensorFlow's library is one for GPUs.
func Built() bool { return bool(C.gorbit_cuda_built()) }

// Count returns the number of GPUs that CUDA finds. It is cheaper than Query, and on a machine without
// a driver does not load TensorFlow's library.
func Count() int { return int(C.gorbit_cuda_count()) }

// version converts 12050 to "12.5".
func version(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", n/1000, n%1000/10)
}
