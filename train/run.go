package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/run/generated"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/record"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Run is a run folder opened for reading: to evaluate, predict or export. Another process may be
// training in the folder.
type Run struct {
	Folder string
	// Remote is the run's folder in a bucket, of which Folder is a copy; "" if there is none.
	Remote string
	Params params.Params
	// Export is the run's graph.
	Export *graphs.Export
	// Manifest describes the run's data; nil if the data has no manifest.
	Manifest *convert.Manifest
	// TopK is the number of tokens that predictions propose for a masked one; 0 means
	// predict.DefaultTopK.
	TopK int
	// Skip, if set, is called with the *predict.LineError of a text or row of a file that cannot be
	// answered, and the others are answered.
	Skip func(error)
	// Sources is the folder in which EvaluateExamples looks for the files that the data were made of, to
	// read texts. "" means the folder of the data, the one that this is in, and the current one.
	Sources string
	// GenerateTexts makes evaluations also generate and score texts, as the params eval.generate say; without
	// eval.generate.examples, for all examples.
	GenerateTexts bool
	// Temporary says that Close removes the folder.
	Temporary bool

	env         Env
	checkpoints *loop.Checkpoints
	on          prepare.Placed
	// loaded is the checkpoint that Load restored. held says that the variables have its values.
	loaded runner.Restored
	held   bool
	// texts are those of the last evaluation with GenerateTexts.
	texts *generated.Evaluator
}

// pinned is a Checkpointer that restores one checkpoint and saves nothing.
type pinned struct {
	*loop.Checkpoints
	run *Run
}

// Restore implements runner.Checkpointer. The variables may have the values of the checkpoint already.
func (p *pinned) Restore(ctx context.Context, _ string) (runner.Restored, error) {
	if p.run.held {
		return p.run.loaded, nil
	}
	restored, err := p.Checkpoints.Restore(ctx, p.run.loaded.Path)
	if err == nil && restored.Path != "" {
		p.run.loaded, p.run.held = restored, true
	}
	return restored, err
}

// OpenRun opens a run folder and composes its graph for evaluation. settings, of the form
// "section.name=value", override those of the run's params that matter for reading. The variables have no values until Load or
// EvaluateContinuously restores a checkpoint.
func OpenRun(ctx context.Context, folder string, settings []string, env Env) (*Run, error) {
	env = env.withDefaults()
	remote := folder
	if vfs.Scheme(folder) == "" {
		remote = ""
	}
	folder, err := runfolder.LocalRun(ctx, folder, "")
	if err != nil {
		return nil, err
	}
	p, err := runfolder.ReadParams(folder)
	if err != nil {
		return nil, err
	}
	if err := toRead(&p, settings); err != nil {
		return nil, err
	}
	graph, err := runfolder.GraphToRead(p, folder, settings, env.Log)
	if err != nil {
		return nil, err
	}
	setup, err := prepare.Of(ctx, p, graph, env.prepare())
	if err != nil {
		return nil, err
	}
	r := &Run{Folder: folder, Remote: remote, Params: p, Export: setup.Export, env: env}
	if r.Manifest, err = runfolder.ReadManifest(folder); err != nil {
		return nil, err
	}
	r.Params.Data.RowLength = cmp.Or(p.Data.RowLength, prepare.RowLengthOf(r.Manifest, r.Export.Contract))
	if p.Strategy.Kind() == devices.TPU {
		if err := fixShape(&r.Params, r.Export.Contract, r.Manifest); err != nil {
			return nil, err
		}
	}
	manager, err := setup.OpenManager(folder, true)
	if err != nil {
		return nil, err
	}
	in := env.prepare()
	in.Folder = folder
	on, err := prepare.OpenModel(ctx, r.Params, r.Export, strategy.FunctionsEvaluate, nil, in)
	if err != nil {
		return nil, lostInRead(err)
	}
	r.on, r.checkpoints = on, loop.NewCheckpoints(manager, on, r.Export.Contract, env.Log)
	r.checkpoints.Names = prepare.NamesOf(r.Manifest, p.Data.Features, r.Export.Contract)
	all := prepare.Computers(on.Strategy, on.Workers)
	if err := prepare.PossiblePrecision(p, r.Export.Contract.Precision, all); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	prepare.WarnPrecision(r.Export.Contract, all, env.Log)
	return r, nil
}

// toRead sets what reading a run takes of its params, and applies settings.
func toRead(p *params.Params, settings []string) error {
	if err := params.CheckReading(settings); err != nil {
		return err
	}
	// A run may be evaluated on other devices than it was trained on.
	p.Strategy, p.Runtime.Lanes = params.Defaults().Strategy, 0
	// How often the training evaluated does not matter for an evaluation that generates texts.
	if p.Train.EvalInterval == params.NoEval {
		p.Train.EvalInterval = params.Defaults().Train.EvalInterval
	}
	on := *p
	if err := on.Load(nil, settings); err != nil {
		return err
	}
	if on.Strategy.Kind() == devices.TPU {
		// The threads and kernels of the training do not matter there; those of the settings are refused.
		p.Runtime = params.Runtime{OneDNN: p.Runtime.OneDNN, Kernels: params.Defaults().Runtime.Kernels}
	}
	if on.Strategy.Offload == params.OffloadDisk {
		return params.Errorf("strategy.offload", "is disk, which is for the slots of the optimizer in gorbit train; expected all, for the variables")
	}
	if err := p.Load(nil, settings); err != nil {
		return err
	}
	if p.Data.Rows > p.Train.BatchSize { // the rows may be those of evaluations
		p.Train.BatchSize, p.Train.BatchWarmup = p.Data.Rows, ""
	}
	return p.Validate()
}

// setup returns a set-up of the run, whose data are not open.
func (r *Run) setup() *prepare.Setup { return prepare.Over(r.Params, r.Export, r.env.prepare()) }

// Close frees the graph, disconnects from the workers, and shuts the TPU down.
func (r *Run) Close() error {
	err := errors.Join(r.checkpoints.Manager.Close(), r.on.Close())
	if r.on.Workers != nil {
		err = errors.Join(err, r.on.Workers.Close())
	}
	if r.on.Tpu != nil {
		probe, cancel := context.WithTimeout(context.Background(), prepare.LostShutdownTimeout)
		defer cancel()
		prepare.ShutTPU(probe, r.on.Tpu, r.on.Tpu.Probe(probe) != nil, r.env.Log)
	}
	if r.Temporary {
		err = errors.Join(err, vfs.RemoveAll(r.Folder))
	}
	return err
}

// VocabPath returns the path of the run's vocabulary file, a vocab.txt, a tokenizer.json or a tokenizer.model, or "" if it has none.
func (r *Run) VocabPath() string {
	if m := r.Manifest; m != nil && m.HasVocab() {
		if path := filepath.Join(r.Folder, m.Vocab.Kept()); prepare.Exists(path) {
			return path
		}
	}
	return tokenizers.Exists(r.Folder)
}

// Load restores a checkpoint: Latest, Best, BestOrLatest, "" for the latest, or a step. It returns
// the step.
func (r *Run) Load(ctx context.Context, which string) (int64, error) {
	prefix := ""
	if which == params.BestOrLatest {
		which = r.bestOrLatest()
	}
	switch which {
	case "", params.Latest:
	case params.Best:
		step, err := loop.BestStep(r.checkpoints.Manager)
		if errors.Is(err, loop.ErrNoBest) {
			return 0, fmt.Errorf("run %s has no best checkpoint: it was not evaluated yet, or checkpoint.best is empty", r.Folder)
		}
		if err != nil {
			return 0, fmt.Errorf("best checkpoint of run %s: %w", r.Folder, err)
		}
		which, prefix = fmt.Sprintf("%d, which is the best", step), r.checkpoints.Prefix(step)
	default:
		step, err := strconv.ParseInt(strings.TrimPrefix(which, "ckpt-"), 10, 64)
		if err != nil {
			return 0, &params.Error{Err: fmt.Errorf("checkpoint is %q; expected latest, best, best-or-latest or a step%s", which, words.DidYouMean(which, []string{params.Latest, params.Best, params.BestOrLatest}))}
		}
		prefix = r.checkpoints.Prefix(step)
	}
	restored, err := r.checkpoints.Restore(ctx, prefix)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("run %s has no checkpoint %s; %s", r.Folder, which, expectedSteps(r.checkpoints.Manager))
	}
	if err != nil {
		return 0, lostInRead(err)
	}
	if restored.Path == "" {
		return 0, fmt.Errorf("run %s has no checkpoint yet", r.Folder)
	}
	r.loaded, r.held = restored, true
	return restored.Step, nil
}

// Results returns the outputs of the evaluation of the checkpoint that Load restored, or nil if the
// run has not evaluated it.
func (r *Run) Results() runner.Outputs {
	state, err := runner.ParseRunState(r.loaded.State)
	if err != nil || state.Evaluated == nil || state.Evaluated.Step != state.Step {
		return nil
	}
	return state.Evaluated.Outputs
}

// bestOrLatest returns what BestOrLatest means for the run. It logs the choice if the best checkpoint
// is not the latest.
func (r *Run) bestOrLatest() string {
	best, err := loop.BestStep(r.checkpoints.Manager)
	if errors.Is(err, loop.ErrNoBest) {
		return params.Latest
	}
	// Load reports any other error.
	if newest, newestErr := r.checkpoints.Manager.Newest(); err == nil && newestErr == nil && newest.Step != best {
		r.env.Log.Info("using the best checkpoint, which is not the latest; --checkpoint chooses another", "step", best, "latest", newest.Step)
	}
	return params.Best
}

// controller returns a controller that only evaluates on a split; "" means the run's own. It calls each
// with the results. summaries may be nil.
func (r *Run) controller(ctx context.Context, split string, checkpoints runner.Checkpointer, summaries runner.Summaries, each func(*evaluation.Evaluation) error) (*runner.Controller, error) {
	split = cmp.Or(split, r.Params.Data.Eval.First())
	s := r.setup()
	if r.on.Tpu != nil {
		s.Cores = len(r.on.Runtime().Devices)
	}
	if err := s.OpenData(); err != nil {
		return nil, err
	}
	if err := prepare.PreflightSplit(s, r.Folder, split, prepare.ToEvaluate); err != nil {
		return nil, err
	}
	of, err := s.Evaluations(ctx, split)
	if err != nil {
		return nil, err
	}
	task, reduce, err := s.ForSplit(ctx, loop.NewTask(ctx, r.Export.Contract, r.on.Strategy), split)
	if err != nil {
		return nil, err
	}
	model := loop.NewModel(r.on.Strategy, nil, r.env.Log)
	model.Reduce = reduce
	evaluator, err := r.withTexts(s, split, of.Evaluator(model, task, runner.EvaluatorConfig{InFlight: r.on.Runtime().InFlight, Observer: r.env.Observer}))
	if err != nil {
		return nil, err
	}
	c, err := runner.NewController(runner.Config{
		Evaluator: evaluator,
		EvalActions: []runner.Action{func(_ context.Context, step int64, out runner.Outputs) error {
			e, err := of.Result(r.Export.Contract, task, evaluation.ByEvaluate, step, out)
			if err != nil {
				return err
			}
			e.Checkpoint = fmt.Sprintf("ckpt-%d", step)
			return each(e)
		}},
		EvalSummaries: summaries,
		Checkpoints:   checkpoints,
		Out:           r.env.Out,
		Observer:      r.env.Observer,
	})
	if err != nil {
		return nil, &params.Error{Err: err}
	}
	return c, nil
}

// withTexts adds what evaluations generate to an evaluator, if they are to.
func (r *Run) withTexts(s *prepare.Setup, split string, plain runner.Evaluator) (runner.Evaluator, error) {
	if !r.GenerateTexts {
		return plain, nil
	}
	s.Params.Eval.Generate.Metrics = cmp.Or(s.Params.Eval.Generate.Metrics, params.UsualScores)
	if err := prepare.CheckGenerate(s.Params, r.Export.Contract, s.Data.Manifest); err != nil {
		return nil, err
	}
	tokenizer, err := r.Tokenizer("", nil)
	if err != nil {
		return nil, err
	}
	if r.texts, err = textsOf(s, r.on, split, tokenizer); err != nil {
		return nil, err
	}
	r.texts.Evaluator = plain
	return r.texts, nil
}

// Evaluate evaluates the loaded checkpoint on a split; "" means the run's own. It returns the metrics.
func (r *Run) Evaluate(ctx context.Context, split string) (runner.Outputs, error) {
	e, err := r.Evaluation(ctx, split)
	if err != nil {
		return nil, err
	}
	return e.Metrics, nil
}

// Evaluation evaluates the loaded checkpoint on a split; "" means the run's own.
func (r *Run) Evaluation(ctx context.Context, split string) (*evaluation.Evaluation, error) {
	var out *evaluation.Evaluation
	c, err := r.controller(ctx, split, &pinned{r.checkpoints, r}, nil, func(e *evaluation.Evaluation) error {
		out = e
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, err := c.Restore(ctx); err != nil {
		return nil, lostInRead(err)
	}
	if _, err = c.Evaluate(ctx, evalSteps(r.Params)); err != nil {
		return nil, lostInRead(err)
	}
	return out, nil
}

// AwaitRun waits until a training process has started to write a run folder. It returns an error
// after the timeout; 0 means no limit.
func AwaitRun(ctx context.Context, folder string, timeout time.Duration, env Env) error {
	env = env.withDefaults()
	var late <-chan time.Time
	if timeout > 0 {
		late = time.After(timeout)
	}
	for said := false; ; said = true {
		params := vfs.Join(folder, runfolder.Params)
		_, err := vfs.Stat(params)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if !said {
			fmt.Fprintf(env.Out, "waiting for a run in %s...\n", folder)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return fmt.Errorf("no run started in %s within %v", folder, timeout)
		case <-time.After(time.Second):
		}
	}
}

// EvaluateContinuously evaluates every new checkpoint of the run and calls each with the results,
// until no new checkpoint appears within the timeout. Results are also written to a separate event
// file for the split, because those of train and eval belong to the training process, which
// rewrites events when it restarts. A run in a bucket gets no such file.
func (r *Run) EvaluateContinuously(ctx context.Context, split string, timeout time.Duration, each func(*evaluation.Evaluation) error) (err error) {
	split = cmp.Or(split, r.Params.Data.Eval.First())
	var summaries runner.Summaries
	show := each
	var checkpoints runner.Checkpointer = r.checkpoints
	watch := runner.Watch{Steps: evalSteps(r.Params), Timeout: timeout}
	if r.Remote != "" {
		copies := &remoteCheckpoints{Checkpoints: r.checkpoints, folder: r.Remote, step: -1, open: func(local string) (*checkpoint.Manager, error) {
			return r.setup().OpenManager(local, true)
		}}
		defer func() { err = errors.Join(err, copies.close()) }()
		checkpoints, watch.Poll = copies, remotePoll
	} else if r.Params.Summary.Enabled {
		name := "eval-" + strings.ReplaceAll(split, string(filepath.Separator), "-")
		followed := &record.Followed{Folder: filepath.Join(r.Folder, name), Log: r.env.Log}
		defer func() { err = errors.Join(err, followed.Close()) }()
		summaries = followed
		show = func(e *evaluation.Evaluation) error { return cmp.Or(e.Show(followed, ""), each(e)) }
	}
	c, err := r.controller(ctx, split, checkpoints, summaries, show)
	if err != nil {
		return err
	}
	r.held = false
	_, err = c.EvaluateContinuously(ctx, watch)
	return lostInRead(err)
}

// Variables returns the values of the model's variables by name, those that have an adapter with the
// adapter in them.
func (r *Run) Variables(ctx context.Context) (map[string]*tf.Tensor, error) {
	var names, reads []string
	for _, v := range r.on.Variables() {
		names, reads = append(names, v.Name), append(reads, v.Name)
	}
	for _, name := range r.Export.Contract.Merge {
		names, reads = append(names, name), append(reads, graphs.MergePrefix+name)
	}
	values, err := r.on.Read(ctx, reads...)
	if err != nil {
		return nil, err
	}
	out := make(map[string]*tf.Tensor, len(names))
	for i, name := range names {
		out[name] = values[i]
	}
	return out, nil
}
