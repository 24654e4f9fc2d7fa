package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/safety"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/params"
)

// prepareEnv is what a set-up takes of the environment of a run; train.Env describes the fields.
type prepareEnv struct {
	Log      *slog.Logger
	Version  string
	Keys     cluster.ClientKeys
	Sockets  string
	AllowOps []string
}

// setup holds what every use of a run needs: its params, graph, data and environment.
type setup struct {
	params params.Params
	export *graphs.Export
	data   *data // nil before openData
	env    prepareEnv
	// cores is the number of micro-batches that batches of evaluations are divided into, one for
	// each core of a TPU; 0 elsewhere.
	cores int
	// chosen is set if data.rows was not given, and was chosen for a TPU.
	chosen bool
}

// newSetup opens the graph that the params name.
func newSetup(ctx context.Context, p params.Params, env prepareEnv) (*setup, error) {
	return newSetupOf(ctx, p, p.Graph, env)
}

// newSetupOf opens a graph, which may be the run's own copy of the one that the params name.
func newSetupOf(ctx context.Context, p params.Params, graph string, env prepareEnv) (*setup, error) {
	export, err := openExport(ctx, graph, env)
	if err != nil {
		return nil, err
	}
	p.Checkpoint.ResolveBest(export.Contract)
	return setupOver(p, export, env), nil
}

// setupOver returns a set-up over a graph that is open. Its data are not open.
func setupOver(p params.Params, export *graphs.Export, env prepareEnv) *setup {
	return &setup{params: p, export: export, env: env}
}

// openData opens the folder of the data.
func (s *setup) openData() (err error) {
	s.data, err = openData(s.params.Data.Dir)
	return err
}

// open opens a split of the data.
func (s *setup) open(ctx context.Context, split string, use use) (*dataset.Dataset, error) {
	return s.data.open(ctx, s.params, s.export.Contract, split, use, s.env.Log)
}

// evaluations checks that a split can be read, and returns it.
func (s *setup) evaluations(ctx context.Context, split string) (*evaluated, error) {
	open := func(ctx context.Context) (*dataset.Dataset, error) { return s.open(ctx, split, toEvaluate) }
	divided := func(ctx context.Context) (*dataset.Dataset, error) {
		d, err := open(ctx)
		if err == nil && s.cores > 0 {
			d.Divide(s.cores, 0)
		}
		return d, err
	}
	first, err := open(ctx)
	if err != nil {
		return nil, err
	}
	out := &evaluated{split: split, batches: first.BatchesPerEpoch(), records: first.NumExamples(), open: Evaluations(divided)}
	if label := s.export.Contract.Label(); label != nil {
		out.labels = classesOf(s.export.Contract, label.Name, cmp.Or(s.params.Data.Features[label.Name], label.Name), s.data.manifest)
	}
	err = first.CheckFirst()
	if err == nil {
		err = s.data.peek(ctx, first)
	}
	if err != nil {
		err = ofSplit(s.params, s.export.Contract, split, err)
	}
	if err := errors.Join(err, first.Close()); err != nil {
		return nil, err
	}
	return out, nil
}

// openManager opens the checkpoints of a run folder.
func (s *setup) openManager(folder string, readOnly bool) (*checkpoint.Manager, error) {
	c := checkpoint.ManagerConfig{
		Dir:            filepath.Join(folder, runfolder.Checkpoints),
		State:          s.export.Contract.State,
		ReadOnly:       readOnly,
		IntraOpThreads: s.params.Runtime.IntraOpThreads,
		Logger:         s.env.Log,
	}
	if readOnly { // what is evaluated and exported
		c.Averages = graphs.AveragePrefix
	} else {
		c.MaxToKeep = s.params.Checkpoint.MaxToKeep
		c.KeepEvery = time.Duration(s.params.Checkpoint.KeepEveryHours * float64(time.Hour))
	}
	return checkpoint.OpenManager(c)
}

// openExport opens an export. It returns an error if the graph uses operations that reach beyond
// it and are not allowed. An export in a bucket is copied to this machine.
func openExport(ctx context.Context, path string, env prepareEnv) (*graphs.Export, error) {
	local, err := vfs.Localize(ctx, path, nil)
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	export, err := graphs.Open(local)
	if err != nil {
		return nil, err
	}
	if err := export.RefuseUnsafe(env.AllowOps); err != nil {
		return nil, err
	}
	if unused := safety.Unused(export.Unsafe(), env.AllowOps); len(unused) > 0 {
		env.Log.Warn("--allow-op names operations that the graph does not use, or that need no permission; leave them out", "unused", strings.Join(unused, ","))
	}
	return export, nil
}

// scalarsOf returns the hyperparameters that do not change during a run.
func scalarsOf(p params.Params, c *graphs.Contract) (strategy.Scalars, error) {
	s := strategy.Scalars{"weight_decay": p.Optimizer.WeightDecay, "clip_norm": p.Optimizer.ClipNorm}
	known := c.AllHyperparameters()
	for name, value := range p.Optimizer.Hyperparameters {
		at := slices.IndexFunc(known, func(h graphs.Hyperparameter) bool { return h.Name == name })
		if at < 0 {
			var names []string
			for _, h := range known {
				names = append(names, h.Name)
			}
			return nil, params.Errorf("optimizer.hyperparameters."+name, ": the graph has no such hyperparameter; expected one of %s%s", strings.Join(names, ", "), words.DidYouMean(name, names))
		}
		if err := known[at].Check(value); err != nil {
			return nil, &params.Error{Params: []string{"optimizer.hyperparameters." + name}, Err: fmt.Errorf("optimizer.hyperparameters.%w", err)}
		}
		s[name] = value
	}
	return s, nil
}

// intervals resolves the params that are given in epochs of the training data, and returns the number
// of steps of the run.
func intervals(ctx context.Context, p *params.Params, examples *dataset.Dataset) (int64, error) {
	stepsPerEpoch := examples.BatchesPerEpoch()
	if stepsPerEpoch < 1 {
		return 0, &params.Error{Params: []string{"train.batch_size", "data.drop_remainder"}, Err: fmt.Errorf("split %s of %s has no full batch of %d examples; lower train.batch_size or turn data.drop_remainder off", p.Data.Train, p.Data.Dir, p.Train.BatchSize)}
	}
	steps := p.Train.Steps
	if steps == 0 {
		var err error
		if steps, err = examples.Batches(ctx, p.Train.Epochs); err != nil {
			return 0, fmt.Errorf("train.epochs: %w", err)
		}
	}
	if p.Train.EvalInterval == 0 {
		p.Train.EvalInterval = stepsPerEpoch
	}
	if p.Checkpoint.Interval == 0 {
		p.Checkpoint.Interval = stepsPerEpoch
		if p.Train.EvalInterval > 0 {
			p.Checkpoint.Interval = p.Train.EvalInterval
		}
	}
	return steps, p.CheckSchedule(steps)
}
