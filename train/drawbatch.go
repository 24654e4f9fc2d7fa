package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

// RunReport describes a run folder, without running its graph.
type RunReport struct {
	Path  string `json:"path"`
	Graph string `json:"graph"`
	// OwnGraph says that the run has a copy of its graph.
	OwnGraph bool `json:"own_graph"`
	// Step is that of the newest checkpoint, and Total the last step of the training; 0 if unknown.
	Step  int64 `json:"step"`
	Total int64 `json:"total,omitempty"`
	// StoppedEarly is the reason why an action ended the training.
	StoppedEarly string `json:"stopped_early,omitempty"`
	// Best is the best evaluation so far; nil if none is known.
	Best *BestReport `json:"best,omitempty"`
	// Evaluated has the outputs of the last evaluation, of EvaluatedStep.
	EvaluatedStep int64          `json:"evaluated_step,omitempty"`
	Evaluated     runner.Outputs `json:"evaluated,omitempty"`
	// Checkpoints are in the order of their steps.
	Checkpoints []CheckpointReport `json:"checkpoints"`
	// Params are those that differ from the defaults, by name.
	Params map[string]any `json:"params"`
}

// BestReport is the best evaluation of a run.
type BestReport struct {
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
	Step   int64   `json:"step"`
}

// CheckpointReport describes a checkpoint of a run.
type CheckpointReport struct {
	Step  int64     `json:"step"`
	Path  string    `json:"path"`
	Bytes int64     `json:"bytes"`
	Time  time.Time `json:"time"`
	Best  bool      `json:"best,omitempty"`
}

// DescribeRun reads what a run folder tells of its run.
func DescribeRun(ctx context.Context, folder string) (*RunReport, error) {
	local, err := runfolder.LocalRun(ctx, folder, params.Latest)
	if err != nil {
		return nil, err
	}
	p, err := params.Read(filepath.Join(local, runfolder.Params))
	if err != nil {
		return nil, err
	}
	r := &RunReport{Path: folder, Graph: p.Graph, Checkpoints: []CheckpointReport{}, Params: map[string]any{}}
	defaults := params.Defaults().Flat()
	for name, value := range p.Flat() {
		if was, ok := defaults[name]; !ok || was != value {
			r.Params[name] = value
		}
	}
	kept, err := runfolder.ReadKeptGraph(local)
	if err != nil {
		return nil, err
	}
	r.OwnGraph = kept != nil
	manager, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: filepath.Join(local, runfolder.Checkpoints), ReadOnly: true})
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	defer manager.Close()
	return r, r.read(manager, p.Checkpoint.Best)
}

// read takes what the checkpoints tell.
func (r *RunReport) read(manager *checkpoint.Manager, metric string) error {
	best, err := loop.BestStep(manager)
	if errors.Is(err, loop.ErrNoBest) {
		best = -1
	} else if err != nil {
		return err
	}
	all, err := manager.All()
	if err != nil {
		return err
	}
	for _, c := range all {
		one := CheckpointReport{Step: c.Step, Path: c.Prefix, Time: c.Time, Best: c.Step == best}
		files, err := filepath.Glob(globbed(c.Prefix) + ".*")
		if err != nil {
			return err
		}
		for _, f := range files {
			if info, err := os.Stat(f); err == nil {
				one.Bytes += info.Size()
			}
		}
		r.Checkpoints = append(r.Checkpoints, one)
	}
	newest, err := manager.Newest()
	if errors.Is(err, checkpoint.ErrNoCheckpoint) {
		return nil
	}
	if err != nil {
		return err
	}
	r.Step = newest.Step
	saved, err := manager.State(newest)
	if err != nil || saved == nil {
		return err
	}
	state, err := runner.ParseRunState(saved)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", newest.Prefix, err)
	}
	var trainer runner.TrainerState
	if json.Unmarshal(state.Trainer, &trainer) == nil {
		r.Total = trainer.Schedule.TotalSteps
	}
	if state.StoppedEarly != nil {
		r.StoppedEarly = state.StoppedEarly.Reason
	}
	if e := state.Evaluated; e != nil {
		r.EvaluatedStep, r.Evaluated = e.Step, e.Outputs
	}
	kept := runner.NewBest(metric, runner.HigherIsBetter)
	if kept.Restore(state.Persistent[loop.BestState]) == nil {
		if value, step, ok := kept.Best(); ok {
			r.Best = &BestReport{metric, value, step}
		}
	}
	return nil
}

// globbed returns a path as a pattern that matches it alone.
func globbed(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// WantedOf returns the variables of an export, or of a run's graph, with their names in other sources.
func WantedOf(folder string) ([]checkpoint.Wanted, error) {
	if p, err := params.Read(filepath.Join(folder, runfolder.Params)); err == nil {
		if folder, err = runfolder.GraphToRead(p, folder, nil, slog.New(slog.DiscardHandler)); err != nil {
			return nil, err
		}
	}
	export, err := graphs.Open(folder) // nothing in it is run
	if err != nil {
		return nil, err
	}
	return loop.WantedOf(export.Contract), nil
}

// Drawn is a batch of a run's training, as the graph gets it but for its division into micro-batches.
type Drawn struct {
	*dataset.Batch
	// Step is the step that the batch is for, from 1.
	Step int64
	// Contract is that of the run's graph.
	Contract *graphs.Contract
	// Manifest describes the data, and Tokenizer is that of its texts; both may be nil.
	Manifest  *convert.Manifest
	Tokenizer *text.Tokenizer
}

// DrawBatch returns the batch of a step of a run. The run may have made the step or not. Settings
// override params of the run that matter for reading, such as data.dir.
func DrawBatch(ctx context.Context, folder string, step int64, settings []string, env Env) (*Drawn, error) {
	env = env.withDefaults()
	if step < 1 {
		return nil, &params.Error{Err: fmt.Errorf("step is %d; expected 1 or more", step)}
	}
	folder, err := runfolder.LocalRun(ctx, folder, "")
	if err != nil {
		return nil, err
	}
	p, err := runfolder.ReadParams(folder)
	if err != nil {
		return nil, err
	}
	if err := params.CheckReading(settings); err != nil {
		return nil, err
	}
	if err := p.Load(nil, settings); err != nil {
		return nil, err
	}
	graph, err := runfolder.GraphToRead(p, folder, settings, env.Log)
	if err != nil {
		return nil, err
	}
	local, err := vfs.Localize(ctx, graph, nil)
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	export, err := graphs.Open(local) // nothing in it is run
	if err != nil {
		return nil, err
	}
	s := prepare.Over(p, export, env.prepare())
	if err := s.OpenData(); err != nil {
		return nil, err
	}
	if s.Params.Data.RowLength == 0 {
		s.Params.Data.RowLength = prepare.RowLengthOf(s.Data.Manifest, export.Contract)
	}
	f := prepare.PreflightOf(s)
	if f.RunMeaning(folder); f.Err() != nil {
		return nil, f.Err()
	}
	set, err := s.Open(ctx, p.Data.Train, prepare.ToTrain)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	left, err := s.SeekBatch(folder, set, step)
	if err != nil {
		return nil, err
	}
	d := &Drawn{Step: step, Contract: export.Contract, Manifest: s.Data.Manifest}
	for ; left >= 0; left-- {
		if d.Batch, err = set.Next(ctx); err == io.EOF {
			return nil, &params.Error{Err: fmt.Errorf("step is %d; expected less: the data end before it", step)}
		}
		if err != nil {
			return nil, err
		}
	}
	if path := tokenizers.Exists(folder); path != "" {
		file, err := tokenizers.Open(path, text.Config{})
		if err != nil {
			return nil, err
		}
		d.Tokenizer = file.Tokenizer
	}
	return d, nil
}

// Sequence is an example in a packed row.
type Sequence struct {
	// Example is its number in the batch, and Record the record that it was read from.
	Example int    `json:"example"`
	Record  string `json:"record"`
	// Row and Start are its place, and Tokens is its length.
	Row    int `json:"row"`
	Start  int `json:"start"`
	Tokens int `json:"tokens"`
	// IDs are the tokens' ids.
	IDs []int32 `json:"-"`
}

// Sequences returns the examples of a batch of packed texts, in the order of the batch; nil for others.
func (d *Drawn) Sequences() []Sequence {
	ids, sequences, starts := d.Feature(packed.InputIDs), d.Feature(packed.SequenceIDs), d.Feature(packed.ClsPositions)
	if ids == nil || sequences == nil || starts == nil || d.RowLength == 0 {
		return nil
	}
	out := make([]Sequence, 0, d.Examples)
	for i := range d.Examples {
		start := int(starts.Int32[i])
		row := start / d.RowLength
		end := start
		for end < (row+1)*d.RowLength && sequences.Int32[end] == sequences.Int32[start] {
			end++
		}
		out = append(out, Sequence{Example: i, Record: d.Describe(i), Row: row, Start: start % d.RowLength, Tokens: end - start, IDs: ids.Int32[start:end]})
	}
	return out
}
