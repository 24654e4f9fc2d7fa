package loop

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/runner"
)

// ErrNoBest reports that a run has no best checkpoint.
var ErrNoBest = errors.New("no best checkpoint")

// synced is a file that must be on disk before a checkpoint that refers to it.
type synced interface {
	// Sync flushes everything written so far to disk.
	Sync() error
}

// saveOptions returns the options for saving a checkpoint of a step: the logs are flushed to disk
// first, and a checkpoint that is the best so far is protected from deletion.
func (c *Checkpoints) saveOptions(step int64) []checkpoint.SaveOption {
	opts := []checkpoint.SaveOption{checkpoint.Before(func() error {
		for _, log := range c.Logs {
			if err := log.Sync(); err != nil {
				return err
			}
		}
		return nil
	})}
	if c.Best != nil {
		if _, at, ok := c.Best.Best(); ok && at == step {
			opts = append(opts, checkpoint.Protected())
		}
	}
	return opts
}

// ProtectBest protects the checkpoint of the best evaluation from deletion. The best evaluation
// comes from the restored checkpoint, because the list in the folder may be out of date after a
// kill or damage.
func (c *Checkpoints) ProtectBest() error {
	if c.Best != nil {
		var steps []int64
		if _, step, ok := c.Best.Best(); ok {
			steps = append(steps, step)
			if _, err := c.Manager.Find(step); errors.Is(err, fs.ErrNotExist) {
				c.Log.Warn("the best checkpoint so far is missing; only a better one will replace it", "step", step)
			}
		}
		if err := c.Manager.Protect(steps...); err != nil {
			return err
		}
	}
	return c.Manager.Settle()
}

// BestStep returns the step of the best checkpoint. It reads it from the state of the newest
// checkpoint or, if that is damaged, from the list of protected checkpoints in the folder, which
// is written before a checkpoint becomes visible. It returns ErrNoBest if there is none.
func BestStep(manager *checkpoint.Manager) (int64, error) {
	// A checkpoint may be deleted while it is read. Then there is a newer one.
	const races = 10
	for race := 0; ; race++ {
		newest, err := manager.Newest()
		if errors.Is(err, checkpoint.ErrNoCheckpoint) {
			return 0, ErrNoBest
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
			return 0, fmt.Errorf("it cannot be determined; name a checkpoint by its step: %w", errors.Join(err, listErr))
		}
		return protected[len(protected)-1], nil
	}
}

// bestOf returns the step of the best evaluation that a checkpoint records.
func bestOf(manager *checkpoint.Manager, c checkpoint.Checkpoint) (int64, error) {
	content, err := manager.State(c)
	if err != nil {
		return 0, err
	}
	if content == nil {
		return 0, ErrNoBest
	}
	state, err := runner.ParseRunState(content)
	if err != nil {
		return 0, fmt.Errorf("checkpoint %s: %w", c.Prefix, err)
	}
	best := runner.NewBest("", runner.HigherIsBetter)
	if err := best.Restore(state.Persistent[BestState]); err != nil {
		return 0, fmt.Errorf("checkpoint %s: best evaluation: %w", c.Prefix, err)
	}
	_, step, ok := best.Best()
	if !ok {
		return 0, ErrNoBest
	}
	return step, nil
}
