package train

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/fault"
	"github.com/gorbit-ml/gorbit/runner"
)

// errNoBest says that a run has no best checkpoint.
var errNoBest = errors.New("no best checkpoint")

// synced is a file that a checkpoint's state counts on.
type synced interface {
	// Sync brings what was written to the disk.
	Sync() error
}

// saveOptions returns what makes a checkpoint of a step hold what its state says: the
// logs reach at least as far, and the best checkpoint is kept.
func (c *Checkpoints) saveOptions(step int64) []checkpoint.SaveOption {
	opts := []checkpoint.SaveOption{checkpoint.Before(func() error {
		for _, log := range c.logs {
			if err := log.Sync(); err != nil {
				return err
			}
		}
		return nil
	})}
	if c.best != nil {
		if _, at, ok := c.best.Best(); ok && at == step {
			opts = append(opts, checkpoint.Protected())
		}
	}
	return opts
}

// protectBest keeps the checkpoint of the best evaluation that the run knows of. Its
// state is that of the checkpoint that was restored, and not the list in the folder,
// which a kill or a damage may have left behind.
func (c *Checkpoints) protectBest() error {
	if c.best != nil {
		var steps []int64
		if _, step, ok := c.best.Best(); ok {
			steps = append(steps, step)
			if _, err := c.manager.Find(step); errors.Is(err, fs.ErrNotExist) {
				c.log.Warn("the best checkpoint so far is gone: only a better one takes its place", "step", step)
			}
		}
		if err := c.manager.Protect(steps...); err != nil {
			return err
		}
	}
	return c.manager.Settle()
}

// bestStep returns the step of the best checkpoint, as the state of the newest
// checkpoint tells it. Where that is damaged the folder's list tells it, which is
// written before a checkpoint can be seen.
func bestStep(manager *checkpoint.Manager) (int64, error) {
	// A checkpoint may be deleted while it is looked at; there is a newer one then.
	const races = 10
	for race := 0; ; race++ {
		newest, err := manager.Newest()
		if errors.Is(err, checkpoint.ErrNoCheckpoint) {
			return 0, errNoBest
		}
		if err != nil {
			return 0, err
		}
		step, err := bestOf(manager, newest)
		if race < races && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !errors.Is(err, fault.Damaged) {
			return step, err
		}
		protected, listErr := manager.Protected()
		if listErr != nil || len(protected) == 0 {
			return 0, fmt.Errorf("cannot be told, name one by its step: %w", errors.Join(err, listErr))
		}
		return protected[len(protected)-1], nil
	}
}

// bestOf returns the step of the best evaluation that a checkpoint knows of.
func bestOf(manager *checkpoint.Manager, c checkpoint.Checkpoint) (int64, error) {
	content, err := manager.State(c)
	if err != nil {
		return 0, err
	}
	if content == nil {
		return 0, errNoBest
	}
	state, err := runner.ParseRunState(content)
	if err != nil {
		return 0, fmt.Errorf("checkpoint %s: %w", c.Prefix, err)
	}
	best := runner.NewBest("", runner.HigherIsBetter)
	if err := best.Restore(state.Persistent[bestState]); err != nil {
		return 0, fmt.Errorf("checkpoint %s: best evaluation: %w", c.Prefix, err)
	}
	_, step, ok := best.Best()
	if !ok {
		return 0, errNoBest
	}
	return step, nil
}
