package job

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/fleet"
	"github.com/gorbit-ml/gorbit/strategy"
)

func TestStrategyParams(t *testing.T) {
	for _, test := range []struct{ settings, want string }{
		{"", "auto"},
		{"strategy.devices=cpu", "one"},
		{"strategy.devices=cpu:2", "mirrored"},
		{"strategy.devices=gpu", "auto"}, // as many as there are
		{"strategy.workers='a:1, b:2'", "multiworker"},
		{"strategy.name=mirrored strategy.devices=cpu", "mirrored"},
		{"strategy.name=many", `name is "many", expected auto, one, mirrored or multiworker`},
		{"strategy.devices=cpu:0", `devices: devices "cpu:0": "0" is not a number from 1 to 1024`},
		{"strategy.name=one strategy.devices=cpu:2", "devices is cpu:2, and strategy one has one device: use mirrored"},
		{"strategy.name=multiworker", "workers is empty, and strategy multiworker needs addresses, host:port,host:port, of gorbit worker processes"},
		{"strategy.name=one strategy.workers=a:1", "workers is a:1, which is for strategy multiworker"},
		{"strategy.workers=a:1 strategy.devices=cpu:2", "devices is cpu:2: workers say themselves what devices they have, by gorbit worker --devices"},
		{"strategy.workers=a", `workers: "a" is not of the form host:port`},
		{"strategy.workers='a:1,a:1'", "workers: a:1 is named twice"},
		{"strategy.input=local strategy.workers='a:1,b:2'", "multiworker"},
		{"strategy.input=remote", `input is "remote", expected chief or local`},
		{"strategy.input=local", "input is local, which is for strategy multiworker: one process reads its data itself"},
		{"strategy.accumulate=0", "accumulate is 0, expected 1 or more"},
		{"strategy.bucket_mb=0", "bucket_mb is 0, expected more than 0"},
		{"strategy.worker_timeout=10ms", "worker_timeout is 10ms, expected 1s or more"},
		{"strategy.max_restarts=-1", "max_restarts is -1, expected 0 or more"},
	} {
		p := Defaults()
		for _, setting := range strings.Split(strings.ReplaceAll(test.settings, ", ", ","), " ") {
			if setting == "" {
				continue
			}
			if err := p.Set(setting); err != nil {
				t.Fatal(err)
			}
		}
		got := p.Strategy.kind()
		if err := p.Strategy.validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s\n is %s\nwant %s", test.settings, got, test.want)
		}
	}
}

func TestLostWorker(t *testing.T) {
	worker := func(address string, phase fleet.Phase) error {
		return fmt.Errorf("step 3: %w", &fleet.WorkerError{Address: address, Phase: phase, Err: errors.New("gone")})
	}
	for _, test := range []struct {
		err  error
		lost bool
		left string // without what did not come back
	}{
		{worker("a:1", fleet.PhaseRun), true, "b:2"},
		{worker("a:1", fleet.PhaseStart), true, "b:2"},
		{worker("a:1", fleet.PhaseConnect), false, "b:2"},
		{worker("b:2", fleet.PhaseGreet), false, "a:1"},
		{errors.Join(worker("a:1", fleet.PhaseConnect), worker("b:2", fleet.PhaseConnect)), false, ""},
		{fmt.Errorf("step 3: %w", &strategy.SessionLostError{Err: errors.New("reset")}), true, ""},
		{errors.New("disk full"), false, ""},
	} {
		if got := lostWorker(test.err); got != test.lost {
			t.Errorf("%v: lost is %v", test.err, got)
		}
		left, some := StrategyParams{Workers: "a:1,b:2"}.without(test.err)
		if !some {
			left.Workers = ""
		}
		if left.Workers != test.left {
			t.Errorf("%v: %q are left, want %q", test.err, left.Workers, test.left)
		}
	}
}

func TestDeviceIsForOne(t *testing.T) {
	for settings, fine := range map[string]bool{
		"runtime.device=/device:CPU:0":                        true,
		"strategy.name=one runtime.device=/device:CPU:0":      true,
		"strategy.devices=cpu:2 runtime.device=/device:CPU:0": false,
		"strategy.devices=cpu runtime.device=/device:CPU:0":   false,
		"strategy.workers=a:1 runtime.device=/device:CPU:0":   false,
		"strategy.name=mirrored runtime.device=/device:CPU:0": false,
	} {
		p := Defaults()
		p.Graph, p.Data.Dir = "g", "d"
		for setting := range strings.SplitSeq(settings, " ") {
			if err := p.Set(setting); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Validate(); (err == nil) != fine {
			t.Errorf("%s: %v", settings, err)
		}
	}
}
