package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/internal/cluster"
	"github.com/gorbit-ml/gorbit/internal/devices"
	"github.com/gorbit-ml/gorbit/train"
)

// trainInCluster trains as TF_CONFIG says, if it is set: the first machine of the
// cluster trains, with a worker of its own beside, and the others are workers until
// that is done. Without it, with workers named otherwise, or alone in the cluster, it trains.
func trainInCluster(ctx context.Context, out io.Writer, p train.Params, run string, env train.Env) error {
	value := os.Getenv("TF_CONFIG")
	if value == "" || p.Strategy.Name != devices.Auto && p.Strategy.Name != devices.MultiWorker {
		_, err := train.Train(ctx, p, run, env)
		return err
	}
	config, err := train.ParseTFConfig(value)
	if err != nil {
		return err
	}
	if p.Strategy.Workers != "" && p.Strategy.Workers != strings.Join(config.Workers, ",") {
		_, err := train.Train(ctx, p, run, env)
		return err
	}
	lent := cmp.Or(p.Strategy.Devices, ownDevices())
	p.Strategy = config.Strategy(p.Strategy)
	if len(config.Workers) == 1 {
		_, err := train.Train(ctx, p, run, env)
		return err
	}
	if err := p.Absolute(); err != nil {
		return err
	}
	if err := p.Validate(); err != nil {
		return err
	}
	s, err := listen(out, env, cluster.SupervisorConfig{Listen: config.Workers[config.Task], Devices: lent, Once: true}, p.Data.Dir)
	if err != nil {
		return err
	}
	if config.Task > 0 {
		return serveChief(ctx, s, config.Workers[0], p.Strategy.WorkerTimeout)
	}
	// The worker outlasts a stop: saving needs it.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	group.Go(func() error { return s.Serve(serving) })
	_, err = train.Train(ctx, p, run, env)
	stop()
	return errors.Join(err, group.Wait())
}

// serveChief serves the chief of TF_CONFIG until its run is done, or nobody has answered at
// its address for the timeout.
func serveChief(ctx context.Context, s *cluster.Supervisor, chief string, timeout time.Duration) error {
	group, within := errgroup.WithContext(ctx)
	within, stop := context.WithCancel(within)
	group.Go(func() error {
		defer stop()
		return s.Serve(within)
	})
	group.Go(func() error { return s.AwaitChief(within, chief, timeout) })
	err := group.Wait()
	if none := (*cluster.NoChiefError)(nil); errors.As(err, &none) {
		return fmt.Errorf("%w; start the first process of TF_CONFIG there, or give a longer --worker-timeout", err)
	}
	return err
}
