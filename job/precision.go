package job

import (
	"fmt"
	"log/slog"
	"strings"

	"golang.org/x/sys/cpu"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// SlowPrecisionError says that a device has no instructions for what a graph
// computes in, so that TensorFlow emulates it.
type SlowPrecisionError struct {
	Precision string // graphs.BF16 or graphs.FP16
}

func (e *SlowPrecisionError) Error() string {
	lacks := "this CPU has no instructions for it (AVX512_BF16 or AMX_BF16)"
	if e.Precision == graphs.FP16 {
		lacks = "it is for GPUs"
	}
	return fmt.Sprintf("the graph computes in %s, and %s: TensorFlow would emulate it, at about half of float32's speed or less; "+
		"export the graph with --precision float32, or say --allow-slow-precision (runtime.allow_slow_precision=true)", e.Precision, lacks)
}

// nativeBF16 says whether this CPU multiplies matrices of bfloat16.
func nativeBF16() bool { return cpu.X86.HasAVX512BF16 || cpu.X86.HasAMXBF16 }

// slowPrecision returns a *SlowPrecisionError where the device emulates what a graph
// computes in. native says whether the CPU has instructions for bfloat16.
func slowPrecision(precision, device string, native bool) error {
	emulated := precision == graphs.FP16 || precision == graphs.BF16 && !native
	if !emulated || !strings.Contains(strings.ToUpper(device), "CPU:") {
		return nil
	}
	return &SlowPrecisionError{precision}
}

// allowPrecision refuses a graph that a device would compute slowly, unless the
// params allow it.
func allowPrecision(p Params, c *graphs.Contract, device string, log *slog.Logger) error {
	err := slowPrecision(c.Precision, device, nativeBF16())
	if err != nil && p.Runtime.AllowSlowPrecision {
		warnPrecision(c, device, log)
		return nil
	}
	if err != nil {
		return &ParamsError{err}
	}
	return nil
}

// warnPrecision tells of a graph that a device computes slowly.
func warnPrecision(c *graphs.Contract, device string, log *slog.Logger) {
	if slowPrecision(c.Precision, device, nativeBF16()) != nil {
		log.Warn("TensorFlow emulates the precision of the graph on this device, which is slow", "precision", c.Precision, "device", device)
	}
}

// lossScale returns how the loss of a graph is scaled, nil for one that needs no scale.
// The graph's hyperparameter is what a run begins with.
func lossScale(p Params, c *graphs.Contract) *runner.LossScaleConfig {
	if c.Precision != graphs.FP16 {
		return nil
	}
	return &runner.LossScaleConfig{Initial: p.Optimizer.Hyperparameters[graphs.LossScale]}
}
