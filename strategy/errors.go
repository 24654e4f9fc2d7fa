package strategy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/devices"
	"github.com/gorbit-ml/gorbit/internal/fault"
)

// DeviceError says that a device is not on this machine.
type DeviceError struct {
	Device string
	Have   []string
}

func (e *DeviceError) Error() string {
	if strings.Contains(strings.ToUpper(e.Device), "TPU:") {
		return fmt.Sprintf("device %q: %v", e.Device, devices.ErrTPU)
	}
	return fmt.Sprintf("there is no device %q; this machine has %s", e.Device, strings.Join(e.Have, ", "))
}

// Is reports whether the target is the error's class, fault.Usage.
func (e *DeviceError) Is(target error) bool { return target == fault.Usage }

// SessionLostError says that a session with other servers broke without any of them
// being known to be lost. A new session may go on.
type SessionLostError struct{ Err error }

func (e *SessionLostError) Error() string {
	return "the session with the workers broke: " + e.Err.Error()
}

func (e *SessionLostError) Unwrap() error { return e.Err }

// OutOfMemoryError says that a step did not fit in a device's memory and changed
// nothing.
type OutOfMemoryError struct{ Err error }

func (e *OutOfMemoryError) Error() string { return "out of memory: " + e.Err.Error() }

func (e *OutOfMemoryError) Unwrap() error { return e.Err }

// oom reports whether TensorFlow says that memory ran out. The binding gives its
// message alone, without the code, which is not always that of exhausted resources.
func oom(err error) bool { return outOfMemory.MatchString(err.Error()) }

var outOfMemory = regexp.MustCompile(`(?i)` + strings.Join([]string{
	"OOM when allocating",              // kernels
	"failed to allocate memory",        // kernels that MLIR makes for GPUs
	"failed to allocate request for",   // the executor's allocator
	"out of memory (while|allocating)", // XLA
	"unable to allocate output tensor", // copies between devices
	"Dst tensor is not initialized",    // copies to a GPU
	"failed to allocate (the )?scratch",
	"CUDA_ERROR_OUT_OF_MEMORY",
	"_STATUS_ALLOC_FAILED", // cuBLAS and its like
}, "|"))

// unavailable reports whether an error may come of a server or a connection that was
// lost, by the words that TensorFlow and gRPC use: the binding gives no codes.
func unavailable(err error) bool {
	text := strings.ToLower(err.Error())
	return slices.ContainsFunc([]string{"socket closed", "connection reset", "failed to connect", "unavailable", "collective ops is aborted",
		"aborted", "cancelled", "deadline exceeded", "end of file", "broken pipe"}, func(s string) bool { return strings.Contains(text, s) })
}
