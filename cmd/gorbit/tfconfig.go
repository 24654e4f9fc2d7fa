package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/train"
	"github.com/gorbit-ml/gorbit/train/params"
)

// trainInCluster trains as TF_CONFIG describes, if it is set: the first machine of the cluster is
// the chief and also runs a worker; the others are workers until the chief is done. It trains on
// this machine alone if TF_CONFIG is not set or names only this machine. It ignores TF_CONFIG if
// the params name other workers or another strategy. by is how the
// machines reach each other.
func trainInCluster(ctx context.Context, out io.Writer, p params.Params, run string, env train.Env, by access) error {
	value := os.Getenv("TF_CONFIG")
	if value == "" || p.Strategy.TPU != "" || p.Strategy.Name != devices.Auto && p.Strategy.Name != devices.MultiWorker {
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
	lent, err := lentDevices(p.Strategy.Devices)
	if err != nil {
		return err
	}
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
	s, err := listen(out, env, cluster.SupervisorConfig{Listen: config.Workers[config.Task], Devices: lent, Keys: by.keys, Sockets: by.sockets, Once: true}, p.Data.Dir)
	if err != nil {
		return err
	}
	if config.Task > 0 {
		return serveChief(ctx, s, config.Workers[0], p.Strategy.WorkerTimeout)
	}
	// The worker keeps running after a stop signal because saving needs it.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	group.Go(func() error { return s.Serve(serving) })
	_, err = train.Train(ctx, p, run, env)
	stop()
	return errors.Join(err, group.Wait())
}

// serveChief runs the worker for the chief of TF_CONFIG until the run is done. It returns an error
// if the chief's address does not answer within the timeout.
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
		return fmt.Errorf("%w; start the first process of TF_CONFIG there, or pass a longer --worker-timeout", err)
	}
	return err
}
