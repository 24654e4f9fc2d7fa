package runfolder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Outcome says how a process that trained ended.
type Outcome string

// The outcomes of a process. One that was killed has none.
const (
	Finished Outcome = "finished" // all steps are done, or early stopping ended them
	Stopped  Outcome = "stopped"  // by a signal, after saving
	Failed   Outcome = "failed"
)

// Start is a line of the journal: a process is about to make its first step.
type Start struct {
	Event   string    `json:"event"` // "start"
	Time    time.Time `json:"time"`
	Process int       `json:"process"`
	Host    string    `json:"host"`

	Gorbit     string `json:"gorbit"`
	Go         string `json:"go"`
	TensorFlow string `json:"tensorflow"`
	Processor  string `json:"processor,omitempty"`
	Cores      int    `json:"cores"`
	// MemoryMiB is the memory of the machine.
	MemoryMiB int64    `json:"memory_mib,omitempty"`
	Devices   []string `json:"devices"`
	Kernels   string   `json:"kernels,omitempty"`
	Precision string   `json:"precision,omitempty"`

	Model      string `json:"model"`
	Parameters int64  `json:"parameters"`
	// Step is the number of steps made before, Steps that of the whole run.
	Step          int64 `json:"step"`
	Steps         int64 `json:"steps"`
	StepsPerEpoch int64 `json:"steps_per_epoch"`
	Examples      int64 `json:"examples"`
	// Best is the metric by which evaluations are compared, and Mode is max or min; "" if there is
	// none.
	Best string `json:"best,omitempty"`
	Mode string `json:"mode,omitempty"`
	// InitSeconds is how long it took to open the graph and the data, to place the model and to restore
	// or initialize it.
	InitSeconds float64 `json:"init_seconds,omitempty"`
	Memory
	// OffloadedBytes is the size of what is in files instead of in memory (strategy.offload).
	OffloadedBytes int64 `json:"offloaded_bytes,omitempty"`
	// PeakFLOPS is the machine's measured peak in floating point operations per second; 0 if it was not
	// measured.
	PeakFLOPS float64 `json:"peak_flops,omitempty"`
}

// End is a line of the journal: the process of the Start before it has ended.
type End struct {
	Event   string    `json:"event"` // "end"
	Time    time.Time `json:"time"`
	Process int       `json:"process"`
	Outcome Outcome   `json:"outcome"`
	Error   string    `json:"error,omitempty"`
	Step    int64     `json:"step"`
	Seconds float64   `json:"seconds"`
	// PeakMemoryMiB is the most memory that the process had.
	PeakMemoryMiB int64 `json:"peak_memory_mib"`
	// MemoryAfter is what it had at the end, in bytes.
	MemoryAfter int64 `json:"memory_after,omitempty"`
}

// Process is a process that trained in the folder. End is nil while it trains, and if it was killed.
type Process struct {
	Start  Start
	Phases []Phase
	End    *End
}

// seconds returns how long a process trained, as far as it is known: to its last phase if it was
// killed.
func (p Process) seconds() float64 {
	if p.End != nil {
		return p.End.Seconds
	}
	if n := len(p.Phases); n > 0 {
		return p.Phases[n-1].Elapsed
	}
	return 0
}

// AppendStart adds a line to the journal of a folder.
func AppendStart(folder string, s Start) error {
	s.Event = "start"
	return appendLine(folder, s)
}

// AppendEnd adds a line to the journal of a folder.
func AppendEnd(folder string, e End) error {
	e.Event = "end"
	return appendLine(folder, e)
}

// appendLine adds a line to the journal. It is not synced: what trains does not wait for it.
func appendLine(folder string, line any) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	return appendText(folder, append(text, '\n'))
}

// appendText adds whole lines to the journal.
func appendText(folder string, text []byte) error {
	path := filepath.Join(folder, Journal)
	f, err := vfs.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// readJournal returns the processes that trained in a folder, oldest first, and what is damaged.
func readJournal(folder string) (out []Process, problems []string, err error) {
	path := filepath.Join(folder, Journal)
	content, err := vfs.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for n := 1; len(content) > 0; n++ {
		var line []byte
		line, content, _ = bytes.Cut(content, []byte{'\n'})
		var both struct {
			Event string `json:"event"`
			Start
		}
		var end End
		var phase Phase
		switch err := json.Unmarshal(line, &both); {
		case err == nil && both.Event == "start":
			out = append(out, Process{Start: both.Start})
		case err == nil && both.Event == "end" && json.Unmarshal(line, &end) == nil:
			if last := len(out) - 1; last >= 0 && out[last].End == nil && out[last].Start.Process == end.Process {
				out[last].End = &end
			}
		case err == nil && both.Event == "phase" && json.Unmarshal(line, &phase) == nil:
			if last := len(out) - 1; last >= 0 && out[last].Start.Process == phase.Process {
				out[last].Phases = append(out[last].Phases, phase)
			}
		default:
			problems = append(problems, fmt.Sprintf("%s:%d: is not a line of the journal; the line is left out", Journal, n))
		}
	}
	return out, problems, nil
}
