package prepare

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

// Computer is a process that computes.
type Computer struct {
	worker string            // address of the worker; "" for this process
	Device string            // the first device; all have the same type
	Bf16   bool              // whether its CPU has instructions for bfloat16
	why    string            // why bf16 is false, if known
	no     map[string]string // why it cannot compute in a precision at all; "" if it can
}

// Computers returns the processes that compute a model: the workers, or this process if there are
// none.
func Computers(s strategy.Strategy, workers *cluster.Cluster) []Computer {
	if workers == nil {
		return []Computer{{Device: s.Runtime().Devices[0], Bf16: devices.NativeBF16(), why: devices.SlowBF16(), no: map[string]string{graphs.BF16: devices.NoBF16(), graphs.FP16: devices.NoFP16()}}}
	}
	var out []Computer
	for _, w := range workers.Workers() {
		out = append(out, Computer{worker: w.Address, Device: w.Devices[0], Bf16: w.NativeBF16, no: map[string]string{graphs.BF16: w.NoBF16, graphs.FP16: w.NoFP16}})
	}
	return out
}

// SlowPrecision returns a *SlowPrecisionError if a process emulates the precision of a graph.
func SlowPrecision(precision string, on Computer) error {
	emulated := precision == graphs.FP16 || precision == graphs.BF16 && !on.Bf16
	if !emulated || !strings.Contains(strings.ToUpper(on.Device), "CPU:") {
		return nil
	}
	return &params.SlowPrecisionError{Precision: precision, Worker: on.worker, Why: on.why}
}

// PossiblePrecision returns a *NoPrecisionError if one of the processes cannot compute in the
// precision of a graph. Limits of oneDNN do not matter if the params turn it off.
func PossiblePrecision(p params.Params, precision string, all []Computer) error {
	if p.Runtime.OneDNN == "off" {
		return nil
	}
	for _, on := range all {
		if why := on.no[precision]; why != "" && strings.Contains(strings.ToUpper(on.Device), "CPU:") {
			return &params.NoPrecisionError{Precision: precision, Worker: on.worker, Why: why}
		}
	}
	return nil
}

// AllowPrecision returns an error if any of the processes cannot compute in the precision of a
// graph, or would emulate it and the params do not allow that.
func AllowPrecision(p params.Params, c *graphs.Contract, all []Computer, log *slog.Logger) error {
	if err := PossiblePrecision(p, c.Precision, all); err != nil {
		return err
	}
	for _, on := range all {
		if err := SlowPrecision(c.Precision, on); err != nil && !p.Runtime.AllowSlowPrecision {
			return &params.Error{Params: []string{"graph"}, Err: err}
		}
	}
	WarnPrecision(c, all, log)
	return nil
}

// WarnPrecision logs the processes that emulate the precision of a graph.
func WarnPrecision(c *graphs.Contract, all []Computer, log *slog.Logger) {
	for _, on := range all {
		if SlowPrecision(c.Precision, on) != nil {
			about := []any{"precision", c.Precision, "device", on.Device}
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

// LossScale returns the configuration of loss scaling for a graph, or nil if it needs none. The
// initial scale is the graph's hyperparameter.
func LossScale(p params.Params, c *graphs.Contract) *runner.LossScaleConfig {
	if c.Precision != graphs.FP16 {
		return nil
	}
	return &runner.LossScaleConfig{Initial: p.Optimizer.Hyperparameters[graphs.LossScale]}
}
