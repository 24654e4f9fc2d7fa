package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/vfs"
)

// pruneName is the file that lists the checkpoints that are about to be deleted. The state
// file does not name them any more, and without the list they would look like checkpoints
// that are kept for good.
const pruneName = tempPrefix + "pruned.json"

func (m *Manager) prunePath() string { return filepath.Join(m.cfg.Dir, pruneName) }

// announce writes down which checkpoints are about to be deleted. The name of the file
// lasts once the state file does.
func (m *Manager) announce(gone []Checkpoint) error {
	if len(gone) == 0 {
		return nil
	}
	steps := make([]int64, len(gone))
	for i, c := range gone {
		steps[i] = c.Step
	}
	data, err := json.Marshal(steps)
	if err != nil {
		return err
	}
	return vfs.WriteFile(m.fs, m.prunePath(), data)
}

// withdraw removes the list: all of it is deleted.
func (m *Manager) withdraw() {
	if err := m.fs.Remove(m.prunePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("the list of deleted checkpoints could not be removed; the next start removes it", "error", err)
	}
}

// prune deletes the checkpoints that a killed process was about to delete, unless the
// state file still names them.
func (m *Manager) prune() error {
	data, err := vfs.ReadFile(m.fs, m.prunePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var steps []int64
	if err := json.Unmarshal(data, &steps); err != nil {
		steps = nil // it was killed while it wrote the list, and deleted nothing
	}
	for _, step := range steps {
		if slices.ContainsFunc(m.tracked, func(c Checkpoint) bool { return c.Step == step }) || slices.Contains(m.protected, step) {
			continue
		}
		c := Checkpoint{Step: step, Prefix: m.prefix(step)}
		m.log.Info("delete the checkpoint that a killed process was about to delete", "checkpoint", c.Prefix)
		if err := m.delete(c); err != nil {
			return err
		}
	}
	m.withdraw()
	return nil
}

// Settle brings a folder in order that a killed process left between a checkpoint and what
// comes with it: the state file names the newest checkpoints, and those that are too many
// are deleted. It is called once the protected checkpoints are known; a save does it, too.
func (m *Manager) Settle() error {
	m.folder.Lock()
	defer m.folder.Unlock()
	if m.settled || m.cfg.ReadOnly || len(m.tracked) == 0 {
		return nil
	}
	m.settled = true
	return m.sweep()
}
