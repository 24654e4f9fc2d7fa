package job

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/strategy"
)

// The strategies by their names in params.
const (
	strategyAuto        = "auto"
	strategyOne         = "one"
	strategyMirrored    = "mirrored"
	strategyMultiWorker = "multiworker"
)

// kind is the strategy that the params name, or mean by auto. Auto without devices
// and workers is strategyAuto still: the GPUs decide.
func (s StrategyParams) kind() string {
	switch {
	case s.Name != strategyAuto:
		return s.Name
	case s.Workers != "":
		return strategyMultiWorker
	case s.Devices != "":
		if d, err := strategy.ParseDevices(s.Devices); err == nil && d.Count > 1 {
			return strategyMirrored
		}
		return strategyOne
	}
	return strategyAuto
}

// addresses are the workers' addresses.
func (s StrategyParams) addresses() []string {
	var out []string
	for address := range strings.SplitSeq(s.Workers, ",") {
		if address = strings.TrimSpace(address); address != "" {
			out = append(out, address)
		}
	}
	return out
}

// validate returns an error that begins with the name of the param at fault.
func (s StrategyParams) validate() error {
	switch s.Name {
	case strategyAuto, strategyOne, strategyMirrored, strategyMultiWorker:
	default:
		return fmt.Errorf("name is %q, expected auto, one, mirrored or multiworker", s.Name)
	}
	if s.Devices != "" {
		d, err := strategy.ParseDevices(s.Devices)
		if err != nil {
			return fmt.Errorf("devices: %w", err)
		}
		if s.Name == strategyOne && d.Count > 1 {
			return fmt.Errorf("devices is %s, and strategy one has one device: use mirrored", s.Devices)
		}
	}
	seen := make(map[string]bool)
	for _, address := range s.addresses() {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" || port == "0" {
			return fmt.Errorf("workers: %q is not of the form host:port", address)
		}
		if seen[address] {
			return fmt.Errorf("workers: %s is named twice", address)
		}
		seen[address] = true
	}
	switch workers := len(seen); {
	case s.kind() == strategyMultiWorker && workers == 0:
		return fmt.Errorf("workers is empty, and strategy multiworker needs addresses, host:port,host:port, of gorbit worker processes")
	case s.kind() != strategyMultiWorker && workers > 0:
		return fmt.Errorf("workers is %s, which is for strategy multiworker", s.Workers)
	case s.kind() == strategyMultiWorker && s.Devices != "":
		return fmt.Errorf("devices is %s: workers say themselves what devices they have, by gorbit worker --devices", s.Devices)
	case s.Accumulate < 1:
		return fmt.Errorf("accumulate is %d, expected 1 or more", s.Accumulate)
	case !(s.BucketMB > 0 && s.BucketMB <= 1<<20):
		return fmt.Errorf("bucket_mb is %v, expected more than 0", s.BucketMB)
	case s.WorkerTimeout < time.Second:
		return fmt.Errorf("worker_timeout is %v, expected 1s or more", s.WorkerTimeout)
	case s.MaxRestarts < 0:
		return fmt.Errorf("max_restarts is %d, expected 0 or more", s.MaxRestarts)
	}
	return nil
}

// openModel composes the export's graph for the devices that the params say.
func (p Params) openModel(ctx context.Context, export *graphs.Export, functions strategy.Functions) (*strategy.Model, error) {
	config := p.strategy(functions)
	kind, devices := p.Strategy.kind(), strategy.Devices{Type: "GPU"}
	if p.Strategy.Devices != "" {
		devices, _ = strategy.ParseDevices(p.Strategy.Devices)
	} else if kind == strategyMirrored || kind == strategyAuto && p.Runtime.Device == "" {
		n, err := strategy.CountGPUs(config)
		if err != nil {
			return nil, err
		}
		if n < 2 && kind == strategyMirrored {
			return nil, &ParamsError{fmt.Errorf("strategy mirrored: this machine has %d GPUs; name devices with --devices, such as cpu:2", n)}
		}
		if devices.Count = n; n > 1 {
			kind = strategyMirrored
		}
	}
	if kind == strategyMirrored {
		return strategy.NewMirrored(ctx, export, devices, config)
	}
	device := p.Runtime.Device
	if device == "" && p.Strategy.Devices != "" {
		device = devices.Names()[0]
	}
	return strategy.NewOneDevice(ctx, export, device, config)
}

// lostWorker returns the error that a run can go on after in a new session, or nil.
func lostWorker(err error) error {
	if lost := (*strategy.SessionLostError)(nil); errors.As(err, &lost) {
		return lost
	}
	return nil
}

// deviceNames are the devices for people.
func deviceNames(devices []string) string {
	if len(devices) == 1 && devices[0] == "" {
		return "CPU"
	}
	return strings.Join(devices, ",")
}
