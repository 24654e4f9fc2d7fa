package runfolder

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/summary"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Run is what the folder of a run says of it.
type Run struct {
	Folder string
	// Params are the params by name, section.name, as YAML writes their values.
	Params map[string]string
	// Changes are the params that were changed in the middle of the run, oldest first.
	Changes Changes
	// Processes are those that trained, oldest first. Runs of older versions have none.
	Processes []Process
	// State is Running, Finished, Stopped or Failed, and Reason says more; it may be "".
	State  Outcome
	Reason string
	// Early says why training ended before its last step; "" if it did not.
	Early string
	// Step is the last step that is known to have been made, Saved that of the newest checkpoint, and
	// Steps the number of steps of the whole run, 0 if it is not known.
	Step, Saved, Steps int64
	// Best is the best evaluation.
	Best Best
	// Seconds is how long processes trained, evaluations included; 0 if it is not known.
	Seconds float64
	// PeakMemoryMiB is the most memory that a process which has ended had.
	PeakMemoryMiB int64
	// Written is when metrics were written last.
	Written time.Time
	// Log has the metrics.
	Log *Log
	// Manifest describes the data; nil if the run has no description of them.
	Manifest *convert.Manifest
	// Init says what the initial weights filled; nil if the run has none.
	Init *Filled
	// TrainEvents and EvalEvents are the scalars for TensorBoard; nil unless they were asked for.
	TrainEvents, EvalEvents map[string][]summary.Point
	// Problems are sentences on what is damaged.
	Problems []string
}

// Best is the best evaluation of a run.
type Best struct {
	// Metric is the metric by which evaluations are compared, and Mode is max or min. Both are "" if
	// there is none or the run does not say it.
	Metric, Mode string
	// Known says that there was an evaluation, with this value at this step.
	Known bool
	Value float64
	Step  int64
}

// NotRunError says that a folder is not that of a run. Served says that it is a model that gorbit export wrote.
type NotRunError struct {
	Folder string
	Served bool
}

func (e *NotRunError) Error() string {
	if e.Served {
		return fmt.Sprintf("%s is not a run folder but a model that gorbit export wrote; expected a folder of gorbit train; gorbit-predict --model %[1]s asks the model", e.Folder)
	}
	return fmt.Sprintf("%s is not a run folder: it has no %s, which gorbit train writes", e.Folder, Params)
}

// NotRun returns a NotRunError if err says that a run's params are not there, and err otherwise.
func NotRun(folder string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		_, unserved := vfs.Stat(filepath.Join(folder, filepath.FromSlash(layout.DescriptionFile)))
		return &NotRunError{folder, unserved == nil}
	}
	return err
}

// Read reads a run folder. events says whether to read the event files too, which are the largest
// part of a long run. now is the time until which a running process has trained.
func Read(folder string, events bool, now time.Time) (*Run, error) {
	r := &Run{Folder: folder}
	var err error
	if r.Params, err = readParams(folder); err != nil {
		return nil, err
	}
	r.Log = NewLog()
	if err := r.Refresh(now); err != nil {
		return nil, err
	}
	r.readRest(events)
	return r, nil
}

// Refresh reads what a training has changed since: metrics, state and best. now is the time until
// which a running process has trained.
func (r *Run) Refresh(now time.Time) error {
	// The state first: a run that has ended by then writes no more metrics.
	processes, damaged, err := readJournal(r.Folder)
	if err != nil {
		return err
	}
	r.Processes, r.Problems = processes, damaged
	r.Seconds, r.PeakMemoryMiB, r.Best = 0, 0, Best{}
	saved, unsound, err := readSaved(r.Folder)
	for _, c := range unsound {
		r.problem(fmt.Sprintf("checkpoint %s is damaged, and is passed over: %v", filepath.Base(c.Prefix), c.Err))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a training process may have deleted it since
		r.problem(fmt.Sprintf("cannot read the newest checkpoint: %v", err))
	}
	r.tellState(saved)
	if err := r.Log.Follow(r.Folder); err != nil {
		return err
	}
	r.Step = max(r.Log.Step, r.Saved)
	if damaged := r.Log.Problem(); damaged != "" {
		r.problem(damaged + "; the rest is shown")
	}
	r.time(now)
	if r.Best.Metric != "" {
		r.Best.Value, r.Best.Step, r.Best.Known = r.Log.Best(r.Best.Metric, r.Best.Mode)
	}
	return nil
}

// readRest reads what a run can be shown without.
func (r *Run) readRest(events bool) {
	var err error
	if r.Manifest, err = convert.ReadManifest(filepath.Join(r.Folder, Data)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.problem(err.Error())
	}
	if r.Init, err = readFilled(filepath.Join(r.Folder, Init)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.problem(err.Error())
	}
	if r.Changes, err = ReadChanges(r.Folder); err != nil {
		r.problem(err.Error())
	}
	if !events {
		return
	}
	for _, e := range []struct {
		folder string
		to     *map[string][]summary.Point
	}{{TrainEvents, &r.TrainEvents}, {EvalEvents, &r.EvalEvents}} {
		s, err := summary.ReadScalars(filepath.Join(r.Folder, e.folder))
		if err != nil {
			r.problem(err.Error())
			continue
		}
		*e.to = s.Points
		if s.Damaged > 0 && r.State != Running {
			r.problem(fmt.Sprintf("%s/: %d events of the TensorBoard files cannot be read; the rest is shown", e.folder, s.Damaged))
		}
	}
}

func (r *Run) problem(sentence string) {
	if sentence != "" {
		r.Problems = append(r.Problems, sentence)
	}
}

// readParams reads the params of a run.
func readParams(folder string) (map[string]string, error) {
	path := filepath.Join(folder, Params)
	content, err := vfs.ReadFile(path)
	if err != nil {
		return nil, NotRun(folder, err)
	}
	flat, err := FlatParams(content)
	if err != nil {
		return nil, fault.Damagedf("%s: %w", path, err)
	}
	return flat, nil
}

// EvalSplits returns the splits that the run is evaluated on, or one with the name eval if its params
// do not say them.
func (r *Run) EvalSplits() params.Splits {
	return params.ParseSplits(cmp.Or(r.Params["data.eval"], "eval"))
}

// FlatParams returns the params of a YAML file by name, section.name.
func FlatParams(content []byte) (map[string]string, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(content, &root); err != nil {
		return nil, err
	}
	out := map[string]string{}
	var add func(prefix string, n *yaml.Node)
	add = func(prefix string, n *yaml.Node) {
		switch {
		case n.Kind == yaml.DocumentNode:
			for _, c := range n.Content {
				add(prefix, c)
			}
		case n.Kind == yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				name := n.Content[i].Value
				if prefix != "" {
					name = prefix + "." + name
				}
				add(name, n.Content[i+1])
			}
		case n.Kind == yaml.ScalarNode:
			out[prefix] = n.Value
		default: // a list
			var splits params.Splits
			if prefix == "data.eval" && n.Decode(&splits) == nil {
				out[prefix] = splits.String()
				return
			}
			text, err := yaml.Marshal(n)
			if err == nil {
				out[prefix] = strings.Join(strings.Fields(string(text)), " ")
			}
		}
	}
	add("", &root)
	return out, nil
}

// Filled says what initial weights filled.
type Filled struct {
	// Source is the file of the weights.
	Source string
	// Matched, Missing, Mismatched and Unused are the lines of the report, without their first word.
	Matched, Missing, Mismatched, Unused []string
}

// readFilled reads the report of the initial weights.
func readFilled(path string) (*Filled, error) {
	content, err := vfs.ReadFile(path)
	if err != nil {
		return nil, err
	}
	head, rest, _ := strings.Cut(string(content), "\n")
	f := &Filled{Source: head}
	if i := strings.LastIndex(head, ": "); i > 0 {
		f.Source = head[:i]
	}
	for line := range strings.Lines(rest) {
		kind, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		what = strings.TrimSpace(what)
		switch kind {
		case "matched":
			f.Matched = append(f.Matched, what)
		case "missing":
			f.Missing = append(f.Missing, what)
		case "mismatched":
			f.Mismatched = append(f.Mismatched, what)
		case "unused":
			f.Unused = append(f.Unused, what)
		}
	}
	return f, nil
}
