package record

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/summary"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Board writes a run's TensorBoard files: scalars in train/ and eval/ as Orbit does, the graph,
// the params, and histograms of the variables. The hyperparameters are in the run's folder itself,
// because TensorBoard takes the scalars below it as their metrics.
type Board struct {
	// Train and Eval are the files of training and of evaluations.
	Train, Eval, run Events
	ended            bool // whether the run's file says so
}

// all returns the files.
func (b *Board) all() []*Events { return []*Events{&b.Train, &b.Eval, &b.run} }

// Events is an event file. It is opened when the step from which the run continues is known.
type Events struct{ *summary.Writer }

// Open opens the files for a run that continues after the given step.
func (b *Board) Open(folder string, step int64, p params.Params, s strategy.Strategy) error {
	first := step + 1 // the first step still to be done
	if step == 0 {
		first = 0 // also rewrite the events of step 0
	}
	for name, e := range map[string]*Events{"train": &b.Train, "eval": &b.Eval, "": &b.run} {
		from := first
		if e == &b.run {
			from = min(first, 1) // the beginning of the session stays, its end does not
		}
		w, err := summary.NewWriter(filepath.Join(folder, name), summary.ResumeAt(from))
		if err != nil {
			return fmt.Errorf("summaries: %w", err)
		}
		e.Writer = w
	}
	if step > 0 {
		return nil
	}
	text, err := p.YAML()
	if err != nil {
		return err
	}
	b.Train.Text("params", 0, "```yaml\n"+string(text)+"```")
	graph, err := s.GraphDef()
	if err != nil {
		return err
	}
	b.Train.Graph(graph)
	if err := b.run.SessionStart(hyperparameters(p)); err != nil {
		return fmt.Errorf("summaries: %w", err)
	}
	return nil
}

// Paths returns the paths of the open files.
func (b *Board) Paths() []string {
	var out []string
	for _, e := range b.all() {
		if e.Writer != nil {
			out = append(out, e.Path())
		}
	}
	return out
}

// hyperparameters returns the params that affect the variables and the evaluations of a run, by name.
func hyperparameters(p params.Params) map[string]any {
	out := make(map[string]any)
	for name, value := range p.Flat() {
		if of, _ := params.Lookup(name); !of.Change.Affects() {
			continue
		}
		if text, yes := value.(string); yes {
			if unquoted, err := strconv.Unquote(text); err == nil {
				value = unquoted
			}
		}
		out[name] = value
	}
	return out
}

// End says that the run is complete with the given step.
func (b *Board) End(step int64) {
	if !b.ended {
		b.run.SessionEnd(step)
		b.ended = true
	}
}

// Sync implements synced.
func (b *Board) Sync() error {
	for _, e := range b.all() {
		if e.Writer == nil {
			continue
		}
		if err := e.Writer.Sync(); err != nil {
			return fmt.Errorf("summaries: %w", err)
		}
	}
	return nil
}

// Close closes the files. What fails is logged.
func (b *Board) Close(log *slog.Logger) {
	for _, e := range b.all() {
		if e.Writer == nil {
			continue
		}
		if err := e.Close(); err != nil {
			log.Error("summaries", "error", err)
		}
	}
}

// Followed is the event file of gorbit evaluate --follow. It is opened at the first evaluation. If
// the run goes back to an earlier step, so does the file. One process at a time writes to its folder.
type Followed struct {
	// Folder is where the file is written. If it cannot be written to, Log says so, and there is no file.
	Folder string
	Log    *slog.Logger
	off    bool
	unlock func() error
	w      *summary.Writer
	step   int64 // step of the last evaluation
	err    error
}

// open locks the folder and begins the file.
func (f *Followed) open(step int64) error {
	if err := vfs.MkdirAll(f.Folder, 0o777); err != nil {
		return err
	}
	unlock, other, err := vfs.Lock(filepath.Join(f.Folder, checkpoint.LockName))
	if err != nil {
		return err
	}
	if other != nil {
		return fmt.Errorf("%s is in use by %v, which evaluates the same checkpoints; expected one process for each split", f.Folder, other)
	}
	f.unlock = unlock
	f.w, err = summary.NewWriter(f.Folder, summary.ResumeAt(step))
	return err
}

// Scalar implements runner.Summaries.
func (f *Followed) Scalar(tag string, step int64, value float64) {
	switch {
	case f.err != nil || f.off:
		return
	case f.w == nil:
		f.err = f.open(step)
		if errors.Is(f.err, syscall.EROFS) || errors.Is(f.err, fs.ErrPermission) {
			f.Log.Warn("no event files are written", "error", f.err)
			f.err, f.off = nil, true
		}
		if f.w == nil {
			return
		}
	case step < f.step:
		f.w.Restart(step)
	}
	f.step = step
	f.w.Scalar(tag, step, value)
}

// Text implements evaluation.Board.
func (f *Followed) Text(tag string, step int64, text string) {
	if f.err == nil && f.w != nil {
		f.w.Text(tag, step, text)
	}
}

// Flush implements runner.Summaries.
func (f *Followed) Flush() error {
	if f.err != nil || f.w == nil {
		return f.err
	}
	return f.w.Flush()
}

// Restart implements runner.Summaries.
func (f *Followed) Restart(int64) {}

// Close closes the file, if it was opened.
func (f *Followed) Close() (err error) {
	if f.w != nil {
		err = f.w.Close()
	}
	if f.unlock != nil {
		err = errors.Join(err, f.unlock())
	}
	return err
}
