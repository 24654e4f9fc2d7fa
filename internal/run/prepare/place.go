package prepare

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/cuda"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/shardinput"
	"github.com/gorbit-ml/gorbit/internal/run/groups"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/tpu"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Placed is a model on its devices.
type Placed struct {
	strategy.Strategy
	Workers *cluster.Cluster // nil without workers; closed after the model
	Drawer  Drawer           // nil without workers
	Tpu     *tpu.System      // nil without a TPU; shut down after the model is closed
}

// Release gives up what the model ran on, after the model was closed. err is what ended it, or nil.
func (p Placed) Release(ctx context.Context, err error, log *slog.Logger) {
	switch lost := LostWorker(err); {
	case p.Tpu != nil:
		ShutTPU(ctx, p.Tpu, lost, log)
	case p.Workers != nil && lost:
		p.Workers.Close()
	case p.Workers != nil:
		p.Workers.Finish()
	}
}

// Drawer draws batches at the workers, which read the data themselves.
type Drawer interface {
	// Draw draws the batches of an update, which begin at a position of an epoch.
	Draw(ctx context.Context, epoch, position int64, accumulate int) (*strategy.Drawn, error)
}

// OpenModel composes the export's graph for the devices in the params. local is the data that the
// workers read themselves, or nil.
func OpenModel(ctx context.Context, p params.Params, export *graphs.Export, functions strategy.Functions, local *strategy.LocalInput, env Env) (Placed, error) {
	if functions == strategy.FunctionsTrain || p.Strategy.Kind() == devices.TPU { // others evaluate whole batches
		if err := checkWhole(p, export.Contract); err != nil {
			return Placed{}, err
		}
	}
	if functions == strategy.FunctionsTrain {
		if err := checkPhases(p, export.Contract); err != nil {
			return Placed{}, err
		}
	}
	switch p.Strategy.Kind() {
	case devices.TPU:
		return openTPU(ctx, p, export, functions, env)
	case devices.MultiWorker:
	default:
		logXLA(p, export.Contract, functions, env.Log)
		m, err := openLocal(ctx, p, export, functions, env.Folder)
		return Placed{Strategy: m}, err
	}
	config, err := strategyOf(p, export.Contract, functions)
	if err != nil {
		return Placed{}, err
	}
	f, err := cluster.Connect(ctx, cluster.Config{Addresses: p.Strategy.Addresses(), Timeout: p.Strategy.WorkerTimeout, Log: env.Log, Version: env.Version,
		IntraOpThreads: p.Runtime.IntraOpThreads, InterOpThreads: p.Runtime.InterOpThreads, NoOneDNN: p.Runtime.OneDNN == "off", Keys: env.Keys, Sockets: env.Sockets})
	if err != nil {
		return Placed{}, err
	}
	config.Patience, config.LocalInput, config.Log = p.Strategy.WorkerTimeout, local, env.Log
	m, err := strategy.NewMultiWorker(ctx, export, f, config)
	if err != nil {
		if bad := (*shardinput.Error)(nil); errors.As(err, &bad) {
			return Placed{}, errors.Join(bad, f.Finish())
		}
		return Placed{}, errors.Join(err, f.Close())
	}
	return Placed{Strategy: m, Workers: f, Drawer: m}, nil
}

// checkWhole returns a *params.Error if the params divide the batches of a graph whose loss compares the
// examples of a batch: its parts would be compared among themselves.
func checkWhole(p params.Params, c *graphs.Contract) error {
	if c.Loss != graphs.LossAcross {
		return nil
	}
	const why = "the loss of the graph compares the examples of a batch, which must be computed in one part on one device"
	switch s := p.Strategy; {
	case s.TPU != "":
		return params.Errorf("strategy.tpu", "is %s: %s; expected a CPU or GPU; leave out --tpu", s.TPU, why)
	case s.Workers != "":
		return params.Errorf("strategy.workers", "is %s: %s; leave out --workers", s.Workers, why)
	case s.Kind() == devices.Mirrored && s.Devices != "":
		return params.Errorf("strategy.devices", "is %s: %s; expected one, as with --devices %s:1", s.Devices, why, strings.ToLower(strings.Split(s.Devices, ":")[0]))
	case s.Kind() != devices.Auto && s.Kind() != devices.One:
		return params.Errorf("strategy.name", "is %s: %s; expected %s or %s", s.Name, why, devices.Auto, devices.One)
	case s.Accumulate > 1:
		return params.Errorf("strategy.accumulate", "is %d: %s; expected 1", s.Accumulate, why)
	case p.Runtime.Lanes > 1:
		return params.Errorf("runtime.lanes", "is %d: %s; expected 1, or 0, which is 1 for this graph", p.Runtime.Lanes, why)
	}
	return nil
}

// openTPU starts the TPU of the params and composes the graph for all of its cores.
func openTPU(ctx context.Context, p params.Params, export *graphs.Export, functions strategy.Functions, env Env) (Placed, error) {
	if err := CheckTPUGraph(export.Contract); err != nil {
		return Placed{}, err
	}
	config, err := strategyOf(p, export.Contract, functions)
	if err != nil {
		return Placed{}, err
	}
	system, err := StartTPU(ctx, p.Strategy, env.Log)
	if err != nil {
		return Placed{}, err
	}
	cores := system.Topology.Cores()
	if functions == strategy.FunctionsTrain {
		if err := checkShare(p, export.Contract, cores); err != nil {
			ShutTPU(ctx, system, false, env.Log)
			return Placed{}, err
		}
	}
	config.StandardOps, config.Patience, config.Log = true, p.Strategy.TPUTimeout, env.Log
	shapes := TpuAxes(p, export.Contract, cores)
	last := len(shapes) - 1
	config.Axes, config.MoreAxes = shapes[last], shapes[:last]
	for _, axes := range shapes {
		line := []any{"cores", cores}
		for _, axis := range slices.Sorted(maps.Keys(axes)) {
			line = append(line, axis, axes[axis])
		}
		env.Log.Info("compiling for the TPU", line...)
	}
	m, err := strategy.NewTPU(ctx, export, system, config)
	if err != nil {
		ShutTPU(ctx, system, LostTPU(err), env.Log)
		return Placed{}, err
	}
	return Placed{Strategy: m, Tpu: system}, nil
}

// strategyOf returns the configuration of the strategy that trains a graph, or only evaluates it.
func strategyOf(p params.Params, c *graphs.Contract, functions strategy.Functions) (strategy.Config, error) {
	config := p.StrategyConfig(functions)
	if functions != strategy.FunctionsTrain {
		return config, nil
	}
	config.Average, config.AverageFrom = p.Optimizer.EMA, p.Optimizer.SWA
	if config.AverageFrom > 0 {
		config.AverageEvery = p.Optimizer.SWAEvery
	}
	d, err := groups.Divide(c, p.Optimizer.Groups, p.Optimizer.LayerDecay)
	if err == nil && d != nil {
		config.Factors = d.Factors
	}
	return config, err
}

// noGPU says why no GPU is counted.
func noGPU() string {
	if !cuda.Built() {
		return cuda.NotBuilt
	}
	return "this machine has no GPU that TensorFlow can use; see gorbit devices"
}

// isCPU reports whether a device is named and is a CPU.
func isCPU(device string) bool { return strings.Contains(strings.ToUpper(device), "CPU:") }

// localDevices returns the devices of this process that the params name, or all GPUs. GPUs are not
// looked at if only CPUs are named.
func localDevices(s params.Strategy, kind, device string) (devices.Spec, error) {
	on, err := devices.Spec{Type: "GPU"}, error(nil)
	if s.Devices != "" {
		on, err = devices.Parse(s.Devices)
	} else if isCPU(device) {
		return on, nil
	}
	if err == nil && on.Type == "GPU" {
		var have int
		if have, err = strategy.CountGPUs(); on.Count == 0 {
			on.Count = have
		}
	}
	switch {
	case err != nil:
		return on, err
	case s.Devices != "" && on.Count == 0:
		return on, params.Errorf("strategy.devices", "is %s, but %s", s.Devices, noGPU())
	case s.Devices == "" && kind == devices.Mirrored && on.Count == 0:
		return on, params.Errorf("strategy.name", "is mirrored, but %s; or name other devices, as with --devices cpu:2", noGPU())
	case s.Devices == "" && kind == devices.Mirrored && on.Count == 1:
		return on, params.Errorf("strategy.name", "is mirrored, but this machine has 1 GPU; expected 2 or more; name other devices, as with --devices cpu:2")
	}
	return on, nil
}

// OpenLocal composes the graph for devices of this process.
func OpenLocal(ctx context.Context, p params.Params, export *graphs.Export, functions strategy.Functions) (*strategy.Model, error) {
	return openLocal(ctx, p, export, functions, "")
}

// openLocal is OpenLocal for a run in a folder.
func openLocal(ctx context.Context, p params.Params, export *graphs.Export, functions strategy.Functions, folder string) (*strategy.Model, error) {
	on, config, err := placeLocally(p, export, functions)
	if err != nil {
		return nil, err
	}
	if config.Offload != "" {
		config.Offload = cmp.Or(folder, config.Offload)
	}
	if on.mirrored {
		return strategy.NewMirrored(ctx, export, on.devices, config)
	}
	return strategy.NewOneDevice(ctx, export, on.devices[0], config)
}

// ComposeLocal composes the graph that OpenLocal would run. This machine need not have the devices.
func ComposeLocal(p params.Params, export *graphs.Export) (*strategy.Graph, error) {
	on, config, err := placeLocally(p, export, strategy.FunctionsTrain)
	if err != nil {
		return nil, err
	}
	if on.mirrored {
		return strategy.ComposeMirrored(export, on.devices, config)
	}
	return strategy.ComposeOneDevice(export, on.devices[0], config)
}

// place is where a process trains: on one device, which may be "", TensorFlow's choice, or mirrored on
// several.
type place struct {
	devices  []string
	mirrored bool
}

// placeLocally returns the devices of this process that the params choose.
func placeLocally(p params.Params, export *graphs.Export, functions strategy.Functions) (place, strategy.Config, error) {
	config, err := strategyOf(p, export.Contract, functions)
	if err != nil {
		return place{}, config, err
	}
	kind, device := p.Strategy.Kind(), p.Runtime.Device
	on, err := localDevices(p.Strategy, kind, device)
	if err != nil {
		return place{}, config, err
	}
	if p.Strategy.Devices != "" {
		device = on.Names()[0]
	}
	// On the first device of several.
	whole := functions == strategy.FunctionsTrain && export.Contract.Loss == graphs.LossAcross
	if kind == devices.Mirrored || kind == devices.Auto && p.Runtime.Device == "" && on.Count > 1 && !whole {
		return place{on.Names(), true}, config, nil
	}
	if device == "" && on.Count == 0 || isCPU(device) {
		config.Lanes = LanesOf(p.Runtime, export.Contract.XLA)
	}
	return place{[]string{device}, false}, config, nil
}

// onGPUs reports whether this process trains on GPUs. If its devices cannot be found, opening the model
// says so.
func onGPUs(p params.Params, export *graphs.Export) bool {
	if kind := p.Strategy.Kind(); kind == devices.TPU || kind == devices.MultiWorker {
		return false
	}
	on, _, err := placeLocally(p, export, strategy.FunctionsTrain)
	if err != nil || on.devices[0] != "" {
		return err == nil && !isCPU(on.devices[0])
	}
	n, err := strategy.CountGPUs()
	return err == nil && n > 0
}

// logXLA says that the first calls of a graph take long, because XLA compiles them.
func logXLA(p params.Params, c *graphs.Contract, functions strategy.Functions, log *slog.Logger) {
	if !c.XLA {
		return
	}
	of := "evaluation and prediction"
	if functions == strategy.FunctionsTrain {
		of = "training step and evaluation"
	}
	log.Info("XLA compiles for the first batch of each shape, which takes longer", "compiled", of, "fixed_shapes", p.Data.Rows > 0)
}

// LostTPU reports whether the error is that of a TPU that was lost, such as a preempted one.
func LostTPU(err error) bool {
	lost := (*strategy.TPULostError)(nil)
	return errors.As(err, &lost)
}

// LostWorker reports whether a run can continue in a new session after the error: a worker, a
// connection between workers, or the TPU was lost, or this process was paused. A worker that reports
// that it cannot start is not lost.
func LostWorker(err error) bool {
	if LostTPU(err) {
		return true
	}
	if paused := (*cluster.PausedError)(nil); errors.As(err, &paused) {
		return true
	}
	if told := (*cluster.FailedError)(nil); errors.As(err, &told) && told.Final {
		return false
	}
	if lost := (*strategy.SessionLostError)(nil); errors.As(err, &lost) {
		return true
	}
	w := (*cluster.WorkerError)(nil)
	return errors.As(err, &w) && w.Phase != cluster.PhaseConnect && w.Phase != cluster.PhaseGreet
}

// LostCause returns the part of an error that names the lost worker and the reason, without what
// the run was doing at that time.
func LostCause(err error) error {
	if p := (*cluster.PausedError)(nil); errors.As(err, &p) {
		return p
	}
	if w := (*cluster.WorkerError)(nil); errors.As(err, &w) {
		return w
	}
	if l := (*strategy.TPULostError)(nil); errors.As(err, &l) {
		return &strategy.TPULostError{Err: shortened(l.Err)}
	}
	if s := (*strategy.SessionLostError)(nil); errors.As(err, &s) {
		return &strategy.SessionLostError{Err: shortened(s.Err)}
	}
	return err
}

// shortened returns an error with the beginning of TensorFlow's message, as one line.
func shortened(err error) error {
	const most = 200
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) <= most {
		return err
	}
	return errors.New(strings.ToValidUTF8(text[:most], "") + "... (--log-level debug logs all of it)")
}

// WithoutWorkers returns the params without the workers that a connection error names. It reports whether
// any were removed and any are left.
func WithoutWorkers(s params.Strategy, err error) (params.Strategy, bool) {
	gone := make(map[string]bool)
	var find func(error)
	find = func(err error) {
		if w := (*cluster.WorkerError)(nil); errors.As(err, &w) {
			gone[w.Address] = true
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				find(e)
			}
		}
	}
	find(err)
	var left []string
	for _, address := range s.Addresses() {
		if !gone[address] {
			left = append(left, address)
		}
	}
	s.Workers = strings.Join(left, ",")
	return s, len(gone) > 0 && len(left) > 0
}

// mostLanes is the largest number of lanes that is chosen automatically. Larger numbers were not
// measured against operations that use many cores.
const mostLanes = 4

// LanesOf returns the number of lanes on a CPU. It is one for graphs that XLA compiles and for those
// that run without gorbit's own kernels.
func LanesOf(r params.Runtime, xla bool) int {
	switch {
	case r.Lanes > 0:
		return r.Lanes
	case r.Kernels == "off" || xla || r.IntraOpThreads > 0 || r.InterOpThreads > 0 || runtime.NumCPU() > mostLanes:
		return 1
	}
	return runtime.NumCPU()
}
