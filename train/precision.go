package train

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/cluster"
	"github.com/gorbit-ml/gorbit/internal/devices"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
)

// SlowPrecisionError says that a device has no instructions for what a graph
// computes in, so that TensorFlow emulates it.
type SlowPrecisionError struct {
	Precision string // graphs.BF16 or graphs.FP16
	Worker    string // address of the worker that has the device, "" for this process
}

func (e *SlowPrecisionError) Error() string {
	whose := "this CPU"
	if e.Worker != "" {
		whose = "the CPU of worker " + e.Worker
	}
	lacks := whose + " has no instructions for it (AVX512_BF16 or AMX_BF16)"
	if e.Precision == graphs.FP16 {
		lacks = "it is for GPUs, not for " + whose
	}
	return fmt.Sprintf("the graph computes in %s, and %s: TensorFlow would emulate it, at about half of float32's speed or less; "+
		"export the graph with --precision float32, or say --allow-slow-precision (runtime.allow_slow_precision=true)", e.Precision, lacks)
}

// computer is a process that computes.
type computer struct {
	worker string // its address, "" for this process
	device string // the first; all are of one type
	bf16   bool   // whether its CPU has instructions for bfloat16
}

// computers are the processes that compute a model: the workers, or this one where there
// are none.
func computers(s strategy.Strategy, workers *cluster.Fleet) []computer {
	if workers == nil {
		return []computer{{"", s.Runtime().Devices[0], devices.NativeBF16()}}
	}
	var out []computer
	for _, w := range workers.Workers() {
		out = append(out, computer{w.Address, w.Devices[0], w.NativeBF16})
	}
	return out
}

// slowPrecision returns a *SlowPrecisionError where a process emulates what a graph
// computes in.
func slowPrecision(precision string, on computer) error {
	emulated := precision == graphs.FP16 || precision == graphs.BF16 && !on.bf16
	if !emulated || !strings.Contains(strings.ToUpper(on.device), "CPU:") {
		return nil
	}
	return &SlowPrecisionError{precision, on.worker}
}

// allowPrecision refuses a graph that one of some processes would compute slowly, unless
// the params allow it.
func allowPrecision(p Params, c *graphs.Contract, all []computer, log *slog.Logger) error {
	for _, on := range all {
		if err := slowPrecision(c.Precision, on); err != nil && !p.Runtime.AllowSlowPrecision {
			return &ParamsError{err}
		}
	}
	warnPrecision(c, all, log)
	return nil
}

// warnPrecision tells of a graph that processes compute slowly.
func warnPrecision(c *graphs.Contract, all []computer, log *slog.Logger) {
	for _, on := range all {
		if slowPrecision(c.Precision, on) != nil {
			about := []any{"precision", c.Precision, "device", on.device}
			if on.worker != "" {
				about = append(about, "worker", on.worker)
			}
			log.Warn("TensorFlow emulates the precision of the graph on this device, which is slow", about...)
		}
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
