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

import (
	"fmt"
	"math"
	"os"
	"strconv"
)

// Info describes CUDA in this process.
type Info struct {
	// Built says whether TensorFlow's library is one for GPUs.
	Built bool `json:"built"`
	// Runtime is the version of the runtime library, such as "12.5". Driver is the newest
	// version that the driver supports. "" means that there is none.
	Runtime string `json:"runtime,omitempty"`
	Driver  string `json:"driver,omitempty"`
	// GPUs are the GPUs that TensorFlow takes, in the order of its devices.
	GPUs []GPU `json:"-"`
	// Left are the GPUs that CUDA finds and TensorFlow leaves out, each with the reason.
	Left []string `json:"left,omitempty"`
}

// GPU is a CUDA device.
type GPU struct {
	Name string
	// Capability is the compute capability, such as "9.0".
	Capability string
	// MemoryBytes is the size of its memory.
	MemoryBytes int64

	capability      int // 90 for "9.0"
	multiprocessors int
}

// What TensorFlow 2.18 asks of a GPU. It takes one of few multiprocessors only if no other has more.
const (
	leastCapability      = 60
	leastMultiprocessors = 8
	// newestCapability is that of the newest kernels in TensorFlow's wheels.
	newestCapability = 90
)

// An UnsupportedError says that TensorFlow takes a GPU for which it has no kernels that run.
type UnsupportedError struct{ GPU GPU }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("GPU %s has compute capability %s, and the newest kernels of TensorFlow 2.18 are for 9.0 and do not run on it; "+
		"hide it, to train and serve on CPUs or other GPUs: CUDA_VISIBLE_DEVICES=-1; "+
		"no wheel of TensorFlow up to 2.21 has kernels for it, but one built with CUDA 12.8 or later for compute_%d has: set GORBIT_CUDA_CAPABILITY=%s with such a library",
		e.GPU.Name, e.GPU.Capability, e.GPU.capability, e.GPU.Capability)
}

// Query returns what CUDA says about this machine. If there is no CUDA or no driver, the fields are
// empty.
func Query() Info {
	info := Info{Built: Built()}
	info.Runtime = version(int(C.gorbit_cuda_runtime()))
	info.Driver = version(int(C.gorbit_cuda_driver()))
	info.GPUs, info.Left = divide(all())
	return info
}

// all returns the GPUs that CUDA finds, in its order.
func all() []GPU {
	var out []GPU
	for i := range int(C.gorbit_cuda_count()) {
		var gpu C.gorbit_gpu
		if !C.gorbit_cuda_device(C.int(i), &gpu) {
			break
		}
		out = append(out, GPU{Name: C.GoString(&gpu.name[0]), Capability: fmt.Sprintf("%d.%d", gpu.major, gpu.minor), MemoryBytes: int64(gpu.memory),
			capability: int(10*gpu.major + gpu.minor), multiprocessors: int(gpu.multiprocessors)})
	}
	return out
}

// divide returns the GPUs that TensorFlow takes, and says of the others why it leaves them out, as
// GetValidDeviceIds in tensorflow/core/common_runtime/gpu/gpu_device.cc decides.
func divide(gpus []GPU) (taken []GPU, left []string) {
	least := 0
	for _, g := range gpus {
		least = max(least, min(g.multiprocessors, leastMultiprocessors))
	}
	if n, err := strconv.Atoi(os.Getenv("TF_MIN_GPU_MULTIPROCESSOR_COUNT")); err == nil {
		least = n
	}
	for _, g := range gpus {
		switch {
		case g.capability < leastCapability:
			left = append(left, fmt.Sprintf("%s: compute capability %s; TensorFlow wants 6.0 or more", g.Name, g.Capability))
		case g.multiprocessors < least:
			left = append(left, fmt.Sprintf("%s: %d multiprocessors; TensorFlow wants %d or more (TF_MIN_GPU_MULTIPROCESSOR_COUNT)", g.Name, g.multiprocessors, least))
		default:
			taken = append(taken, g)
		}
	}
	return taken, left
}

// NotBuilt says what to do about a library that is not one for GPUs.
const NotBuilt = "this TensorFlow library has no CUDA; install the one that has: make setup TF=gpu in a checkout; " +
	"pip's is tensorflow[and-cuda], in the place of tensorflow-cpu"

// Built says whether TensorFlow's library is one for GPUs.
func Built() bool { return bool(C.gorbit_cuda_built()) }

// Count returns the number of GPUs that TensorFlow takes, or an *UnsupportedError if its kernels do not
// run on one of them. It is cheaper than Query, and on a machine without a driver does not load
// TensorFlow's library.
func Count() (int, error) {
	taken, _ := divide(all())
	newest := newestCapability
	// A library of the user's own may have kernels for newer GPUs, and does not say so.
	if f, err := strconv.ParseFloat(os.Getenv("GORBIT_CUDA_CAPABILITY"), 64); err == nil {
		newest = int(math.Round(10 * f))
	}
	for _, g := range taken {
		if g.capability >= 100 && g.capability > newest {
			return 0, &UnsupportedError{g}
		}
	}
	return len(taken), nil
}

// version converts 12050 to "12.5".
func version(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", n/1000, n%1000/10)
}
