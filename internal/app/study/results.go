package study

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gorbit-ml/gorbit/internal/app/tune"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// Results are the trials of a study, the best first.
type Results struct {
	Folder string
	Config tune.Config
	Trials []Result
}

// Result is a trial and what its run's folder says. Run is nil if gorbit does not run the trial, or if
// it has no run yet.
type Result struct {
	tune.Trial
	Run *runfolder.Run
}

// ReadResults reads the runs of a study. The study must not change meanwhile.
func (j *Journal) ReadResults(folder string) (Results, error) {
	r := Results{Folder: folder}
	j.View(func(s *tune.Study) {
		r.Config, _ = s.Config()
		for _, t := range s.Trials() {
			r.Trials = append(r.Trials, Result{Trial: *t})
		}
	})
	for i := range r.Trials {
		t := &r.Trials[i]
		if !t.Own() {
			continue
		}
		run, err := runfolder.Read(r.RunFolder(t.Trial), false, time.Now())
		if notRun := (*runfolder.NotRunError)(nil); errors.As(err, &notRun) {
			continue // refused before it began
		}
		if err != nil {
			return r, fmt.Errorf("trial %d: %w", t.Number, err)
		}
		t.Run = run
	}
	slices.SortStableFunc(r.Trials, func(a, b Result) int {
		return cmp.Or(cmp.Compare(rank(a.Trial), rank(b.Trial)), r.byValue(a.Trial, b.Trial))
	})
	return r, nil
}

// RunFolder returns the folder of a trial's run.
func (r Results) RunFolder(t tune.Trial) string {
	return filepath.Join(r.Folder, filepath.FromSlash(t.Run))
}

// rank orders trials by their states.
func rank(t tune.Trial) int {
	return slices.Index([]tune.State{tune.Complete, tune.Pruned, tune.Running, tune.Waiting, tune.Failed}, t.State)
}

func (r Results) byValue(a, b tune.Trial) int {
	x, y := valueOr(a), valueOr(b)
	switch {
	case math.IsNaN(x) || math.IsNaN(y):
		return cmp.Compare(btoi(math.IsNaN(x)), btoi(math.IsNaN(y)))
	case r.Config.Direction == tune.Minimize:
		return cmp.Compare(x, y)
	}
	return cmp.Compare(y, x)
}

func valueOr(t tune.Trial) float64 {
	if t.HasValue {
		return t.Value
	}
	return math.NaN()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Print prints a table of the trials, and why trials failed.
func (r Results) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	heads := []string{"trial", r.Config.Objective, "state"}
	for _, p := range r.Config.Space {
		heads = append(heads, p.Name)
	}
	fmt.Fprintln(w, strings.Join(append(heads, "steps", "time"), "\t"))
	for _, t := range r.Trials {
		cells := []string{fmt.Sprint(t.Number), "-", t.State.String()}
		if t.HasValue {
			cells[1] = fmt.Sprintf("%.4g", t.Value)
		}
		for _, p := range r.Config.Space {
			cells = append(cells, r.cell(t.Trial, p))
		}
		steps, seconds := "-", "-"
		if t.Run != nil {
			steps, seconds = fmt.Sprint(t.Run.Step), runfolder.Duration(t.Run.Seconds)
		}
		fmt.Fprintln(w, strings.Join(append(cells, steps, seconds), "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, t := range r.Trials {
		if t.State == tune.Failed {
			if _, err := fmt.Fprintf(out, "trial %d failed: %s\n", t.Number, cmp.Or(t.Error, "optuna gives no reason")); err != nil {
				return err
			}
		}
	}
	return nil
}

// cell writes a param of a trial in few characters.
func (r Results) cell(t tune.Trial, p tune.Param) string {
	v, ok := t.Params[p.Name]
	if !ok {
		return "-"
	}
	if d := t.Distributions[p.Name]; d.Kind != tune.Float {
		return d.Text(v)
	}
	return fmt.Sprintf("%.4g", v)
}

// Best returns the best of the complete trials that gorbit ran; nil if there is none.
func (r Results) Best() *Result {
	for i, t := range r.Trials {
		if t.State == tune.Complete && t.Own() {
			return &r.Trials[i]
		}
	}
	return nil
}

// Folders returns the folders of the runs of the best trials, at most n of them.
func (r Results) Folders(n int) []string {
	var out []string
	for _, t := range r.Trials {
		if t.Run != nil && len(out) < n {
			out = append(out, r.RunFolder(t.Trial))
		}
	}
	return out
}

// WriteBest writes the params of the best trial's run to BestFile, and returns its path. The run keeps
// what it has to keep, such as the number of lanes, so that a repetition is one in all bits.
func (r Results) WriteBest() (string, error) {
	from := filepath.Join(r.RunFolder(r.Best().Trial), runfolder.Params)
	content, err := vfs.ReadFile(from)
	if err != nil {
		return "", err
	}
	path := filepath.Join(r.Folder, BestFile)
	return path, vfs.ReplaceFile(path, content)
}

// WriteBase writes the params of all trials to BaseFile, for their processes.
func WriteBase(folder, params string) error {
	path := filepath.Join(folder, BaseFile)
	if old, err := vfs.ReadFile(path); err == nil && string(old) == params {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return vfs.ReplaceFile(path, []byte(params))
}
