package prepare

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gorbit-ml/gorbit/tpu"
	"github.com/gorbit-ml/gorbit/train/params"
)

// StartTPU finds the TPU and starts it. With strategy.tpu_wait it tries again until
// strategy.tpu_ready_timeout has passed: a node that was created again answers later than the API
// says that it is ready.
func StartTPU(ctx context.Context, s params.Strategy, log *slog.Logger) (*tpu.System, error) {
	start := time.Now()
	for {
		config := s.TPUConfig(log)
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

// shutdownTimeout and LostShutdownTimeout limit the shutdown of a TPU: one that is in order, and one
// that was lost and may not answer.
const (
	shutdownTimeout     = 30 * time.Second
	LostShutdownTimeout = 5 * time.Second
)

// ShutTPU shuts a TPU down, also after ctx has ended. lost means that it may not answer.
func ShutTPU(ctx context.Context, system *tpu.System, lost bool, log *slog.Logger) {
	limit, level := shutdownTimeout, slog.LevelWarn
	if lost {
		limit, level = LostShutdownTimeout, slog.LevelDebug
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := system.Shutdown(ctx); err != nil {
		log.Log(ctx, level, "the TPU was not shut down", "error", err)
	}
}
