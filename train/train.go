package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/made"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/record"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Train trains and evaluates in a run folder as the params describe. If the folder holds a
// checkpoint, the run continues from it; with the same params it ends with the same variables, bit
// for bit, as if it had not been stopped. Train returns the outputs of the last evaluation, or nil
// if there was none.
//
// The folder may be in a bucket, gs://BUCKET/FOLDER; then the run has a lease on it.
//
// If the context is cancelled, Train saves the run within a step, or within a call of several, and
// returns runner.ErrStopped.
func Train(ctx context.Context, p params.Params, folder string, env Env) (runner.Outputs, error) {
	env = env.withDefaults()
	if err := p.Absolute(); err != nil {
		return nil, err
	}
	remote, err := vfs.RemoteOf(folder)
	if err != nil {
		return nil, &params.Error{Err: fmt.Errorf("run: %w", err)}
	}
	if env.Overwrite && env.ResumeFrom != "" {
		return nil, &params.Error{Err: fmt.Errorf("--overwrite and --resume-from %s exclude each other; expected one of them", env.ResumeFrom)}
	}
	if err := made.Room(folder, made.Run, env.Overwrite); errors.Is(err, fault.Usage) {
		return nil, &params.Error{Err: err}
	} else if err != nil {
		return nil, err
	}
	if remote != nil {
		return trainRemote(ctx, remote, p, folder, env)
	}
	opened, before, begun := time.Now(), record.MemoryNow(), false
	if !env.Overwrite {
		earlier := vfs.Join(Origin(folder, env.ResumeFrom), runfolder.Params)
		begun = prepare.Exists(earlier)
		warnKept(p.Keep(earlier), env.Log)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	graph, err := runfolder.GraphToTrain(p, folder, env.Log)
	if err != nil {
		return nil, err
	}
	s, err := prepare.Of(ctx, p, graph, env.prepare())
	if err != nil {
		return nil, err
	}
	if !begun {
		s.ChooseJPEG()
	}
	t, err := newTraining(ctx, s, folder, env)
	if err != nil {
		return nil, err
	}
	defer t.examples.Close()
	t.journal.opened, t.journal.memory = opened, before
	return t.inFolder(ctx)
}

// trainRemote trains in a run folder in a bucket. It works in a local folder, of which the bucket
// has at any time what a disk would have after a power failure.
func trainRemote(ctx context.Context, remote vfs.Remote, p params.Params, folder string, env Env) (out runner.Outputs, err error) {
	work, err := remote.Work(ctx, folder, env.Log)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	env.Log.Info("run in a bucket", "folder", folder, "local", work.Dir())
	env.remote = vfs.Clean(folder)
	env.Out = runfolder.Rename(env.Out, work.Dir(), env.remote)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(work.Context(), func() { cancel(context.Cause(work.Context())) })()
	out, err = Train(ctx, p, work.Dir(), env)
	if lost := context.Cause(work.Context()); lost != nil {
		_ = work.Close() // nothing may be written any more
		return out, fmt.Errorf("run: %w", lost)
	}
	if closeErr := work.Close(); closeErr != nil {
		// Not stopped after saving: the last of it may be missing.
		return out, fmt.Errorf("run: upload to %s: %w", folder, errors.Join(closeErr, err))
	}
	return out, err
}

// inFolder trains in the run's folder. It holds a lock so that no other process trains there.
func (t *training) inFolder(ctx context.Context) (out runner.Outputs, err error) {
	_, before := vfs.Stat(t.folder)
	if err := vfs.MkdirAll(t.folder, 0o755); errors.Is(err, syscall.ENOTDIR) {
		return nil, &params.Error{Err: fmt.Errorf("%s is a file, or is below one; expected the folder of the run, or the name of a new one", t.name())}
	} else if err != nil {
		return nil, err
	}
	unlock, err := checkpoint.Lock(t.folder)
	if errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
		return t.inReadOnly(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	defer func() {
		if err != nil && errors.Is(before, fs.ErrNotExist) && t.env.remote == "" {
			removeUnused(t.folder)
		}
	}()
	if t.manager, err = t.OpenManager(t.folder, false); err != nil {
		return nil, err
	}
	defer t.manager.Close()
	if err := t.atStart(ctx); err != nil {
		return nil, err
	}
	t.before = readPast(t.folder, t.Export.Contract)
	if done, err := t.complete(ctx); err != nil {
		return t.before.outputs(), err
	} else if done {
		return t.before.outputs(), t.endBack()
	}
	if err := t.keepsParams(); err != nil {
		return t.before.outputs(), err
	}
	out, err = t.run(ctx)
	if err == nil || errors.Is(err, runner.ErrStopped) {
		if failed := t.endBack(); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	t.journalEnd(ctx, err)
	if now := readPast(t.folder, t.Export.Contract); now != nil {
		t.tellTrainerState(now.state)
	}
	t.tellEnd(err)
	return out, err
}

// inReadOnly ends the training of a run that is complete and whose folder cannot be written to. For any
// other run, cannotWrite is the error.
func (t *training) inReadOnly(ctx context.Context, cannotWrite error) (out runner.Outputs, err error) {
	if t.env.Overwrite || t.env.ResumeFrom != "" && t.env.ResumeFrom != params.Latest {
		return nil, cannotWrite
	}
	if t.manager, err = t.OpenManager(t.folder, true); err != nil {
		return nil, err
	}
	defer t.manager.Close()
	t.readOnly = true
	t.before = readPast(t.folder, t.Export.Contract)
	done, err := t.complete(ctx)
	if err == nil && !done {
		err = cannotWrite
	}
	return t.before.outputs(), err
}

// removeUnused removes the folder of a run that failed before it wrote anything. The caller holds its lock.
func removeUnused(folder string) {
	checkpoints := vfs.Join(folder, runfolder.Checkpoints)
	_ = vfs.Remove(checkpoints) // fails if it has any
	if left, err := vfs.ReadDir(folder); err == nil && len(left) == 1 && left[0].Name() == checkpoint.LockName {
		_ = vfs.Remove(vfs.Join(folder, checkpoint.LockName))
		_ = vfs.Remove(folder)
	}
}

// afterNonFinite says what to try after a loss or gradient that is not finite.
func afterNonFinite(p params.Params) string {
	if p.Train.OnNonFinite == "fail" {
		return "lower --learning-rate, or continue without such batches with --set train.on_non_finite=skip (or rollback)"
	}
	return "lower --learning-rate, or raise --set train.max_non_finite"
}

// run trains. If a worker is lost, it continues from the last checkpoint.
func (t *training) run(ctx context.Context) (runner.Outputs, error) {
	for restarts := 0; ; {
		// An attempt without a checkpoint starts with the first batch.
		if err := t.examples.Restore(t.start); err != nil {
			return nil, err
		}
		out, err := t.attempt(ctx)
		if err == nil || ctx.Err() != nil {
			return out, err
		}
		if left, some := prepare.WithoutWorkers(t.Params.Strategy, err); t.Params.Strategy.Elastic && restarts > 0 && some && !prepare.LostWorker(err) {
			t.env.Log.Warn("continuing without workers that did not come back", "error", err, "left", left.Workers)
			t.Params.Strategy = left
			continue
		}
		lost := prepare.LostWorker(err)
		if lost {
			t.env.Log.Debug("the session with the workers ended", "error", err)
			err = prepare.LostCause(err)
		}
		most := t.Params.Strategy.MaxRestarts
		if paused := (*cluster.PausedError)(nil); lost && most > 0 && errors.As(err, &paused) {
			t.env.Log.Warn("the chief was paused; continuing from the last checkpoint, without counting a restart", "error", err)
			continue
		}
		if nonFinite := (*runner.NonFiniteError)(nil); errors.As(err, &nonFinite) {
			return nil, fmt.Errorf("%w; %s", err, afterNonFinite(t.Params))
		}
		if other := (*dataset.StateError)(nil); errors.As(err, &other) && !other.Invalid {
			return nil, fmt.Errorf("%w; %s", err, anotherFolder)
		}
		if !lost || restarts >= most {
			if restarts > 0 {
				err = fmt.Errorf("%w; restarts so far: %d of at most %d (--max-restarts)", err, restarts, most)
			}
			return nil, err
		}
		restarts++
		what := "a worker was lost; continuing from the last checkpoint"
		if prepare.LostTPU(err) {
			what = "the TPU was lost; starting it again and continuing from the last checkpoint"
		}
		t.env.Log.Warn(what, "error", err, "restart", restarts, "max_restarts", most)
	}
}
