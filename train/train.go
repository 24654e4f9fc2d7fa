package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/cluster"
	"github.com/gorbit-ml/gorbit/internal/vfs"
	"github.com/gorbit-ml/gorbit/runner"
)

// Train trains what the params say in a run folder, and evaluates. A folder that
// holds a checkpoint is continued from it; the same params then end in the same
// variables, bit for bit, as if the run had not been stopped. It returns the last
// evaluation's outputs, nil where there was none.
//
// The error is a runner.ErrStopped where the context was cancelled: the run was
// saved within a step.
func Train(ctx context.Context, p Params, folder string, env Env) (runner.Outputs, error) {
	if err := p.Absolute(); err != nil {
		return nil, err
	}
	warnKept(p.Keep(folder), env.Log)
	if err := p.Validate(); err != nil {
		return nil, err
	}
	s, err := newSetup(p, env)
	if err != nil {
		return nil, err
	}
	t, err := newTraining(ctx, s, folder)
	if err != nil {
		return nil, err
	}
	defer t.examples.Close()
	return t.inFolder(ctx)
}

// inFolder trains in the run's folder, which no other process trains in meanwhile.
func (t *training) inFolder(ctx context.Context) (runner.Outputs, error) {
	if err := vfs.MkdirAll(t.folder, 0o755); err != nil {
		return nil, err
	}
	unlock, err := checkpoint.Lock(t.folder)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if t.manager, err = t.openManager(t.folder, false); err != nil {
		return nil, err
	}
	defer t.manager.Close()
	t.before = readPast(t.folder)
	if done, err := t.complete(ctx); done || err != nil {
		return t.before.outputs(), err
	}
	return t.run(ctx)
}

// run trains, and goes on from the last checkpoint where a worker was lost.
func (t *training) run(ctx context.Context) (runner.Outputs, error) {
	for restarts := 0; ; {
		// An attempt that finds no checkpoint begins with the first batch.
		if err := t.examples.Restore(t.start); err != nil {
			return nil, err
		}
		out, err := t.attempt(ctx)
		if err == nil || ctx.Err() != nil {
			return out, err
		}
		if left, some := t.params.Strategy.without(err); t.params.Strategy.Elastic && restarts > 0 && some && !lostWorker(err) {
			t.env.Log.Warn("going on without workers that did not come back", "error", err, "left", left.Workers)
			t.params.Strategy = left
			continue
		}
		lost := lostWorker(err)
		if lost {
			t.env.Log.Debug("the session with the workers ended", "error", err)
			err = lostCause(err)
		}
		most := t.params.Strategy.MaxRestarts
		if paused := (*cluster.PausedError)(nil); lost && most > 0 && errors.As(err, &paused) {
			t.env.Log.Warn("the chief was paused: the run goes on from its last checkpoint, and no restart is counted", "error", err)
			continue
		}
		if !lost || restarts >= most {
			if restarts > 0 {
				err = fmt.Errorf("%w; restarts so far: %d of at most %d (strategy.max_restarts)", err, restarts, most)
			}
			return nil, err
		}
		restarts++
		t.env.Log.Warn("a worker was lost: the run goes on from its last checkpoint", "error", err, "restart", restarts, "max_restarts", most)
	}
}
