package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
)

// MetricsLog writes one JSON line per loop and evaluation, without times. Every checkpoint saves
// its length, and a resumed run truncates the file to it, so that the file ends up the same as
// that of a run that was never stopped. A file that is removed while the run trains is made anew.
type MetricsLog struct {
	path string
	log  *slog.Logger

	mu   sync.Mutex
	file vfs.WorkFile
	gone []vfs.WorkFile // files that were removed while the run trained
	size int64
	err  error // error of a failed write
}

// OpenMetrics opens the file of metrics at a path, which may not exist yet.
func OpenMetrics(path string, log *slog.Logger) (*MetricsLog, error) {
	f, err := vfs.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := vfs.SyncDir(filepath.Dir(path)); err != nil {
		f.Close()
		return nil, err
	}
	return &MetricsLog{path: path, file: f, log: log}, nil
}

// Sync flushes the lines to disk. It may be called while other lines are written. It returns the
// error of an earlier write, so that no checkpoint is saved after a lost line.
func (m *MetricsLog) Sync() error {
	m.mu.Lock()
	if m.err == nil {
		m.err = m.mend()
	}
	err, file := m.err, m.file
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return file.Sync()
}

// mend makes the file anew if it was removed or replaced, and goes back to the last complete line if it was
// cut. The caller holds mu.
func (m *MetricsLog) mend() error {
	own, err := m.file.Stat()
	if err == nil && own.Size() < m.size {
		err = m.keep(own.Size(), "lines were removed from the metrics file while the run trained; it continues after the last complete line")
	}
	if err != nil {
		return err
	}
	there, err := vfs.Stat(m.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(there, own) {
		return m.remake()
	}
	return nil // that the name cannot be looked up now is no error of the lines
}

// remake writes the lines of a file that has lost its name, which is still open, to a new one.
func (m *MetricsLog) remake() error {
	lines := make([]byte, m.size)
	if _, err := m.file.ReadAt(lines, 0); err != nil && err != io.EOF {
		return err
	}
	if err := vfs.ReplaceFile(m.path, lines); err != nil {
		return fmt.Errorf("%s was removed while the run trained, and cannot be made anew: %w", m.path, err)
	}
	f, err := vfs.OpenFile(m.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	m.gone, m.file = append(m.gone, m.file), f
	m.log.Warn("the metrics file was removed while the run trained; it is made anew, with its lines", "file", m.path, "bytes", m.size)
	return nil
}

// Action returns a runner.Action that logs the outputs of a phase.
func (m *MetricsLog) Action(phase string) runner.Action {
	return func(_ context.Context, step int64, out runner.Outputs) error {
		if len(out) == 0 {
			return nil
		}
		line, err := metricsLine(phase, step, out)
		if err != nil {
			return err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.err == nil {
			m.err = m.mend()
		}
		if m.err != nil {
			return m.err
		}
		n, err := m.file.WriteAt(line, m.size)
		if err != nil {
			m.err = err
			return err
		}
		m.size += int64(n)
		return nil
	}
}

// metricsLine returns the line of a phase's outputs.
func metricsLine(phase string, step int64, out runner.Outputs) ([]byte, error) {
	values := make(map[string]any, len(out))
	for name, v := range out {
		values[name] = v
		if math.IsNaN(v) || math.IsInf(v, 0) {
			values[name] = fmt.Sprint(v) // JSON cannot represent it as a number
		}
	}
	line, err := json.Marshal(struct {
		Phase   string         `json:"phase"`
		Step    int64          `json:"step"`
		Outputs map[string]any `json:"outputs"`
	}{phase, step, values})
	return runfolder.SumLine(line), err
}

// State implements runner.Persistent: the length of the file.
func (m *MetricsLog) State() (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return json.Marshal(m.size)
}

// Restore implements runner.Persistent.
func (m *MetricsLog) Restore(raw json.RawMessage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.size = 0
	if raw != nil {
		if err := json.Unmarshal(raw, &m.size); err != nil {
			return err
		}
		m.size = max(m.size, 0)
	}
	info, err := m.file.Stat()
	if err != nil {
		return err
	}
	if err := m.keep(info.Size(), "the metrics file lacks lines that the checkpoint refers to; the run continues after the last complete line"); err != nil {
		return err
	}
	read := runfolder.NewLog()
	if err := read.Follow(filepath.Dir(m.path)); err != nil {
		return err
	}
	if damaged := read.Problem(); damaged != "" {
		m.log.Warn("the metrics file is damaged; the run continues, and the line stays as it is", "file", m.path, "damage", damaged)
	}
	return nil
}

// keep cuts a file of the given size to what was written of it, and to whole lines. If lines are missing, it
// says so in the given sentence.
func (m *MetricsLog) keep(end int64, missing string) error {
	size, err := m.lastLine(min(m.size, end))
	if err != nil {
		return err
	}
	if size != m.size {
		m.log.Warn(missing, "file", m.path, "bytes", end, "expected_bytes", m.size, "kept_bytes", size)
	}
	m.size = size
	return m.file.Truncate(m.size)
}

// lastLine returns the offset of the end of the last complete line in the first size bytes.
func (m *MetricsLog) lastLine(size int64) (int64, error) {
	buf := make([]byte, 4096)
	for size > 0 {
		from := max(0, size-int64(len(buf)))
		n, err := m.file.ReadAt(buf[:size-from], from)
		if err != nil && err != io.EOF {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		size = from
	}
	return 0, nil
}

// Close closes the file.
func (m *MetricsLog) Close() error {
	var err error
	for _, f := range append(m.gone, m.file) {
		err = errors.Join(err, f.Close())
	}
	return err
}
