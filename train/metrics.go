package train

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/gorbit-ml/gorbit/runner"
)

// metricsFile is the name of a run's metrics log.
const metricsFile = "metrics.jsonl"

// metricsLog writes one JSON line per loop and evaluation, without times. Its
// length is saved with every checkpoint, and a resumed run cuts off what was
// written behind it: the file ends up as that of a run that was never stopped.
type metricsLog struct {
	file *os.File
	size int64
}

func openMetrics(path string) (*metricsLog, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	return &metricsLog{file: f}, nil
}

// action returns a runner.Action that logs what a phase put out.
func (m *metricsLog) action(phase string) runner.Action {
	return func(_ context.Context, step int64, out runner.Outputs) error {
		if len(out) == 0 {
			return nil
		}
		values := make(map[string]any, len(out))
		for name, v := range out {
			values[name] = v
			if math.IsNaN(v) || math.IsInf(v, 0) {
				values[name] = fmt.Sprint(v) // JSON has no such number
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
		m.size += int64(n)
		return err
	}
}

// State implements runner.Persistent: the length of the file.
func (m *metricsLog) State() (json.RawMessage, error) { return json.Marshal(m.size) }

// Restore implements runner.Persistent.
func (m *metricsLog) Restore(raw json.RawMessage) error {
	m.size = 0
	if raw != nil {
		if err := json.Unmarshal(raw, &m.size); err != nil {
			return err
		}
	}
	end, err := m.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	// A file that someone shortened is continued at its end.
	if m.size < 0 || m.size > end {
		m.size = end
	}
	return m.file.Truncate(m.size)
}

// Close closes the file.
func (m *metricsLog) Close() error { return m.file.Close() }
