package params

import (
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/tpu"
)

// Values of strategy.input: who reads the training batches.
const (
	InputChief = "chief"
	InputLocal = "local"
)

// The values of strategy.offload, for what is in files in the run's folder: the slots of the optimizer, or
// these and the variables, their gradients and averages.
const (
	OffloadDisk = "disk"
	OffloadAll  = "all"
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

// together checks the params that depend on the strategy.
func (s Strategy) together() error {
	if s.Devices != "" {
		d, err := devices.Parse(s.Devices)
		if err != nil {
			return Errorf("strategy.devices", ": %w", err)
		}
		if s.Name == devices.One && d.Count > 1 {
			return Errorf("strategy.devices", "is %s; expected one device for strategy one; use strategy mirrored for several", s.Devices).And("strategy.name")
		}
	}
	seen := make(map[string]bool)
	for _, address := range s.Addresses() {
		if err := devices.CheckAddress(address); err != nil {
			return Errorf("strategy.workers", ": %w", err)
		}
		if seen[devices.Canonical(address)] {
			return Errorf("strategy.workers", ": %s is named twice", address)
		}
		seen[devices.Canonical(address)] = true
	}
	switch workers := len(seen); {
	case s.Kind() == devices.MultiWorker && workers == 0:
		return Errorf("strategy.workers", "is empty; expected the addresses of gorbit worker processes, host:port,host:port, for strategy multiworker").And("strategy.name")
	case s.Kind() != devices.MultiWorker && workers > 0:
		return Errorf("strategy.workers", "is %s, which is only for strategy multiworker; leave it out", s.Workers).And("strategy.name")
	case s.Kind() == devices.MultiWorker && s.Devices != "":
		return Errorf("strategy.devices", "is %s, which is not for strategy multiworker; each worker names its own", s.Devices).And("strategy.name")
	case s.Offload != "" && s.Kind() == devices.MultiWorker:
		return Errorf("strategy.offload", "is %s, which is not for strategy multiworker; leave it out, or divide the slots among the workers with strategy.shard_optimizer=true", s.Offload).And("strategy.name")
	case s.Offload == OffloadAll && s.Kind() == devices.Mirrored:
		return Errorf("strategy.offload", "is all, and each device of strategy mirrored would have a copy of the variables on the disk; expected strategy one, whose device may have several lanes (runtime.lanes)").And("strategy.name")
	case s.Input == InputLocal && s.Kind() != devices.MultiWorker:
		return Errorf("strategy.input", "is local, which is only for strategy multiworker; leave it out").And("strategy.name")
	}
	return nil
}

// checkTPU returns an error for a param that only TPUs have, or one that they do not have.
func (p Params) checkTPU() error {
	s := p.Strategy
	onTPU := s.Kind() == devices.TPU
	if onTPU {
		_, err := tpu.NewResolver(s.TPUConfig(nil))
		switch {
		case err != nil:
			return Errorf("strategy.tpu", ": %w", err)
		case s.TPUTimeout < time.Second || s.TPUTimeout > cluster.MaxTimeout:
			return Errorf("strategy.tpu_timeout", "is %v; expected 1s to %v", s.TPUTimeout, cluster.MaxTimeout)
		case s.TPUWait && s.TPUReadyTimeout == 0:
			return Errorf("strategy.tpu_wait", "is set and strategy.tpu_ready_timeout is 0; expected how long to wait, such as strategy.tpu_ready_timeout=30m").And("strategy.tpu_ready_timeout")
		}
	}
	defaults := Defaults()
	is, standard := p.byName(), defaults.byName()
	for _, row := range table {
		switch set := row.On != Anywhere && !is[row.Name].Equal(standard[row.Name]); {
		case set && row.On == OnlyTPU && !onTPU:
			return Errorf(row.Name, "is set, which is only for strategy tpu; name a TPU with strategy.tpu, or leave it out").And("strategy.name")
		case set && row.On == NoTPU && onTPU:
			return Errorf(row.Name, "is set, which is not for a TPU; leave it out").And("strategy.tpu", "strategy.name")
		}
	}
	return nil
}

// TPUConfig returns the configuration of a tpu.Resolver.
func (s Strategy) TPUConfig(log *slog.Logger) tpu.Config {
	return tpu.Config{Name: s.TPU, Project: s.TPUProject, Zone: s.TPUZone, API: s.TPUAPI, ReadyTimeout: s.TPUReadyTimeout, WaitForNode: s.TPUWait,
		Getenv: os.Getenv, Log: log}
}
