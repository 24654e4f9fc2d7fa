package record

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/runner"
)

// MetricsLog writes one JSON line per loop and evaluation, without times. Every checkpoint saves
// its length, and a resumed run truncates the file to it, so that the file ends up the same as
// that of a run that was never stopped.
type MetricsLog struct {
	file vfs.WorkFile
	size int64
	mu   sync.Mutex
	err  error // error of a failed write
	log  *slog.Logger
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
	return &MetricsLog{file: f, log: log}, nil
}

// Sync flushes the lines to disk. It may be called while other lines are written. It returns the
// error of an earlier write, so that no checkpoint is saved after a lost line.
func (m *MetricsLog) Sync() error {
	m.mu.Lock()
	err := m.err
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return m.file.Sync()
}

// Action returns a runner.Action that logs the outputs of a phase.
func (m *MetricsLog) Action(phase string) runner.Action {
	return func(_ context.Context, step int64, out runner.Outputs) error {
		if len(out) == 0 {
			return nil
		}
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
		if err != nil {
			return err
		}
		n, err := m.file.WriteAt(append(line, '\n'), m.size)
		if err != nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.err = err
			return err
		}
		m.size += int64(n)
		return nil
	}
}

// State implements runner.Persistent: the length of the file.
func (m *MetricsLog) State() (json.RawMessage, error) { return json.Marshal(m.size) }

// Restore implements runner.Persistent.
func (m *MetricsLog) Restore(raw json.RawMessage) error {
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
	end := info.Size()
	size, err := m.lastLine(min(m.size, end))
	if err != nil {
		return err
	}
	if size != m.size {
		m.log.Warn("the metrics file lacks lines that the checkpoint refers to; the run continues after the last complete line",
			"file", m.file.Name(), "bytes", end, "expected_bytes", m.size, "kept_bytes", size)
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
func (m *MetricsLog) Close() error { return m.file.Close() }
