package params

import (
	"fmt"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// SlowPrecisionError reports that a device has no instructions for the precision of a graph, so
// that TensorFlow emulates it.
type SlowPrecisionError struct {
	Precision string // graphs.BF16 or graphs.FP16
	Worker    string // address of the worker that has the device; "" for this process
	Why       string // why this process emulates it; "" for a worker
}

func (e *SlowPrecisionError) Error() string {
	lacks := e.Why
	switch {
	case e.Precision == graphs.FP16 && e.Worker != "":
		lacks = "the CPU of worker " + e.Worker + " does not support it, only GPUs do"
	case e.Precision == graphs.FP16:
		lacks = "this CPU does not support it, only GPUs do"
	case e.Worker != "":
		lacks = "the CPU of worker " + e.Worker + " has no instructions for it that TensorFlow uses (gorbit doctor, run there, says why)"
	}
	return fmt.Sprintf("the graph computes in %s, but %s: TensorFlow would emulate it, at half the speed of float32 or less; "+
		"export the graph with --precision float32, or add --allow-slow-precision (runtime.allow_slow_precision=true)", e.Precision, lacks)
}

// NoPrecisionError says that a process cannot compute in the precision of a graph at all.
type NoPrecisionError struct {
	Precision string // graphs.BF16 or graphs.FP16
	Worker    string // address of the worker, "" for this process
	Why       string
}

func (e *NoPrecisionError) Error() string {
	on := ""
	if e.Worker != "" {
		on = " on worker " + e.Worker
	}
	return fmt.Sprintf("the graph computes in %s, and%s %s; or export the graph with --precision float32", e.Precision, on, e.Why)
}

// Is reports whether the target is the error's class, fault.Usage.
func (e *NoPrecisionError) Is(target error) bool { return target == fault.Usage }
