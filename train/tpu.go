package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/tpu"
)

// validateTPU returns an error that names a param that only TPUs have, or one that they do not have.
func (p Params) validateTPU() error {
	s, r := p.Strategy, p.Runtime
	if s.kind() != devices.TPU {
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
	_, err := tpu.NewResolver(s.tpuConfig(nil))
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

// tpuConfig returns the configuration of a tpu.Resolver.
func (s StrategyParams) tpuConfig(log *slog.Logger) tpu.Config {
	return tpu.Config{Name: s.TPU, Project: s.TPUProject, Zone: s.TPUZone, API: s.TPUAPI, ReadyTimeout: s.TPUReadyTimeout, WaitForNode: s.TPUWait,
		Getenv: os.Getenv, Log: log}
}

// startTPU finds the TPU and starts it. With strategy.tpu_wait it tries again until
// strategy.tpu_ready_timeout has passed: a node that was created again answers later than the API
// says that it is ready.
func (s StrategyParams) startTPU(ctx context.Context, log *slog.Logger) (*tpu.System, error) {
	start := time.Now()
	for {
		config := s.tpuConfig(log)
		config.ReadyTimeout = max(0, s.TPUReadyTimeout-time.Since(start))
		resolver, err := tpu.NewResolver(config)
		if err != nil {
			return nil, err
		}
		found, err := resolver.Resolve(ctx)
		if err != nil {
			return nil, err
		}
		system, err := tpu.Start(ctx, found, tpu.SystemConfig{Timeout: s.TPUTimeout, Log: log})
		if err == nil {
			return system, nil
		}
		pause := min(tpu.DefaultPollInterval, max(time.Second, s.TPUReadyTimeout/20))
		waited := time.Since(start)
		if !s.TPUWait || !comesBack(err) || waited+pause > s.TPUReadyTimeout {
			return nil, err
		}
		log.Info("waiting for the TPU", "error", err, "waited", waited.Round(time.Second), "timeout", s.TPUReadyTimeout)
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// comesBack reports whether a start of a TPU may succeed later. It may not where something else is.
func comesBack(err error) bool {
	system, none := (*tpu.SystemError)(nil), (*tpu.NoTPUError)(nil)
	return errors.As(err, &system) && !errors.As(err, &none)
}

// shutdownTimeout and lostShutdownTimeout limit the shutdown of a TPU: one that is in order, and one
// that was lost and may not answer.
const (
	shutdownTimeout     = 30 * time.Second
	lostShutdownTimeout = 5 * time.Second
)

// shutTPU shuts a TPU down, also after ctx has ended. lost means that it may not answer.
func shutTPU(ctx context.Context, system *tpu.System, lost bool, log *slog.Logger) {
	limit, level := shutdownTimeout, slog.LevelWarn
	if lost {
		limit, level = lostShutdownTimeout, slog.LevelDebug
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := system.Shutdown(ctx); err != nil {
		log.Log(ctx, level, "the TPU was not shut down", "error", err)
	}
}
