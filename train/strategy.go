package train

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

// Values of strategy.input: who reads the training batches.
const (
	inputChief = "chief"
	inputLocal = "local"
)

// kind returns the strategy that the params name, with auto resolved. Without devices and workers,
// auto stays devices.Auto, and the number of GPUs decides.
func (s StrategyParams) kind() string {
	switch {
	case s.Name != devices.Auto:
		return s.Name
	case s.TPU != "":
		return devices.TPU
	case s.Workers != "":
		return devices.MultiWorker
	case s.Devices != "":
		switch d, err := devices.Parse(s.Devices); {
		case err == nil && d.Count > 1:
			return devices.Mirrored
		case err == nil && d.Count == 1:
			return devices.One
		}
	}
	return devices.Auto
}

// addresses returns the workers' addresses.
func (s StrategyParams) addresses() []string {
	var out []string
	for address := range strings.SplitSeq(s.Workers, ",") {
		if address = strings.TrimSpace(address); address != "" {
			out = append(out, address)
		}
	}
	return out
}

// validate returns an error that begins with the name of the invalid param.
func (s StrategyParams) validate() error {
	if s.Devices != "" {
		d, err := devices.Parse(s.Devices)
		if err != nil {
			return fmt.Errorf("devices: %w", err)
		}
		if s.Name == devices.One && d.Count > 1 {
			return fmt.Errorf("devices is %s; expected one device for strategy one; use strategy mirrored for several", s.Devices)
		}
	}
	seen := make(map[string]bool)
	for _, address := range s.addresses() {
		if err := devices.CheckAddress(address); err != nil {
			return fmt.Errorf("workers: %w", err)
		}
		if seen[devices.Canonical(address)] {
			return fmt.Errorf("workers: %s is named twice", address)
		}
		seen[devices.Canonical(address)] = true
	}
	switch workers := len(seen); {
	case s.kind() == devices.MultiWorker && workers == 0:
		return fmt.Errorf("workers is empty; expected the addresses of gorbit worker processes, host:port,host:port, for strategy multiworker")
	case s.kind() != devices.MultiWorker && workers > 0:
		return fmt.Errorf("workers is %s, which is only for strategy multiworker; leave it out", s.Workers)
	case s.kind() == devices.MultiWorker && s.Devices != "":
		return fmt.Errorf("devices is %s, which is not for strategy multiworker; each worker has its own: gorbit worker --devices", s.Devices)
	case s.Input == inputLocal && s.kind() != devices.MultiWorker:
		return fmt.Errorf("input is local, which is only for strategy multiworker; leave it out")
	case s.Accumulate < 1:
		return fmt.Errorf("accumulate is %d; expected 1 or more", s.Accumulate)
	case !(s.BucketMB > 0 && s.BucketMB <= 1<<20):
		return fmt.Errorf("bucket_mb is %v; expected more than 0 and at most 1048576", s.BucketMB)
	case s.WorkerTimeout < time.Second || s.WorkerTimeout > cluster.MaxTimeout:
		return fmt.Errorf("worker_timeout is %v; expected 1s to %v", s.WorkerTimeout, cluster.MaxTimeout)
	case s.MaxRestarts < 0:
		return fmt.Errorf("max_restarts is %d; expected 0 or more", s.MaxRestarts)
	}
	return nil
}

// mostLanes is the largest number of lanes that is chosen automatically. Larger numbers were not
// measured against operations that use many cores.
const mostLanes = 4

// lanes returns the number of lanes on a CPU. It is one for graphs that XLA compiles and for those
// that run without gorbit's own kernels.
func (r RuntimeParams) lanes(xla bool) int {
	switch {
	case r.Lanes > 0:
		return r.Lanes
	case r.Kernels == "off" || xla || r.IntraOpThreads > 0 || r.InterOpThreads > 0 || runtime.NumCPU() > mostLanes:
		return 1
	}
	return runtime.NumCPU()
}
