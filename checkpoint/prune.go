package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// pruneName is the file that lists the checkpoints about to be deleted. The state file no
// longer names them, and without the list they would look like checkpoints kept for good.
const pruneName = tempPrefix + "pruned.json"

func (m *Manager) prunePath() string { return filepath.Join(m.cfg.Dir, pruneName) }

// announce writes the list of the checkpoints about to be deleted. The name of the file
// becomes durable together with the state file.
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
	return vfs.WriteFile(m.prunePath(), data)
}

// withdraw removes the list once all its checkpoints are deleted.
func (m *Manager) withdraw() {
	if err := vfs.Remove(m.prunePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("cannot remove the list of deleted checkpoints; the next start removes it", "error", err)
	}
}

// prune deletes the checkpoints that a killed process was about to delete, unless the
// state file still names them.
func (m *Manager) prune() error {
	data, err := vfs.ReadFile(m.prunePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var steps []int64
	if err := json.Unmarshal(data, &steps); err != nil {
		steps = nil // the process was killed while it wrote the list, and deleted nothing
	}
	for _, step := range steps {
		if slices.ContainsFunc(m.tracked, func(c Checkpoint) bool { return c.Step == step }) || slices.Contains(m.protected, step) {
			continue
		}
		c := Checkpoint{Step: step, Prefix: m.prefix(step)}
		m.log.Info("deleting a checkpoint that a killed process was about to delete", "checkpoint", c.Prefix)
		if err := m.delete(c); err != nil {
			return err
		}
	}
	m.withdraw()
	return nil
}

// Settle completes a save that was killed after its checkpoint became visible: it updates
// the state file and deletes the checkpoints that are no longer kept. It is called once
// the protected checkpoints are known. Each save does the same.
func (m *Manager) Settle() error {
	m.folder.Lock()
	defer m.folder.Unlock()
	if m.settled || m.cfg.ReadOnly || len(m.tracked) == 0 {
		return nil
	}
	m.settled = true
	return m.sweep()
}
