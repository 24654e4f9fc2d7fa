package study

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gorbit-ml/gorbit/internal/app/tune"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Journal is the file of a study's journal. Python's optuna may write to it at the same time: the
// two exclude each other by the lock of Optuna's JournalFileSymlinkLock.
type Journal struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	study  *tune.Study
	offset int64 // of what study has applied
}

// OpenJournal opens the journal of a study's folder and reads it. A folder without one has an empty
// study, which will have the folder's name.
func OpenJournal(ctx context.Context, folder string, log *slog.Logger) (*Journal, error) {
	abs, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	j := &Journal{path: filepath.Join(folder, JournalFile), log: log, study: tune.NewStudy(filepath.Base(abs))}
	if _, err := os.Stat(j.path); errors.Is(err, fs.ErrNotExist) {
		return j, nil // a command that is refused leaves nothing
	}
	return j, j.Update(ctx, func(*tune.Study) ([]tune.Op, error) { return nil, nil })
}

// View calls a function with the study. The function must not keep it.
func (j *Journal) View(look func(*tune.Study)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	look(j.study)
}

// Update brings the study up to date with the file, and appends the operations that a function
// returns. They are on the disk, and applied to the study, when Update returns.
func (j *Journal) Update(ctx context.Context, change func(*tune.Study) ([]tune.Op, error)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := vfs.MkdirAll(filepath.Dir(j.path), 0o755); err != nil {
		return err
	}
	unlock, err := j.lock(ctx)
	if err != nil {
		return err
	}
	err = j.update(change)
	return errors.Join(err, unlock())
}

func (j *Journal) update(change func(*tune.Study) ([]tune.Op, error)) error {
	f, err := vfs.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := j.read(f); err != nil {
		return err
	}
	ops, err := change(j.study)
	if err != nil || len(ops) == 0 {
		return err
	}
	lines := append(bytes.Join(lines(ops), []byte{'\n'}), '\n')
	if _, err := f.WriteAt(lines, j.offset); err != nil {
		return errors.Join(err, f.Truncate(j.offset))
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if j.offset == 0 {
		if err := vfs.SyncDir(filepath.Dir(j.path)); err != nil {
			return err
		}
	}
	return j.apply(lines)
}

func lines(ops []tune.Op) [][]byte {
	out := make([][]byte, len(ops))
	for i, op := range ops {
		out[i] = op
	}
	return out
}

// read applies what others have appended. A last line without its end is what a process left that was
// killed, since this one has the lock; it is cut off, because Optuna would write on in that line.
func (j *Journal) read(f vfs.WorkFile) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < j.offset {
		return fault.Damagedf("%s has %d bytes and had %d before; expected it to grow only", j.path, info.Size(), j.offset)
	}
	if info.Size() > maxJournal {
		return fault.Damagedf("%s has %d bytes; expected at most %d", j.path, info.Size(), maxJournal)
	}
	rest := make([]byte, info.Size()-j.offset)
	if _, err := f.ReadAt(rest, j.offset); err != nil && len(rest) > 0 {
		return err
	}
	whole := rest[:bytes.LastIndexByte(rest, '\n')+1]
	if len(whole) < len(rest) {
		j.log.Warn("the last line of the journal is not whole, as a process was killed while it wrote it; it is left out", "file", j.path, "bytes", len(rest)-len(whole))
		if err := f.Truncate(j.offset + int64(len(whole))); err != nil {
			return err
		}
	}
	return j.apply(whole)
}

// maxJournal is the most bytes of a journal. A trial has a few thousand.
const maxJournal = 1 << 30

// apply applies whole lines.
func (j *Journal) apply(text []byte) error {
	for line := range bytes.Lines(text) {
		if err := j.study.Apply(line); err != nil {
			return fault.Damagedf("%s: %w", j.path, err)
		}
		j.offset += int64(len(line))
	}
	return nil
}

// stale is the time after which a lock that stays the same is taken to be that of a process which was
// killed, as in Optuna.
const stale = 30 * time.Second

// lock takes the lock of Optuna's JournalFileSymlinkLock: a symbolic link next to the journal.
func (j *Journal) lock(ctx context.Context) (unlock func() error, err error) {
	link := j.path + ".lock"
	var seen time.Time // of the lock that is there
	var since time.Time
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := os.Symlink(filepath.Base(j.path), link)
		if err == nil {
			return func() error { return os.Remove(link) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("lock of %s: %w", j.path, err)
		}
		info, err := os.Lstat(link)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case !info.ModTime().Equal(seen):
			seen, since = info.ModTime(), time.Now()
		case time.Since(since) > stale:
			j.log.Warn("removing the lock of a process that does not give it back", "file", link)
			if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}
