package params

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/tpu"
)

// Values of strategy.input: who reads the training batches.
const (
	InputChief = "chief"
	InputLocal = "local"
)

// Kind returns the strategy that the params name, with auto resolved. Without devices and workers,
// auto stays devices.Auto, and the number of GPUs decides.
func (s Strategy) Kind() string {
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

// Addresses returns the workers' addresses.
func (s Strategy) Addresses() []string {
	var out []string
	for address := range strings.SplitSeq(s.Workers, ",") {
		if address = strings.TrimSpace(address); address != "" {
			out = append(out, address)
		}
	}
	return out
}

// validate returns an error that begins with the name of the invalid param.
func (s Strategy) validate() error {
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
	for _, address := range s.Addresses() {
		if err := devices.CheckAddress(address); err != nil {
			return fmt.Errorf("workers: %w", err)
		}
		if seen[devices.Canonical(address)] {
			return fmt.Errorf("workers: %s is named twice", address)
		}
		seen[devices.Canonical(address)] = true
	}
	switch workers := len(seen); {
	case s.Kind() == devices.MultiWorker && workers == 0:
		return fmt.Errorf("workers is empty; expected the addresses of gorbit worker processes, host:port,host:port, for strategy multiworker")
	case s.Kind() != devices.MultiWorker && workers > 0:
		return fmt.Errorf("workers is %s, which is only for strategy multiworker; leave it out", s.Workers)
	case s.Kind() == devices.MultiWorker && s.Devices != "":
		return fmt.Errorf("devices is %s, which is not for strategy multiworker; each worker has its own: gorbit worker --devices", s.Devices)
	case s.Input == InputLocal && s.Kind() != devices.MultiWorker:
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

// validateTPU returns an error that names a param that only TPUs have, or one that they do not have.
func (p Params) validateTPU() error {
	s, r := p.Strategy, p.Runtime
	if s.Kind() != devices.TPU {
		for _, only := range []struct {
			name string
			set  bool
		}{{"tpu", s.TPU != ""}, {"tpu_project", s.TPUProject != ""}, {"tpu_zone", s.TPUZone != ""}, {"tpu_api", s.TPUAPI != ""},
			{"tpu_ready_timeout", s.TPUReadyTimeout != 0}, {"tpu_wait", s.TPUWait}, {"tpu_timeout", s.TPUTimeout != tpu.DefaultStartTimeout}} {
			if only.set {
				return fmt.Errorf("strategy.%s is set, which is only for strategy tpu; name a TPU with --tpu, or leave it out", only.name)
			}
		}
		return nil
	}
	_, err := tpu.NewResolver(s.TPUConfig(nil))
	switch {
	case err != nil:
		return fmt.Errorf("strategy.tpu: %w", err)
	case s.TPUTimeout < time.Second || s.TPUTimeout > cluster.MaxTimeout:
		return fmt.Errorf("strategy.tpu_timeout is %v; expected 1s to %v", s.TPUTimeout, cluster.MaxTimeout)
	case s.TPUWait && s.TPUReadyTimeout == 0:
		return errors.New("strategy.tpu_wait is set and strategy.tpu_ready_timeout is 0; expected how long to wait, as with --tpu-ready-timeout 30m")
	}
	for _, not := range []struct {
		name string
		set  bool
	}{
		{"strategy.devices", s.Devices != ""}, {"strategy.accumulate", s.Accumulate > 1}, {"strategy.shard_optimizer", s.ShardOptimizer},
		{"strategy.bucket_mb", s.BucketMB != float64(strategy.DefaultBucketBytes)/(1<<20)}, {"strategy.elastic", s.Elastic},
		{"runtime.device", r.Device != ""}, {"runtime.lanes", r.Lanes > 0}, {"runtime.kernels", r.Kernels == "off"},
		{"runtime.intra_op_threads", r.IntraOpThreads > 0}, {"runtime.inter_op_threads", r.InterOpThreads > 0},
	} {
		if not.set {
			return fmt.Errorf("%s is set, which is not for a TPU; leave it out", not.name)
		}
	}
	return nil
}

// TPUConfig returns the configuration of a tpu.Resolver.
func (s Strategy) TPUConfig(log *slog.Logger) tpu.Config {
	return tpu.Config{Name: s.TPU, Project: s.TPUProject, Zone: s.TPUZone, API: s.TPUAPI, ReadyTimeout: s.TPUReadyTimeout, WaitForNode: s.TPUWait,
		Getenv: os.Getenv, Log: log}
}
