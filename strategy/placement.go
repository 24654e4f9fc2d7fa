package strategy

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// NewOneDevice composes the export's graph for one device, such as "/device:GPU:0"; "" means
// TensorFlow's choice. The variables have no value until Assign sets them; slots and the count of
// iterations are zero.
func NewOneDevice(ctx context.Context, export *graphs.Export, device string, config Config) (*Model, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.forLanes()
	have, err := listDevices(target{}, config)
	if err != nil {
		return nil, err
	}
	found, err := findDevice(have, device)
	if err != nil {
		return nil, err
	}
	name := device
	if name == "" && found.Type == "GPU" {
		name = shortName(found.Name)
	}
	t := oneDevice(name, found.Type == "CPU", config.Lanes)
	t.names = []string{shortName(found.Name)}
	return newModel(ctx, export, t, config)
}

// oneDevice returns the target of NewOneDevice.
func oneDevice(device string, cpu bool, lanes int) target {
	lanes = max(1, lanes)
	return target{devices: slices.Repeat([]string{device}, lanes), shared: lanes > 1, own: cpu}
}

// forLanes returns the configuration with the threads of its lanes.
func (c Config) forLanes() Config {
	if c.Lanes > 1 {
		if c.IntraOpThreads == 0 {
			c.IntraOpThreads = max(1, runtime.NumCPU()/c.Lanes)
		}
		if c.InterOpThreads == 0 {
			c.InterOpThreads = c.Lanes
		}
	}
	return c
}

// NewMirrored composes the export's graph for several devices of this process, such as
// "/device:GPU:0" and "/device:GPU:1". Each device has a replica of the model, and all replicas
// hold the same values, bit for bit. Variables start as in NewOneDevice. If the machine has one GPU
// and several are given, it is split into virtual devices, for experiments.
func NewMirrored(ctx context.Context, export *graphs.Export, devices []string, config Config) (*Model, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	t, config, err := mirrored(devices, config)
	if err != nil {
		return nil, err
	}
	have, err := listDevices(t, config)
	if err != nil {
		return nil, err
	}
	for _, d := range t.devices {
		found, err := findDevice(have, d)
		if err != nil {
			return nil, err
		}
		t.own = t.own && found.Type == "CPU"
	}
	return newModel(ctx, export, t, config)
}

// mirrored returns the target of NewMirrored, and the configuration with its threads.
func mirrored(devices []string, config Config) (target, Config, error) {
	if len(devices) == 0 {
		return target{}, config, errors.New("no devices given; expected names such as /device:GPU:0 and /device:GPU:1")
	}
	t := target{devices: devices, own: true}
	gpus := true
	for _, d := range t.devices {
		if n, ok := cpuNumber(d); ok {
			t.cpus = max(t.cpus, n+1)
			gpus = false
		}
	}
	if gpus {
		// TensorFlow uses NCCL only on request, and NCCL cannot use a GPU twice.
		t.hint = "nccl"
		n, err := CountGPUs()
		if err != nil {
			return target{}, config, err
		}
		if n == 1 && len(devices) > 1 {
			t.hint, t.virtual = "ring", len(devices)
		}
	}
	if t.own = t.cpus > 0; t.own && config.IntraOpThreads == 0 {
		config.IntraOpThreads = max(1, runtime.NumCPU()/len(t.devices))
	}
	if t.own && config.InterOpThreads == 0 {
		config.InterOpThreads = len(t.devices)
	}
	return t, config, nil
}

// NewMultiWorker composes the export's graph for the devices of several servers, as NewMirrored
// does for those of one process. Once a server is lost, every call returns the cluster's error.
func NewMultiWorker(ctx context.Context, export *graphs.Export, cluster Cluster, config Config) (*MultiWorker, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Offload != "" {
		return nil, fault.Usagef("Config.Offload is set; expected none with workers, whose slots stay in memory; Config.ShardOptimizer divides them among the workers")
	}
	t := target{devices: cluster.Devices(), master: cluster.Target(), leader: cluster.GroupLeader(), own: true, cluster: cluster}
	if len(t.devices) == 0 {
		return nil, errors.New("the cluster has no devices")
	}
	for _, d := range t.devices {
		_, cpu := cpuNumber(d)
		t.own = t.own && cpu
	}
	model, err := newModel(ctx, export, t, config)
	if err != nil {
		return nil, err
	}
	m := &MultiWorker{Model: model}
	if m.local() != nil {
		if err = m.openInput(ctx); err != nil {
			m.Close()
			return nil, err
		}
	}
	return m, nil
}
