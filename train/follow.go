package train

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strconv"
	"time"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// remotePoll is the time between two looks for a new checkpoint in a bucket.
const remotePoll = 5 * time.Second

// remoteCheckpoints are the checkpoints of a run in a bucket, which another process trains. A new one
// is copied to this machine. It implements runner.Checkpointer for an evaluator.
type remoteCheckpoints struct {
	*loop.Checkpoints        // of the last copy
	folder            string // in the bucket
	step              int64  // of the last copy; -1 before the first
	open              func(local string) (*checkpoint.Manager, error)
}

// Latest implements runner.Checkpointer. It copies the newest checkpoint, unless it was copied before.
func (c *remoteCheckpoints) Latest(ctx context.Context) (string, error) {
	newest, err := newestIn(c.folder)
	if err != nil || newest < 0 {
		return "", err
	}
	if newest == c.step {
		return c.Prefix(newest), nil
	}
	local, err := runfolder.LocalRun(ctx, c.folder, strconv.FormatInt(newest, 10))
	if err != nil {
		if now, again := newestIn(c.folder); again == nil && now != newest {
			return c.Latest(ctx) // it was deleted in the meantime
		}
		return "", err
	}
	manager, err := c.open(local)
	if err != nil {
		return "", err
	}
	if err := c.close(); err != nil {
		return "", errors.Join(err, manager.Close())
	}
	of := *c.Checkpoints
	of.Manager = manager
	c.Checkpoints, c.step = &of, newest
	return c.Checkpoints.Latest(ctx)
}

// close closes the last copy.
func (c *remoteCheckpoints) close() error {
	if c.step < 0 {
		return nil // the run's own
	}
	return c.Manager.Close()
}

// AwaitCheckpoint waits until a run, here or in a bucket, has a checkpoint of a later step than the one
// after which to look, which is -1 for the first, and returns the step of its newest. It returns after
// itself if there is none within the timeout; 0 means no limit.
func AwaitCheckpoint(ctx context.Context, folder string, after int64, timeout time.Duration) (int64, error) {
	poll := time.Second
	if vfs.Scheme(folder) != "" {
		poll = remotePoll
	}
	var late <-chan time.Time
	if timeout > 0 {
		late = time.After(timeout)
	}
	for {
		newest, err := newestIn(folder)
		if err != nil || newest > after {
			return max(newest, after), err
		}
		select {
		case <-ctx.Done():
			return after, context.Cause(ctx)
		case <-late:
			return after, nil
		case <-time.After(poll):
		}
	}
}

// newestIn returns the step of the newest checkpoint of a run, and -1 if there is none. The
// index of a checkpoint is written last.
func newestIn(folder string) (int64, error) {
	checkpoints := vfs.Join(folder, runfolder.Checkpoints)
	entries, err := vfs.ReadDir(checkpoints)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	newest := int64(-1)
	for _, e := range entries {
		if _, step, ok := runfolder.StepIn(e.Name()); ok && path.Ext(e.Name()) == ".index" {
			newest = max(newest, step)
		}
	}
	return newest, err
}
