package train

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/tfprocess"
	"github.com/gorbit-ml/gorbit/internal/vfs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
)

// Files of a run folder.
const (
	paramsFile = "params.yaml"
	dataFile   = "data.json"
	vocabFile  = "vocab.txt"
	initFile   = "init.txt"
)

// Env is what a job needs of the program around it.
type Env struct {
	// Out takes the lines that tell of progress, one Write each.
	Out io.Writer
	// Log takes everything else.
	Log *slog.Logger
	// Version of the program, for workers of other versions.
	Version string
	// Observer watches the steps, for a progress bar; nil for none.
	Observer runner.Observer
	// AllowOps names operations that reach beyond the graph and are let run all
	// the same, see graphs.Export.RefuseUnsafe.
	AllowOps []string
}

// Train trains what the params say in a run folder, and evaluates. A folder that
// holds a checkpoint is continued from it; the same params then end in the same
// variables, bit for bit, as if the run had not been stopped. It returns the last
// evaluation's outputs, nil where there was none.
//
// The error is a runner.ErrStopped where the context was cancelled: the run was
// saved within a step.
func Train(ctx context.Context, p Params, folder string, env Env) (runner.Outputs, error) {
	if err := p.Absolute(); err != nil {
		return nil, err
	}
	warnKept(p.Keep(folder), env.Log)
	if err := p.Validate(); err != nil {
		return nil, err
	}
	export, err := openExport(p.Graph, env)
	if err != nil {
		return nil, err
	}
	contract := export.Contract
	scalars, err := scalarsOf(p, contract)
	if err != nil {
		return nil, err
	}
	if err := checkBest(p, export); err != nil {
		return nil, err
	}
	records, err := openData(p.Data.Dir)
	if err != nil {
		return nil, err
	}
	if err := records.check(contract); err != nil {
		return nil, err
	}
	train, err := records.open(ctx, p, contract, p.Data.Train, toTrain, env.Log)
	if err != nil {
		return nil, err
	}
	defer train.Close()
	if p.Runtime.Lanes == 0 {
		p.Runtime.Lanes = p.Runtime.lanes(contract.XLA)
	}
	given := p
	steps, err := intervals(&p, train.BatchesPerEpoch())
	if err != nil {
		return nil, err
	}
	var evaluations func(context.Context) (runner.BatchReader[*dataset.Batch], error)
	var evalBatches int64
	if p.Train.EvalInterval != noEval {
		if evaluations, evalBatches, err = evaluationData(ctx, p, contract, records, p.Data.Eval, env.Log); err != nil {
			return nil, err
		}
	}

	if err := vfs.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	unlock, err := checkpoint.Lock(folder)
	if err != nil {
		return nil, err
	}
	defer unlock()

	manager, err := checkpoint.OpenManager(checkpoint.ManagerConfig{
		Dir:            filepath.Join(folder, checkpointFolder),
		MaxToKeep:      p.Checkpoint.MaxToKeep,
		KeepEvery:      time.Duration(p.Checkpoint.KeepEveryHours * float64(time.Hour)),
		IntraOpThreads: p.Runtime.IntraOpThreads,
		Logger:         env.Log,
	})
	if err != nil {
		return nil, err
	}
	defer manager.Close()
	t := &training{params: p, given: given, folder: folder, env: env, export: export, scalars: scalars, records: records,
		data: newSource(train), steps: steps, evaluations: evaluations, evalBatches: evalBatches, manager: manager, before: readPast(folder)}
	if done, err := t.complete(ctx); done || err != nil {
		return t.before.outputs(), err
	}
	return t.run(ctx)
}

// training is a run with all that outlasts the loss of a worker.
type training struct {
	params, given Params // given is what the user wrote, before intervals were worked out
	folder        string
	env           Env
	export        *graphs.Export
	scalars       strategy.Scalars
	records       *data
	data          *source
	steps         int64
	evaluations   func(context.Context) (runner.BatchReader[*dataset.Batch], error)
	evalBatches   int64
	manager       *checkpoint.Manager
	before        *past // of the run; nil for a new one
}

// run trains, and goes on from the last checkpoint where a worker was lost.
func (t *training) run(ctx context.Context) (runner.Outputs, error) {
	for restarts := 0; ; {
		out, err := t.attempt(ctx)
		if err == nil || ctx.Err() != nil {
			return out, err
		}
		if left, some := t.params.Strategy.without(err); t.params.Strategy.Elastic && restarts > 0 && some && !lostWorker(err) {
			t.env.Log.Warn("going on without workers that did not come back", "error", err, "left", left.Workers)
			t.params.Strategy = left
			continue
		}
		if !lostWorker(err) || restarts >= t.params.Strategy.MaxRestarts {
			if restarts > 0 {
				err = fmt.Errorf("%w; restarts so far: %d of at most %d (strategy.max_restarts)", err, restarts, t.params.Strategy.MaxRestarts)
			}
			return nil, err
		}
		restarts++
		// A run without a checkpoint begins again.
		if err := t.data.Seek(nil); err != nil {
			return nil, err
		}
		t.env.Log.Warn("a worker was lost: the run goes on from its last checkpoint", "error", lostCause(err),
			"restart", restarts, "max_restarts", t.params.Strategy.MaxRestarts)
	}
}

// attempt trains until the end, or until a worker is lost.
func (t *training) attempt(ctx context.Context) (out runner.Outputs, err error) {
	p, env, contract, folder := t.params, t.env, t.export.Contract, t.folder
	on, err := p.openModel(ctx, t.export, strategy.FunctionsTrain, p.localData(contract, t.data.Dataset), env)
	if err != nil {
		return nil, err
	}
	s, workers := on.Strategy, on.workers
	if workers != nil {
		defer func() {
			if lostWorker(err) {
				workers.Close()
			} else {
				workers.Finish()
			}
		}()
	}
	defer s.Close()
	if err := allowPrecision(p, contract, computers(s, workers), env.Log); err != nil {
		return nil, err
	}
	m := &model{Strategy: s, export: t.export, scalars: t.scalars, manager: t.manager,
		rows: p.dataset(nil, true), accumulate: p.Strategy.Accumulate, log: env.Log}
	bound(&m.rows, contract)

	data, stopData := t.input(m, on.drawer)
	defer stopData()
	trainer, err := runner.NewStandardTrainer(m, data, runner.TrainerConfig{
		Schedule:   p.schedule(t.steps),
		Seed:       p.Seed,
		MaxSkipped: onlyIf(p.Train.OnNonFinite == "skip", p.Train.MaxNonFinite),
		LossScale:  lossScale(p, contract),
		Out:        env.Out,
		Observer:   env.Observer,
	})
	if err != nil {
		return nil, &ParamsError{err}
	}
	metrics, err := openMetrics(filepath.Join(folder, metricsFile), env.Log)
	if err != nil {
		return nil, err
	}
	defer metrics.Close()
	m.logs = append(m.logs, metrics)
	config := runner.Config{
		Trainer:         trainer,
		Checkpoints:     m,
		StepsPerLoop:    p.Train.StepsPerLoop,
		SaveInterval:    p.Checkpoint.Interval,
		SaveEvaluated:   p.Checkpoint.Best != "",
		SummaryInterval: p.Summary.Interval,
		MaxRollbacks:    onlyIf(p.Train.OnNonFinite == "rollback", p.Train.MaxNonFinite),
		TrainActions:    []runner.Action{metrics.action("train")},
		EvalActions:     []runner.Action{metrics.action("eval")},
		Persist:         map[string]runner.Persistent{"metrics": metrics, graphState: graphIdentity(contract.Model)},
		Out:             env.Out,
		Observer:        env.Observer,
	}
	if t.evaluations != nil {
		config.Evaluator = runner.NewStandardEvaluator(m, t.evaluations, runner.EvaluatorConfig{Batches: t.evalBatches, InFlight: s.Runtime().InFlight, Observer: env.Observer})
		if err := keepBest(p, m, &config); err != nil {
			return nil, err
		}
	}
	board := new(board)
	if p.Summary.Enabled {
		config.TrainSummaries, config.EvalSummaries = &board.train, &board.eval
		m.logs = append(m.logs, board)
		if p.Summary.Histograms {
			config.EvalActions = append(config.EvalActions, board.histograms(m))
		}
	}
	var watched *replicas
	if len(s.Runtime().Devices) > 1 {
		watched = &replicas{model: m, fleet: workers}
		config.TrainActions = append(config.TrainActions, watched.action(board, env.Log))
	}
	controller, err := runner.NewController(config)
	if err != nil {
		return nil, &ParamsError{err}
	}
	if watched != nil {
		watched.times = controller.Times
	}

	restored, err := controller.Restore(ctx)
	if err != nil {
		return nil, err
	}
	if restored == "" {
		if err := metrics.Restore(nil); err != nil {
			return nil, err
		}
		if err := m.initialize(ctx, p.Init, p.Strict, filepath.Join(folder, initFile), env.Out); err != nil {
			return nil, err
		}
	}
	if err := m.protectBest(); err != nil {
		return nil, err
	}
	// Not before: a command that is refused leaves the folder as it was.
	if err := t.record(controller.Step(), restored); err != nil {
		return nil, err
	}
	if p.Summary.Enabled {
		if err := board.open(folder, controller.Step(), p, s); err != nil {
			return nil, err
		}
		defer board.close(env.Log)
	}
	if done := controller.Step(); done > t.steps {
		env.Log.Warn("the run is further than asked for: nothing is left to train", "step", done, "steps", t.steps)
	}
	// The values that the variables were given would be kept until the collector's next turn.
	tfprocess.Reclaim()
	runtime := s.Runtime()
	env.Log.Info("runtime", "devices", strings.Join(runtime.Devices, ","), "onednn", p.Runtime.OneDNN, "precision", contract.Precision, "xla", contract.XLA, "kernels", cmp.Or(runtime.Kernels, "off"),
		"intra_op_threads", runtime.IntraOpThreads, "inter_op_threads", runtime.InterOpThreads)
	if n := runtime.MicroBatches * m.accumulate; n > 1 {
		count := len(runtime.Devices)
		env.Log.Info("strategy", "replicas", count, "lanes", runtime.MicroBatches/count, "accumulate", m.accumulate, "examples_per_micro_batch", float64(p.Train.BatchSize)/float64(n),
			"shard_optimizer", p.Strategy.ShardOptimizer && count > 1, "optimizer_mb_per_replica", rounded(float64(slices.Max(runtime.OptimizerBytes))/(1<<20), 1))
	}
	env.Log.Info("training", "steps", t.steps, "steps_per_epoch", t.data.BatchesPerEpoch(), "examples", t.data.NumExamples(),
		"global_batch_size", p.Train.BatchSize, "parameters", contract.Parameters())
	if t.evaluations == nil {
		err = controller.Train(ctx, t.steps)
	} else {
		out, err = controller.TrainAndEvaluate(ctx, t.steps, evalSteps(p), max(p.Train.EvalInterval, 0))
	}
	if d := t.data.Damaged(); d.Records > 0 {
		env.Log.Warn("damaged records were skipped", "records", d.Records)
	}
	if t := controller.Times(); t.InModel > 0 && !lostWorker(err) {
		env.Log.Info("trained", "seconds", rounded(t.Training.Seconds(), 1), "loop_overhead_percent", rounded(100*t.Overhead(), 3),
			"peak_memory_mb", peakMemory()>>20)
		if watched != nil {
			if err := watched.table(env.Out); err != nil {
				return out, err
			}
		}
	}
	return out, err
}

// rounded returns a number with so many digits behind the point, for people.
func rounded(v float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(v*unit) / unit
}

// peakMemory is the most bytes that the process had in memory.
func peakMemory() int64 { return resources().Maxrss << 10 }

// processorTime is what the process has computed, on all cores together.
func processorTime() time.Duration {
	u := resources()
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resources are what the process has used, nothing where the system does not say.
func resources() (u syscall.Rusage) {
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return syscall.Rusage{}
	}
	return u
}

func onlyIf(condition bool, n int64) int64 {
	if condition {
		return n
	}
	return 0
}

func evalSteps(p Params) int64 {
	if p.Eval.Steps == 0 {
		return runner.UntilEnd
	}
	return p.Eval.Steps
}

// openExport opens an export and refuses operations that reach beyond the graph.
func openExport(path string, env Env) (*graphs.Export, error) {
	export, err := graphs.Open(path)
	if err != nil {
		return nil, err
	}
	return export, export.RefuseUnsafe(env.AllowOps)
}

// scalarsOf returns the scalars that stay the same for a run.
func scalarsOf(p Params, c *graphs.Contract) (strategy.Scalars, error) {
	s := strategy.Scalars{"weight_decay": p.Optimizer.WeightDecay, "clip_norm": p.Optimizer.ClipNorm}
	known := c.AllHyperparameters()
	for name, value := range p.Optimizer.Hyperparameters {
		at := slices.IndexFunc(known, func(h graphs.Hyperparameter) bool { return h.Name == name })
		if at < 0 {
			var names []string
			for _, h := range known {
				names = append(names, h.Name)
			}
			return nil, &ParamsError{fmt.Errorf("optimizer.hyperparameters.%s: the graph has no such hyperparameter, only %s", name, strings.Join(names, ", "))}
		}
		if err := known[at].Check(value); err != nil {
			return nil, &ParamsError{fmt.Errorf("optimizer.hyperparameters.%w", err)}
		}
		s[name] = value
	}
	return s, nil
}

// intervals resolves the params that are counted in epochs, and returns the
// number of steps of the run.
func intervals(p *Params, stepsPerEpoch int64) (int64, error) {
	if stepsPerEpoch < 1 {
		return 0, &ParamsError{fmt.Errorf("split %s of %s gives no batch of %d examples: lower train.batch_size or turn data.drop_remainder off", p.Data.Train, p.Data.Dir, p.Train.BatchSize)}
	}
	steps := p.Train.Steps
	if steps == 0 {
		steps = max(1, int64(math.Round(p.Train.Epochs*float64(stepsPerEpoch))))
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
	if err := p.schedule(steps).Validate(); err != nil {
		return 0, &ParamsError{fmt.Errorf("optimizer: %w", err)}
	}
	return steps, nil
}

// evaluationData checks that a split can be read and returns how to open it
// anew for every evaluation, and its number of batches.
func evaluationData(ctx context.Context, p Params, c *graphs.Contract, records *data, split string, log *slog.Logger) (func(context.Context) (runner.BatchReader[*dataset.Batch], error), int64, error) {
	open := func(ctx context.Context) (*dataset.Dataset, error) {
		return records.open(ctx, p, c, split, toEvaluate, log)
	}
	first, err := open(ctx)
	if err != nil {
		return nil, 0, err
	}
	batches := first.BatchesPerEpoch()
	if err := first.Close(); err != nil {
		return nil, 0, err
	}
	return func(ctx context.Context) (runner.BatchReader[*dataset.Batch], error) {
		d, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return newSource(d), nil
	}, batches, nil
}

// Flat returns the params by their names, section.name; texts are quoted.
func (p Params) Flat() map[string]any {
	out := make(map[string]any)
	var add func(path string, v reflect.Value)
	add = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for f, field := range v.Fields() {
				add(strings.TrimPrefix(path+"."+f.Tag.Get("yaml"), "."), field)
			}
		case reflect.Map:
			for key, value := range v.Seq2() {
				add(path+"."+key.String(), value)
			}
		case reflect.String:
			out[path] = strconv.Quote(v.String())
		default:
			out[path] = v.Interface()
		}
	}
	add("", reflect.ValueOf(p))
	return out
}

// replaceFile writes a file that is there whole or not at all.
func replaceFile(path string, content []byte) error {
	return vfs.ReplaceFile(vfs.At(path), path, path+".part", content)
}

// metricsOf returns the metrics that evaluations of a graph give, of made-up sums.
func metricsOf(export *graphs.Export) (runner.Outputs, error) {
	sums := make(runner.Sums)
	for _, a := range export.Functions["evaluate"].Outputs {
		n := int64(1)
		for _, d := range a.Shape {
			n *= max(d, 1)
		}
		if a.Name == confusion && len(a.Shape) == 2 && a.Shape[0] < 1 {
			n = int64(export.Contract.Model.NumLabels) * int64(export.Contract.Model.NumLabels)
		}
		sums[a.Name] = slices.Repeat([]float64{1}, int(n))
	}
	return runner.Metrics(sums)
}

// confusion is the sum whose open dimensions are the labels.
const confusion = "confusion"

// keepBest adds what keeps the best checkpoint, and what stops early.
func keepBest(p Params, m *model, config *runner.Config) error {
	if p.Checkpoint.Best == "" {
		return nil
	}
	order, err := p.Checkpoint.order()
	if err != nil {
		return err
	}
	best := runner.NewBest(p.Checkpoint.Best, order)
	config.Persist[bestState] = best
	config.EvalActions = append(config.EvalActions, best.Commit)
	m.best = best
	if p.Train.Patience > 0 {
		stopping, err := runner.NewEarlyStopping(p.Checkpoint.Best, order, p.Train.Patience, 0)
		if err != nil {
			return &ParamsError{err}
		}
		config.Persist["early_stopping"] = stopping
		config.EvalActions = append(config.EvalActions, stopping.Check)
	}
	return nil
}
