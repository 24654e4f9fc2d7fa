package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/vfs"
)

// saveOptions are what a save does besides.
type saveOptions struct {
	protect bool
	before  func() error
}

// SaveOption is a setting of one [Manager.Save].
type SaveOption func(*saveOptions)

// Protected makes the new checkpoint the protected one, in place of those that were,
// at the moment when it becomes visible: whenever the process is killed, the newest
// protected step whose checkpoint is there is the right one.
func Protected() SaveOption { return func(o *saveOptions) { o.protect = true } }

// Before names a function that is called, in the background, before the checkpoint
// becomes visible: it makes durable what the checkpoint's state counts on, such as the
// file of a log whose length the state holds. If it fails, so does the save.
func Before(sync func() error) SaveOption { return func(o *saveOptions) { o.before = sync } }

// prepare does what must be durable before the checkpoint of a step becomes visible.
func (m *Manager) prepare(step int64, how saveOptions) error {
	if how.before != nil {
		if err := how.before(); err != nil {
			return err
		}
	}
	if !how.protect {
		return nil
	}
	// Both are listed until the new one is visible: a kill may leave only the old one.
	m.folder.Lock()
	defer m.folder.Unlock()
	return m.protect(append(slices.Clone(m.protected), step))
}

// Protect keeps the checkpoints of the given steps whatever their number, such as
// the best so far, and gives up those protected before. The list outlives the process.
func (m *Manager) Protect(steps ...int64) error {
	if m.cfg.ReadOnly {
		return fmt.Errorf("protect checkpoints of %s: the folder was opened for reading only", m.cfg.Dir)
	}
	m.folder.Lock()
	defer m.folder.Unlock()
	return m.protect(steps)
}

// protect is Protect for a caller who holds folder.
func (m *Manager) protect(steps []int64) error {
	steps = slices.Clone(steps)
	slices.Sort(steps)
	steps = slices.Compact(steps)
	if slices.Equal(steps, m.protected) && !m.unlisted {
		return nil
	}
	if steps == nil {
		steps = []int64{}
	}
	data, err := json.Marshal(steps)
	if err == nil {
		err = m.replaceFile(protectedName, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("protect checkpoints of %s: %w", m.cfg.Dir, err)
	}
	m.protected, m.unlisted = steps, false
	return nil
}

// Protected lists the protected steps in ascending order. A folder that was opened for
// reading only is looked at anew, for another process may change the list. A damaged
// list is a [CorruptError].
func (m *Manager) Protected() ([]int64, error) {
	m.folder.Lock()
	defer m.folder.Unlock()
	if m.cfg.ReadOnly {
		return m.readProtected()
	}
	return slices.Clone(m.protected), nil
}

// readProtected reads the list of protected steps.
func (m *Manager) readProtected() ([]int64, error) {
	path := filepath.Join(m.cfg.Dir, protectedName)
	data, err := vfs.ReadFile(m.fs, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var steps []int64
	if err := json.Unmarshal(data, &steps); err != nil {
		return nil, &CorruptError{Path: path, Offset: -1, Reason: fmt.Sprintf("the list of protected checkpoints is damaged: %v", err)}
	}
	slices.Sort(steps)
	return steps, nil
}

// loadProtected reads the list for a manager that writes. A damaged list is taken as
// empty, which costs a checkpoint that would have been kept, not the run, and whoever
// knows better calls Protect before the next save.
func (m *Manager) loadProtected() error {
	steps, err := m.readProtected()
	if corrupt := (*CorruptError)(nil); errors.As(err, &corrupt) {
		m.log.Warn("the list of protected checkpoints is damaged", "error", err)
		m.unlisted = true
		return nil
	}
	m.protected = steps
	return err
}
