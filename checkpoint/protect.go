package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/stream"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// saveOptions are the options of a save.
type saveOptions struct {
	protect bool
	before  func() error
	frozen  []string
}

// SaveOption is a setting of one [Manager.Save].
type SaveOption func(*saveOptions)

// Protected makes the new checkpoint the only protected one at the moment when it becomes
// visible. Whenever the process is killed, the newest protected step that has a
// checkpoint is the right one.
func Protected() SaveOption { return func(o *saveOptions) { o.protect = true } }

// Before sets a function that is called in the background before the checkpoint becomes
// visible. It makes durable what the checkpoint's state relies on, such as a log file
// whose length is in the state. If it fails, so does the save.
func Before(sync func() error) SaveOption { return func(o *saveOptions) { o.before = sync } }

// prepare makes durable what must be so before the checkpoint of a step becomes visible.
func (m *Manager) prepare(step int64, how saveOptions) error {
	if how.before != nil {
		if err := how.before(); err != nil {
			return err
		}
	}
	if !how.protect {
		return nil
	}
	// List both until the new one is visible, because a kill may leave only the old one.
	m.folder.Lock()
	defer m.folder.Unlock()
	return m.protect(append(slices.Clone(m.protected), step))
}

// Protect keeps the checkpoints of the given steps, such as the best so far, in addition
// to those kept by number, and no longer those protected before. The list is stored in
// the folder.
func (m *Manager) Protect(steps ...int64) error {
	if m.cfg.ReadOnly {
		return fmt.Errorf("protect checkpoints of %s: the folder was opened for reading only", m.cfg.Dir)
	}
	m.folder.Lock()
	defer m.folder.Unlock()
	return m.protect(steps)
}

// protect is Protect for a caller that holds folder.
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

// Protected lists the protected steps in ascending order. In a read-only folder it reads
// the list again, because another process may change it. For a damaged list the error is
// a [CorruptError].
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
	data, err := vfs.ReadFile(path)
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

// loadProtected reads the list for a manager that writes. A damaged list counts as empty,
// which may lose a protected checkpoint but not the run. A caller that knows the steps
// calls Protect before the next save.
func (m *Manager) loadProtected() error {
	steps, err := m.readProtected()
	if corrupt := (*CorruptError)(nil); errors.As(err, &corrupt) {
		m.log.Warn("the list of protected checkpoints is damaged", "error", err)
		m.unlisted = true
		return nil
	}
	if wrong := (*stream.FileError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("%w; remove it and type the same command again: the run rewrites the list", err)
	}
	m.protected = steps
	return err
}
