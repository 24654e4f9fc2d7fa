package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
)

// checkpointFolder is where a run's checkpoints are.
const checkpointFolder = "checkpoints"

// model lets the loop reach a strategy, and a strategy the checkpoints.
type model struct {
	strategy.Strategy
	export  *graphs.Export
	scalars strategy.Scalars
	manager *checkpoint.Manager
	// rows says how a micro-batch's examples are laid into rows.
	rows dataset.Config
	// accumulate is how many micro-batches a replica takes for an update.
	accumulate int
	// examples are how many every replica, or lane, has trained on; nil for none yet.
	examples []int64
	log      *slog.Logger
	// local gives the batches where the workers read them; nil where the chief does.
	local *localSource
	// best is the best evaluation so far, whose checkpoint is kept; nil for none.
	best *runner.NewBestMetric
	// logs are the files that a checkpoint's state counts on.
	logs []synced
}

// Step implements runner.Model.
func (m *model) Step(ctx context.Context, batch *dataset.Batch, hyper runner.Hyper) (runner.StepResult, error) {
	scalars := make(strategy.Scalars, len(m.scalars)+1)
	for name, value := range m.scalars {
		scalars[name] = value
	}
	scalars["learning_rate"] = hyper.LearningRate
	if hyper.LossScale > 0 {
		scalars[graphs.LossScale] = hyper.LossScale
	}
	seed := [2]int64{hyper.Seed, hyper.Step}
	var r *strategy.Result
	examples, err := m.fit(batch, hyper.Step, func() (examples []int, err error) {
		if m.local != nil {
			examples, r, err = m.local.step(ctx, batch, seed, scalars)
			return examples, err
		}
		micro, examples, err := m.divide(batch)
		if err == nil {
			r, err = makeStep(ctx, m.Strategy, strategy.StepInput{Batches: micro, Seed: seed, Scalars: scalars})
		}
		return examples, err
	})
	if err != nil {
		return runner.StepResult{}, err
	}
	if m.examples == nil {
		m.examples = make([]int64, m.Runtime().MicroBatches)
	}
	for i, n := range examples {
		m.examples[i%len(m.examples)] += int64(n)
	}
	return runner.StepResult{Sums: r.Sums, GradientNorm: r.GradientNorm, Step: r.Iterations, Applied: r.Applied, InSession: r.InSession}, nil
}

// makeStep makes one step.
func makeStep(ctx context.Context, s strategy.Strategy, in strategy.StepInput) (*strategy.Result, error) {
	r, err := s.Steps(ctx, []strategy.StepInput{in})
	if err != nil {
		return nil, err
	}
	return &r[0], nil
}

// fit makes a step, and where its micro-batches do not fit in memory, makes it, and
// those that follow, of smaller ones. It returns how many examples each has.
func (m *model) fit(batch *dataset.Batch, done int64, step func() ([]int, error)) ([]int, error) {
	for {
		examples, err := step()
		if oom := (*strategy.OutOfMemoryError)(nil); errors.As(err, &oom) && len(examples) < batch.Examples {
			m.accumulate = 2 * max(1, m.accumulate)
			m.log.Warn("out of memory: micro-batches are halved, the global batch stays what it is",
				"step", done+1, "accumulate", m.accumulate, "error", oom.Err)
			continue
		}
		return examples, err
	}
}

// parts is how many micro-batches a batch is divided into, and how many tokens their
// rows may have.
func (m *model) parts() (n, longRows int) {
	return m.Runtime().MicroBatches * max(1, m.accumulate), m.Runtime().LongRows
}

// divide makes the micro-batches of a batch, and says how many examples each has.
func (m *model) divide(batch *dataset.Batch) (out [][]strategy.Feature, examples []int, err error) {
	n, longRows := m.parts()
	parts, err := batch.Divide(m.rows, n, longRows)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range parts {
		out, examples = append(out, p.Features), append(examples, p.Examples)
	}
	return out, examples, nil
}

// Evaluate implements runner.EvalModel.
func (m *model) Evaluate(ctx context.Context, batch *dataset.Batch) (runner.Sums, error) {
	sums, err := m.Strategy.Evaluate(ctx, batch.Features)
	return sums, err
}

// entries lists the variables that a checkpoint must hold.
func (m *model) entries() []checkpoint.Entry {
	var out []checkpoint.Entry
	for _, v := range m.Variables() {
		out = append(out, checkpoint.Entry{Name: v.Name, DType: v.DType, Shape: v.Shape})
	}
	return out
}

// Save implements runner.Checkpointer. The values that are read share their
// memory with the variables until the next step changes them, which then works
// on a copy: writing goes on while training does.
func (m *model) Save(ctx context.Context, step int64, state []byte) (<-chan runner.Saved, error) {
	var names []string
	for _, v := range m.Variables() {
		names = append(names, v.Name)
	}
	values, err := m.Read(ctx, names...)
	if err != nil {
		return nil, err
	}
	tensors := make([]checkpoint.NamedTensor, len(names))
	for i, name := range names {
		tensors[i] = checkpoint.NamedTensor{Name: name, Value: values[i]}
	}
	if err := m.manager.Save(ctx, step, tensors, state, m.saveOptions(step)...); err != nil {
		return nil, err
	}
	done := make(chan runner.Saved, 1)
	go func() { done <- runner.Saved{Path: m.prefix(step), Err: m.manager.Wait(ctx)} }()
	return done, nil
}

func (m *model) prefix(step int64) string {
	return filepath.Join(m.manager.Dir(), fmt.Sprintf("ckpt-%d", step))
}

// Latest implements runner.Checkpointer.
func (m *model) Latest(context.Context) (string, error) {
	c, err := m.manager.Latest()
	if errors.Is(err, checkpoint.ErrNoCheckpoint) || errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return c.Prefix, err
}

// Restore implements runner.Checkpointer.
func (m *model) Restore(ctx context.Context, path string) (runner.Restored, error) {
	var r *checkpoint.Restored
	var err error
	if path == "" {
		r, err = m.manager.Restore(ctx, m.entries())
		if errors.Is(err, checkpoint.ErrNoCheckpoint) {
			return runner.Restored{}, nil
		}
	} else {
		var c checkpoint.Checkpoint
		if c, err = m.find(path); err == nil {
			r, err = m.manager.RestoreFrom(ctx, c, m.entries())
		}
	}
	if err != nil {
		return runner.Restored{}, err
	}
	if err := graphIdentity(m.export.Contract.Model).check(r.State); err != nil {
		return runner.Restored{}, fmt.Errorf("checkpoint %s: %w", r.Prefix, err)
	}
	if err := m.Assign(ctx, r.Tensors); err != nil {
		return runner.Restored{}, fmt.Errorf("checkpoint %s: %w", r.Prefix, err)
	}
	return runner.Restored{Path: r.Prefix, Step: r.Step, State: r.State}, nil
}

// find returns the checkpoint with the given prefix, whether whole or damaged.
func (m *model) find(prefix string) (checkpoint.Checkpoint, error) {
	step, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(prefix), "ckpt-"), 10, 64)
	if err != nil || m.prefix(step) != prefix {
		return checkpoint.Checkpoint{}, fmt.Errorf("checkpoint %s: %w", prefix, fs.ErrNotExist)
	}
	return m.manager.Find(step)
}

// initialize gives the model its first values: those of the export, then what
// init holds.
//
// What became of every tensor of init is written to reportPath; what was not filled
// is told on out, too.
func (m *model) initialize(ctx context.Context, init string, strict bool, reportPath string, out io.Writer) error {
	var wanted []checkpoint.Wanted
	var names []string
	for _, v := range m.export.Contract.Variables {
		w := checkpoint.Wanted{Name: v.Name, Shape: v.Shape, DType: tf.Float}
		for _, name := range v.Foreign {
			w.Foreign = append(w.Foreign, checkpoint.Candidate{Name: name, Transpose: v.Transpose})
		}
		wanted = append(wanted, w)
		names = append(names, v.Name)
	}
	prefix := filepath.Join(m.export.Path, "variables", "variables")
	bundle, err := checkpoint.OpenBundle(prefix)
	if err != nil {
		return fmt.Errorf("the export's initial variables: %w", err)
	}
	values, err := bundle.Read(ctx, names...)
	if err != nil {
		return fmt.Errorf("the export's initial variables: %w", err)
	}
	if init != "" {
		if folder := filepath.Join(init, checkpointFolder); isDir(folder) {
			init = folder
		}
		source, closeSource, err := checkpoint.OpenSource(init)
		if err != nil {
			return fmt.Errorf("init: %w", err)
		}
		defer closeSource()
		loaded, report, err := checkpoint.Load(ctx, source, wanted)
		if err == nil && strict {
			err = report.Strict()
		}
		if err != nil {
			return fmt.Errorf("init: %w", err)
		}
		if err := replaceFile(reportPath, []byte(report.String()+"\n")); err != nil {
			return err
		}
		fmt.Fprintf(out, "initial weights from %s; %s has them all\n", report.Summary(), reportPath)
		for line := range strings.Lines(report.String() + "\n") {
			if strings.HasPrefix(line, "  missing ") || strings.HasPrefix(line, "  mismatched ") {
				fmt.Fprint(out, line)
			}
		}
		for name, value := range loaded {
			values[name] = value
		}
	}
	return m.Assign(ctx, values)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// DiscardAfter implements runner.Checkpointer.
func (m *model) DiscardAfter(_ context.Context, step int64) error {
	// The run went back, and with it the best evaluation.
	if err := m.protectBest(); err != nil {
		return err
	}
	return m.manager.DiscardAfter(step)
}
