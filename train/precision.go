package train

import (
	"log/slog"
	"strings"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/params"
)

// computer is a process that computes.
type computer struct {
	worker string // address of the worker; "" for this process
	device string // the first device; all have the same type
	bf16   bool   // whether its CPU has instructions for bfloat16
	why    string // why bf16 is false, if known
	no     string // why it cannot compute in bfloat16 at all; "" if it can
}

// computers returns the processes that compute a model: the workers, or this process if there are
// none.
func computers(s strategy.Strategy, workers *cluster.Cluster) []computer {
	if workers == nil {
		return []computer{{device: s.Runtime().Devices[0], bf16: devices.NativeBF16(), why: devices.SlowBF16(), no: devices.NoBF16()}}
	}
	var out []computer
	for _, w := range workers.Workers() {
		out = append(out, computer{worker: w.Address, device: w.Devices[0], bf16: w.NativeBF16, no: w.NoBF16})
	}
	return out
}

// slowPrecision returns a *SlowPrecisionError if a process emulates the precision of a graph.
func slowPrecision(precision string, on computer) error {
	emulated := precision == graphs.FP16 || precision == graphs.BF16 && !on.bf16
	if !emulated || !strings.Contains(strings.ToUpper(on.device), "CPU:") {
		return nil
	}
	return &SlowPrecisionError{precision, on.worker, on.why}
}

// possiblePrecision returns a *NoPrecisionError if one of the processes cannot compute in the
// precision of a graph. Limits of oneDNN do not matter if the params turn it off.
func possiblePrecision(p params.Params, precision string, all []computer) error {
	if p.Runtime.OneDNN == "off" {
		return nil
	}
	for _, on := range all {
		if precision == graphs.BF16 && on.no != "" && strings.Contains(strings.ToUpper(on.device), "CPU:") {
			return &NoPrecisionError{precision, on.worker, on.no}
		}
	}
	return nil
}

// allowPrecision returns an error if any of the processes cannot compute in the precision of a
// graph, or would emulate it and the params do not allow that.
func allowPrecision(p params.Params, c *graphs.Contract, all []computer, log *slog.Logger) error {
	if err := possiblePrecision(p, c.Precision, all); err != nil {
		return err
	}
	for _, on := range all {
		if err := slowPrecision(c.Precision, on); err != nil && !p.Runtime.AllowSlowPrecision {
			return &params.Error{Params: []string{"graph"}, Err: err}
		}
	}
	warnPrecision(c, all, log)
	return nil
}

// warnPrecision logs the processes that emulate the precision of a graph.
func warnPrecision(c *graphs.Contract, all []computer, log *slog.Logger) {
	for _, on := range all {
		if slowPrecision(c.Precision, on) != nil {
			about := []any{"precision", c.Precision, "device", on.device}
			if on.why != "" && c.Precision == graphs.BF16 {
				about = append(about, "reason", on.why)
			}
			if on.worker != "" {
				about = append(about, "worker", on.worker)
			}
			log.Warn("TensorFlow emulates the precision of the graph on this device, which is slow", about...)
		}
	}
}

// lossScale returns the configuration of loss scaling for a graph, or nil if it needs none. The
// initial scale is the graph's hyperparameter.
func lossScale(p params.Params, c *graphs.Contract) *runner.LossScaleConfig {
	if c.Precision != graphs.FP16 {
		return nil
	}
	return &runner.LossScaleConfig{Initial: p.Optimizer.Hyperparameters[graphs.LossScale]}
}
