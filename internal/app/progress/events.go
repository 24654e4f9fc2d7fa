package progress

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/gorbit-ml/gorbit/internal/app/tracking"
	"github.com/gorbit-ml/gorbit/runner"
)

// Events writes what happens as lines of JSON, for a program that started this one. Those of metrics are
// the ones that gorbit track sends to a command. It is safe for concurrent use.
//
//	{"event":"begin","phase":"train","step":0,"total":345}
//	{"event":"step","phase":"train","step":12,"epoch":0,"loss":0.67,"examples":384}
//	{"event":"metrics","phase":"train","step":20,"metrics":{"loss":0.65,"learning_rate":1e-05}}
//	{"event":"save","step":115,"path":"runs/mrpc/checkpoints/ckpt-115"}
//	{"event":"finish","phase":"train"}
//
// Lines of steps are at least redrawInterval apart, but for the last of a phase. The total is below 0 if
// it is not known. Examples are those of the phase so far.
type Events struct {
	mu      sync.Mutex
	json    *json.Encoder
	phases  []*phase // innermost last
	written time.Time
}

var _ runner.Observer = (*Events)(nil)

// NewEvents returns events that are written to out, each with one Write. A reader that has gone away does
// not end a run, so errors of writing are ignored.
func NewEvents(out io.Writer) *Events { return &Events{json: json.NewEncoder(out)} }

// write writes an event. The caller holds mu.
func (e *Events) write(event map[string]any) { _ = e.json.Encode(event) }

// Begin implements runner.Observer.
func (e *Events) Begin(name string, step, total int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.phases = append(e.phases, &phase{name: name, total: total})
	e.write(map[string]any{"event": "begin", "phase": name, "step": step, "total": total})
}

// Step implements runner.Observer.
func (e *Events) Step(info runner.StepInfo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.phases) == 0 {
		return
	}
	p := e.phases[len(e.phases)-1]
	p.examples += int64(info.Examples)
	if now := time.Now(); info.Step == p.total || now.Sub(e.written) >= redrawInterval {
		e.written = now
		e.write(map[string]any{"event": "step", "phase": p.name, "step": info.Step, "epoch": info.Epoch,
			"loss": tracking.Number(info.Loss), "examples": p.examples})
	}
}

// End implements runner.Observer.
func (e *Events) End() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.phases); n > 0 {
		e.write(map[string]any{"event": "finish", "phase": e.phases[n-1].name})
		e.phases = e.phases[:n-1]
	}
}

// Metrics returns an action that writes the outputs of a phase.
func (e *Events) Metrics(phase string) runner.Action {
	return func(_ context.Context, step int64, out runner.Outputs) error {
		if len(out) == 0 {
			return nil
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.write(tracking.MetricsEvent(phase, step, out))
		return nil
	}
}

// Saved writes that a checkpoint is on disk.
func (e *Events) Saved(step int64, path string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.write(map[string]any{"event": "save", "step": step, "path": path})
}
