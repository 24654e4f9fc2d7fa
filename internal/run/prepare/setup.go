package prepare

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
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Env is what a set-up takes of the environment of a run; train.Env describes the fields.
type Env struct {
	Log      *slog.Logger
	Version  string
	Keys     cluster.ClientKeys
	Sockets  string
	AllowOps []string
	// Folder is that of a run, in which strategy.offload keeps files; "" is the current one.
	Folder string
}

// Setup holds what every use of a run needs: its params, graph, data and environment.
type Setup struct {
	// Params are the run's.
	Params params.Params
	// Export has the graph.
	Export *graphs.Export
	// Data has the records; nil before OpenData.
	Data *Data
	// Env is the environment of the run.
	Env Env
	// Cores is the number of micro-batches that batches of evaluations are divided into, one for
	// each core of a TPU; 0 elsewhere.
	Cores int
	// Chosen is set if data.rows was not given, and was chosen for a TPU, or for GPUs and XLA.
	Chosen bool
}

// New opens the graph that the params name.
func New(ctx context.Context, p params.Params, env Env) (*Setup, error) {
	return Of(ctx, p, p.Graph, env)
}

// Of opens a graph, which may be the run's own copy of the one that the params name.
func Of(ctx context.Context, p params.Params, graph string, env Env) (*Setup, error) {
	export, err := OpenExport(ctx, graph, env)
	if err != nil {
		return nil, err
	}
	p.Checkpoint.ResolveBest(export.Contract)
	return Over(p, export, env), nil
}

// Over returns a set-up over a graph that is open. Its data are not open.
func Over(p params.Params, export *graphs.Export, env Env) *Setup {
	return &Setup{Params: p, Export: export, Env: env}
}

// OpenData opens the folder of the data.
func (s *Setup) OpenData() (err error) {
	s.Data, err = OpenData(s.Params.Data.Dir)
	return err
}

// Open opens a split of the data.
func (s *Setup) Open(ctx context.Context, split string, use use) (*dataset.Dataset, error) {
	return s.Data.Open(ctx, s.Params, s.Export.Contract, split, use, s.Env.Log)
}

// Evaluations checks that a split can be read, and returns it.
func (s *Setup) Evaluations(ctx context.Context, split string) (*Evaluated, error) {
	open := func(ctx context.Context) (*dataset.Dataset, error) { return s.Open(ctx, split, ToEvaluate) }
	divided := func(ctx context.Context) (*dataset.Dataset, error) {
		d, err := open(ctx)
		if err == nil && s.Cores > 0 {
			d.Divide(s.Cores, 0)
		}
		return d, err
	}
	first, err := open(ctx)
	if err != nil {
		return nil, err
	}
	out := &Evaluated{Split: split, Batches: first.BatchesPerEpoch(), Records: first.NumExamples(), Open: loop.Evaluations(divided)}
	if label := s.Export.Contract.Label(); label != nil {
		out.labels = ClassesOf(s.Export.Contract, label.Name, cmp.Or(s.Params.Data.Features[label.Name], label.Name), s.Data.Manifest)
	}
	err = first.CheckFirst()
	if err == nil {
		err = s.Data.peek(ctx, first)
	}
	if err != nil {
		err = OfSplit(s.Params, s.Export.Contract, split, err)
	}
	if err := errors.Join(err, first.Close()); err != nil {
		return nil, err
	}
	return out, nil
}

// EvaluatedSplits returns the splits of data.eval, as Evaluations does.
func (s *Setup) EvaluatedSplits(ctx context.Context) ([]*Evaluated, error) {
	var out []*Evaluated
	for _, split := range s.Params.Data.Eval {
		of, err := s.Evaluations(ctx, split)
		if err != nil {
			return nil, err
		}
		out = append(out, of)
	}
	return out, nil
}

// OpenManager opens the checkpoints of a run folder.
func (s *Setup) OpenManager(folder string, readOnly bool) (*checkpoint.Manager, error) {
	c := checkpoint.ManagerConfig{
		Dir:            filepath.Join(folder, runfolder.Checkpoints),
		State:          s.Export.Contract.State,
		ReadOnly:       readOnly,
		IntraOpThreads: s.Params.Runtime.IntraOpThreads,
		Logger:         s.Env.Log,
	}
	if readOnly { // what is evaluated and exported
		c.Averages = graphs.AveragePrefix
	} else {
		c.MaxToKeep = s.Params.Checkpoint.MaxToKeep
		c.KeepEvery = time.Duration(s.Params.Checkpoint.KeepEveryHours * float64(time.Hour))
	}
	return checkpoint.OpenManager(c)
}

// OpenExport opens an export. It returns an error if the graph uses operations that reach beyond
// it and are not allowed. An export in a bucket is copied to this machine.
func OpenExport(ctx context.Context, path string, env Env) (*graphs.Export, error) {
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

// ScalarsOf returns the hyperparameters that do not change during a run.
func ScalarsOf(p params.Params, c *graphs.Contract) (strategy.Scalars, error) {
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

// Intervals resolves the params that are given in epochs of the training data or as shares of all steps, and returns the number
// of steps of the run.
func Intervals(ctx context.Context, p *params.Params, examples *dataset.Dataset) (int64, error) {
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
	epoch := params.Interval(stepsPerEpoch)
	if p.Train.StepsPerLoop == 0 {
		p.Train.StepsPerLoop = epoch
	}
	if p.Train.EvalInterval == 0 {
		p.Train.EvalInterval = epoch
	}
	for _, interval := range []*params.Interval{&p.Train.StepsPerLoop, &p.Train.EvalInterval, &p.Checkpoint.Interval} {
		*interval = interval.Of(steps)
	}
	if p.Checkpoint.Interval == 0 {
		p.Checkpoint.Interval = epoch
		if p.Train.EvalInterval > 0 {
			p.Checkpoint.Interval = p.Train.EvalInterval
		}
	}
	return steps, p.CheckSchedule(steps)
}
