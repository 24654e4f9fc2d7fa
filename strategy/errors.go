package strategy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

// DeviceError means that this machine does not have a device.
type DeviceError struct {
	Device string
	Have   []string
}

func (e *DeviceError) Error() string {
	if strings.Contains(strings.ToUpper(e.Device), "TPU:") {
		return fmt.Sprintf("device %q: %v", e.Device, devices.ErrTPU)
	}
	return fmt.Sprintf("device %q not found; this machine has %s", e.Device, strings.Join(e.Have, ", "))
}

// Is reports whether the target is the error's class, fault.Usage.
func (e *DeviceError) Is(target error) bool { return target == fault.Usage }

// SessionLostError means that a session with other servers failed although none of them is known
// to be lost. A new session may work.
type SessionLostError struct{ Err error }

func (e *SessionLostError) Error() string {
	return "lost the session with the workers: " + e.Err.Error()
}

func (e *SessionLostError) Unwrap() error { return e.Err }

// TPULostError means that the connection with a TPU is lost, or that the TPU has forgotten the
// session or its configuration, as it does when it is preempted or its servers are started again.
// What its variables held is lost. A TPU that is started again (tpu.Start) may work.
type TPULostError struct{ Err error }

func (e *TPULostError) Error() string { return "lost the TPU: " + e.Err.Error() }

func (e *TPULostError) Unwrap() error { return e.Err }

// OutOfMemoryError means that a step did not fit into a device's memory. It changed nothing.
type OutOfMemoryError struct{ Err error }

func (e *OutOfMemoryError) Error() string { return "out of memory: " + e.Err.Error() }

func (e *OutOfMemoryError) Unwrap() error { return e.Err }

// oom reports whether a TensorFlow error means that memory ran out. It looks at the message: the
// binding does not return the code, which is not always RESOURCE_EXHAUSTED either.
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
	"_STATUS_ALLOC_FAILED",              // cuBLAS and similar libraries
	"ran out of memory in memory space", // the compiler of TPUs
	"attempting to (allocate|reserve) .*(not possible|at the bottom of memory)", // a TPU's runtime
}, "|"))

// forgotten matches TensorFlow's messages of a TPU, or of the server of one, that was started again.
var forgotten = regexp.MustCompile(`(?i)TPU system has not been initialized|TPU mesh state|tpu_mesh_common_state|Session \S+ is not found|has restarted|preempt|request was received twice`)

// unavailable reports whether an error may be due to a lost server or connection. It looks for the
// words of TensorFlow and gRPC: the binding does not return codes.
func unavailable(err error) bool {
	text := strings.ToLower(err.Error())
	return slices.ContainsFunc([]string{"socket closed", "connection reset", "failed to connect", "unavailable", "collective ops is aborted",
		"aborted", "cancelled", "deadline exceeded", "end of file", "broken pipe"}, func(s string) bool { return strings.Contains(text, s) })
}
