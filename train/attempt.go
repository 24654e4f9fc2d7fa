package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/peak"
	"github.com/gorbit-ml/gorbit/internal/exec/reclaim"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/record"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/task"
)

// attempt is one try at a training, which ends early if a worker is lost.
type attempt struct {
	*training
	on          prepare.Placed
	task        task.Task
	model       *loop.Model
	evaluators  splitEvaluators // nil without evaluations
	checkpoints *loop.Checkpoints
	metrics     *record.MetricsLog
	files       evaluationFiles
	kept        keptFiles
	board       *record.Board
	watched     *record.Replicas // nil if there is only one replica
	profile     *record.Profile  // nil without train.profile
	phases      *phases
	saves       *measuredSaves
	controller  *runner.Controller
}

// attempt trains until the end, or until a worker is lost.
func (t *training) attempt(ctx context.Context) (out runner.Outputs, err error) {
	contract := t.Export.Contract
	on, err := t.place(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { on.Release(ctx, err, t.env.Log) }()
	defer on.Close()
	if err := prepare.AllowPrecision(t.Params, contract, prepare.Computers(on.Strategy, on.Workers), t.env.Log); err != nil {
		return nil, err
	}
	if t.env.Placed != nil {
		t.env.Placed(on.Runtime())
	}
	if on.Tpu != nil {
		t.Cores = len(on.Runtime().Devices)
	}
	filled := new(loop.Filling)
	data, stopData := t.source(on, filled)
	defer stopData()
	metrics, err := record.OpenMetrics(filepath.Join(t.folder, runfolder.Metrics), t.env.Log)
	if err != nil {
		return nil, err
	}
	defer metrics.Close()
	a := &attempt{training: t, on: on, task: loop.NewTask(ctx, contract, on.Strategy), metrics: metrics, board: new(record.Board),
		model: loop.NewModel(on.Strategy, t.scalars, t.env.Log), phases: &phases{journal: &t.journal, fill: filled, total: &t.journal.spent}, checkpoints: loop.NewCheckpoints(t.manager, on, contract, t.env.Log)}
	if a.checkpoints.Names, err = t.names(); err != nil {
		return nil, err
	}
	if lengths := t.Params.RowLengths(); lengths != nil {
		layout, attention := prepare.PackedFor(t.Params, contract), graphs.FLOPs{PerTokenPair: t.flops().PerTokenPair}
		a.model.Cut = func(features []strategy.Feature, step int64) ([]strategy.Feature, float64) {
			cut := layout.CutRows(features, lengths(step))
			return cut, attention.Work(graphs.Work{Pairs: packed.Pairs(cut)})
		}
	}
	a.checkpoints.Logs = append(a.checkpoints.Logs, metrics, &a.files, &a.kept)
	a.checkpoints.Frozen = append(a.checkpoints.Frozen, t.groups.Frozen()...)
	if t.evaluations != nil {
		if a.evaluators, err = a.evaluatorsOf(ctx); err != nil {
			return nil, err
		}
	}
	if err := a.control(data, filled); err != nil {
		return nil, err
	}
	if err := a.begin(ctx); err != nil {
		return nil, err
	}
	defer a.board.Close(t.env.Log)
	a.announce()
	t.journalStart(on.Runtime(), a.controller.Step)
	a.phases.train()
	if t.evaluations == nil {
		err = a.controller.Train(ctx, t.steps)
	} else {
		out, err = a.controller.TrainAndEvaluate(ctx, t.steps, evalSteps(t.Params), t.Params.Train.EvalInterval.Steps())
	}
	err = a.endProfile(err)
	a.phases.trained(a.controller.Step())
	a.journalPhases(a.phases.take())
	if failed := a.report(err); failed != nil {
		return out, failed
	}
	return out, err
}

// source returns the batches of an attempt and a function that ends them. It counts in filled how full
// their rows are, where this process reads them.
func (t *training) source(on prepare.Placed, filled *loop.Filling) (runner.Source[*loop.Batch], func()) {
	if t.Params.Strategy.Input != params.InputLocal {
		fed := loop.NewSource(t.examples, on, t.Params.Strategy.Accumulate)
		fed.Filled, fed.Flops = filled, t.flops()
		if t.Params.Train.LengthWarmup != "" {
			fed.Flops.PerTokenPair = 0 // model.Cut counts the pairs, which differ from step to step
		}
		// A TPU does not accumulate, and sums of other parts would be other sums.
		fed.Whole = on.Tpu != nil || !t.Export.Contract.Additive
		return fed, func() {}
	}
	local := newLocalSource(t.examples, on.Drawer, t.Params.Strategy.Accumulate, t.env.Log)
	local.flops = t.flops()
	return local, local.wait
}

// flops returns what the model costs, as far as it is known: the backward pass of frozen layers is
// left out in part, and the contract does not say what it would take. Nor does it say what phases compute:
// the model of the contract is what predictions call.
func (t *training) flops() graphs.FLOPs {
	if len(t.groups.Frozen()) > 0 || len(t.Export.Contract.Phases) > 0 {
		return graphs.FLOPs{}
	}
	return t.Export.Contract.Model.FLOPs
}

// control builds the controller and everything that it calls.
func (a *attempt) control(data runner.Source[*loop.Batch], filled *loop.Filling) error {
	p, env, contract := a.Params, a.env, a.Export.Contract
	plateau, err := newPlateau(p, a.task, a.steps, env.Out)
	if err != nil {
		return err
	}
	explain, err := a.inspect()
	if err != nil {
		return err
	}
	if a.profile != nil {
		data = a.profile.Source(data)
	}
	trainer, err := runner.NewStandardTrainer(a.model, data, runner.TrainerConfig{
		Schedule:     p.ScheduleConfig(a.steps),
		Plateau:      plateau,
		OwnSchedule:  contract.Optimizer.Scheduled,
		Seed:         p.Seed,
		MaxSkipped:   onlyIf(p.Train.OnNonFinite == "skip", p.Train.MaxNonFinite),
		LossScale:    prepare.LossScale(p, contract),
		Explain:      explain,
		StepsPerCall: a.on.Runtime().StepsPerCall,
		Metrics:      a.task.Measure,
		Out:          env.Out,
		Observer:     env.Observer,
	})
	if err != nil {
		return &params.Error{Err: err}
	}
	a.phases.model, a.phases.done = a.model, trainer.Done
	state := &runfolder.GrowingTrainerState{Folder: a.folder}
	a.saves = &measuredSaves{Checkpoints: a.checkpoints, of: a.phases, state: state, saved: env.Saved,
		tellState: func(s runner.RunState) { a.warnTrainerState(state.Write(a.course(), s)) }}
	config := runner.Config{
		Trainer:         trainer,
		Checkpoints:     a.saves,
		StepsPerLoop:    p.Train.StepsPerLoop.Steps(),
		LogFirstStep:    p.Train.LogFirstStep,
		EvalAtStart:     p.Eval.AtStart,
		SaveInterval:    p.Checkpoint.Interval.Steps(),
		SaveEvaluated:   p.Checkpoint.Best != "",
		SummaryInterval: p.Summary.Interval,
		MaxRollbacks:    onlyIf(p.Train.OnNonFinite == "rollback", p.Train.MaxNonFinite),
		TrainActions:    []runner.Action{a.metrics.Action("train"), a.phases.firstLoop},
		EvalActions:     []runner.Action{a.metrics.Action("eval")},
		Persist:         map[string]runner.Persistent{loop.MetricsState: a.metrics, loop.GraphState: a.checkpoints.Graph},
		Out:             env.Out,
		Observer:        env.Observer,
	}
	if a.checkpoints.Names != "" {
		config.Persist[loop.NamesState] = a.checkpoints.Names
	}
	if frozen := a.groups.Frozen(); len(frozen) > 0 {
		config.Persist[loop.FrozenNames] = loop.FrozenVariables(frozen)
	}
	if a.evaluations != nil {
		if err := a.evaluateWith(&config, trainer.Step, plateau); err != nil {
			return err
		}
	}
	a.summarize(&config, filled)
	if len(a.on.Times()) > 1 {
		a.watched = &record.Replicas{Model: a.model, Clocks: a.on, Cluster: a.on.Workers}
		config.TrainActions = append(config.TrainActions, a.watched.Action(a.board, env.Log))
	}
	if err := env.addCallbacks(&config); err != nil {
		return err
	}
	if a.controller, err = runner.NewController(config); err != nil {
		return &params.Error{Err: err}
	}
	if a.watched != nil {
		a.watched.Times = a.controller.Times
	}
	return nil
}

// begin restores the newest checkpoint, or else initializes the variables, and records the params
// in the run folder.
func (a *attempt) begin(ctx context.Context) error {
	p := a.Params
	restored, err := a.controller.Restore(ctx)
	if err != nil {
		return err
	}
	if restored == "" {
		if err := a.metrics.Restore(nil); err != nil {
			return err
		}
		if err := a.env.beginCallbacks(); err != nil {
			return err
		}
		report, err := loop.Initialize(ctx, a.on, a.Export, loop.InitialOf(p))
		switch {
		case err == nil && report != nil:
			err = loop.ReportInit(report, filepath.Join(a.folder, runfolder.Init), a.env.Out)
		case err == nil && a.Export.Contract.Model.Weights != nil:
			what := "encoder"
			if a.Export.Contract.Task == task.LanguageModel {
				what = "model"
			}
			fmt.Fprintln(a.env.Out, "the "+what+" begins with random weights, as no others are given (init); --init WEIGHTS begins with those of a release")
		}
		if err != nil {
			return err
		}
	}
	if err := a.checkpoints.ProtectBest(); err != nil {
		return err
	}
	// Recorded only now, so that a command that is refused leaves the folder unchanged.
	if err := a.record(a.controller.Step(), restored); err != nil {
		return err
	}
	if err := a.forgetEvaluations(a.controller.Step()); err != nil {
		return err
	}
	if restored != "" {
		a.saves.tell(a.saves.restored)
	}
	if p.Summary.Enabled {
		if err := a.board.Open(a.folder, a.controller.Step(), p, a.on); err != nil {
			return err
		}
		tellEvents(a.folder, a.controller.Step(), a.env.Log)
	}
	if a.kept, err = keepFiles(a.folder, a.board.Paths(), a.env.Log); err != nil {
		return err
	}
	// Otherwise the initial values would stay in memory until the next garbage collection. For few
	// of them that is no matter.
	if a.Export.Contract.Parameters() >= reclaimParameters {
		reclaim.Memory()
		reclaim.Files()
	}
	return nil
}

// reclaimParameters is the number of parameters whose initial values, about 1 MiB, are worth a
// collection of garbage.
const reclaimParameters = 1 << 18

// announce logs the plan and the environment of the run.
func (a *attempt) announce() {
	p, contract, log := a.Params, a.Export.Contract, a.env.Log
	if done := a.controller.Step(); done > a.steps {
		log.Warn("the run already has more steps than requested; nothing left to train", "step", done, "steps", a.steps)
	}
	runtime := a.on.Runtime()
	replicas := len(runtime.Devices)
	log.Info("runtime", "devices", strings.Join(runtime.Devices, ","), "onednn", p.Runtime.OneDNN, "precision", contract.Precision, "xla", contract.XLA, "kernels", cmp.Or(runtime.Kernels, "off"),
		"intra_op_threads", runtime.IntraOpThreads, "inter_op_threads", runtime.InterOpThreads)
	accumulate := p.Strategy.Accumulate
	if n := runtime.MicroBatches * accumulate; n > 1 {
		log.Info("strategy", "replicas", replicas, "lanes", runtime.MicroBatches/replicas, "accumulate", accumulate, "examples_per_micro_batch", float64(p.Train.BatchSize)/float64(n),
			"shard_optimizer", p.Strategy.ShardOptimizer && replicas > 1, "optimizer_mib_per_replica", words.Rounded(float64(slices.Max(runtime.OptimizerBytes))/(1<<20), 1))
	}
	a.announceMemory(runtime)
	prepare.AnnounceGroups(a.groups, log)
	if p.Optimizer.EMA > 0 {
		log.Info("evaluations and exports use moving averages of the variables", "ema", p.Optimizer.EMA)
	}
	if p.Optimizer.SWA > 0 {
		log.Info("evaluations and exports use the mean of the variables of steps with equal weights", "from_step", p.Optimizer.SWA, "every", p.Optimizer.SWAEvery)
	}
	a.announceRows()
	if a.TakesImages() {
		log.Info("images", "jpeg_decoder", cmp.Or(p.Data.JPEG, pixels.Go))
	}
	a.announceClasses()
	a.warnDivided(runtime.MicroBatches * accumulate)
	log.Info("training", "steps", a.steps, "steps_per_epoch", a.examples.BatchesPerEpoch(), "examples", a.examples.NumExamples(),
		"global_batch_size", p.Train.BatchSize, "parameters", contract.Parameters())
}

// offloadedParts says what is in files, by strategy.offload.
var offloadedParts = map[string]string{
	params.OffloadDisk: "the slots of the optimizer",
	params.OffloadAll:  "variables, gradients and the slots of the optimizer",
}

// announceMemory logs where the slots are if that is not in memory, and warns if what the parameters take
// is more than there is.
func (a *attempt) announceMemory(on strategy.Runtime) {
	slots := int64(0)
	for _, n := range on.OptimizerBytes {
		slots += n
	}
	offload := a.Params.Strategy.Offload
	if what := offloadedParts[offload]; what != "" {
		a.env.Log.Info(what+" are in files (strategy.offload)", "mib", on.OffloadedBytes>>20, "folder", a.folder)
	}
	// Each copy of the model has its variables, and each micro-batch its gradients.
	need := slots + 4*a.Export.Contract.Parameters()*int64(len(on.OptimizerBytes)+on.MicroBatches) - on.OffloadedBytes
	if a.env.Memory == 0 || need <= a.env.Memory || a.Params.Strategy.Kind() == devices.MultiWorker || on.Kernels == "" { // on.Kernels: CPUs
		return
	}
	mend := "continue only if the machine has enough to swap to; gorbit plan measures it"
	switch {
	case offload == "":
		mend = "--set strategy.offload=disk keeps the slots of the optimizer on disk, and strategy.offload=all the variables and gradients, too; gorbit plan measures what that costs"
	case offload == params.OffloadDisk && len(on.OptimizerBytes) == 1:
		mend = "--set strategy.offload=all keeps variables and gradients on disk, too; gorbit plan measures what that costs"
	}
	a.env.Log.Warn("variables, gradients and slots alone take more memory than is available: "+mend, "mib", need>>20, "available_mib", a.env.Memory>>20)
}

// warnDivided warns if batches of a graph whose sums depend on the division are divided into n
// micro-batches.
func (a *attempt) warnDivided(n int) {
	if a.Export.Contract.Additive || n < 2 {
		return
	}
	a.env.Log.Warn("the graph's results depend on how a batch is divided, as with batch normalization: each micro-batch counts only its own examples, so that another number of replicas, lanes or accumulate gives other results",
		"micro_batches", n, "examples_per_micro_batch", float64(a.Params.Train.BatchSize)/float64(n))
}

// announceRows logs how well fixed rows are filled.
func (a *attempt) announceRows() {
	p, set := a.Params, a.examples
	n := a.on.Runtime().MicroBatches * max(1, p.Strategy.Accumulate)
	shape := p.Packed().Shape(n)
	if shape.Rows == 0 {
		return
	}
	steps := float64(set.BatchesPerEpoch())
	examples := float64(set.NumExamples()) / steps
	filled := float64(set.Size()) / float64(set.Cells()) * float64(p.Data.Rows) / float64(n*shape.Rows)
	length := strings.TrimPrefix(fmt.Sprintf("%s,%d", p.Data.Buckets, shape.RowLength), ",")
	a.env.Log.Info("fixed rows", "micro_batches", n, "rows", shape.Rows, "row_length", length, "examples", shape.Examples,
		"padding_percent", words.Rounded(100*(1-filled), 1), "examples_per_step", words.Rounded(examples, 1))
	switch {
	case n*shape.Rows > p.Data.Rows:
		a.env.Log.Warn("the fixed rows cannot be shared evenly, so that some micro-batches have an empty row", "data.rows", p.Data.Rows, "micro_batches", n)
	case a.Chosen || a.controller.Step() > 0: // a run keeps its rows
	case prepare.FewExamples(set, p.Train.BatchSize):
		a.env.Log.Warn("steps have fewer examples than train.batch_size, because of data.rows", "data.rows", p.Data.Rows, "train.batch_size", p.Train.BatchSize, "examples_per_step", words.Rounded(examples, 1),
			"enough_rows", int(math.Ceil(float64(p.Data.Rows)*float64(p.Train.BatchSize)/examples)))
	case p.Data.Packing == string(packed.PackNone) || p.Data.Buckets != "": // each row has the length of its example
	case filled < prepare.WellFilled && examples > prepare.WellFilled*float64(p.Train.BatchSize):
		a.env.Log.Warn("data.rows has more rows than train.batch_size fills", "data.rows", p.Data.Rows, "train.batch_size", p.Train.BatchSize, "enough_rows", int(math.Ceil(filled*float64(p.Data.Rows)/prepare.WellFilled)))
	}
}

// announceClasses logs what the classes of the training examples count for, and how often they are
// drawn.
func (a *attempt) announceClasses() {
	weights, sampling := a.examples.ClassWeights(), a.examples.Sampling()
	if weights == nil && sampling == nil {
		return
	}
	label, err := prepare.ClassLabelOf(a.Params, a.Export.Contract, a.Data.Manifest)
	if err != nil {
		return // preflight reports it
	}
	if weights != nil {
		a.env.Log.Info("class weights", "label", weights.Label, "weights", label.Listed(weights.Of))
	}
	switch {
	case sampling == nil:
	case sampling.Of == nil:
		a.env.Log.Info("examples are drawn with replacement, all classes equally often", "label", label.Feature.Name)
	default:
		a.env.Log.Info("examples are drawn with replacement, in proportion to the numbers of their classes", "label", label.Feature.Name, "numbers", label.Listed(sampling.Of))
	}
}

// report logs the time and memory that the training used. ended is the error that ended it, or
// nil.
func (a *attempt) report(ended error) error {
	if d := a.examples.Damaged(); d.Records > 0 {
		a.env.Log.Warn("damaged records were skipped", "records", d.Records)
	}
	t := a.controller.Times()
	if t.InModel == 0 || prepare.LostWorker(ended) {
		return nil
	}
	line := []any{"seconds", words.Rounded(t.Training.Seconds(), 1), "loop_overhead_percent", words.Rounded(100*t.Overhead(), 3), "peak_memory_mib", record.PeakMemory() >> 20}
	if spent := a.journal.spent; spent.FLOPs > 0 {
		line = append(line, "gflops_per_second", words.Rounded(spent.PerSecond(spent.FLOPs)/1e9, 1))
		if share, ok := spent.MFU(a.journal.peak); ok {
			line = append(line, "mfu_percent", words.Rounded(100*share, 1))
		} else if a.journal.peak > 0 {
			a.env.Log.Warn("the training was faster than the machine's peak as it was measured, so its share of the peak is not known: "+peak.Again,
				"peak_gflops_per_second", words.Rounded(a.journal.peak/1e9, 1), "fastest_gflops_per_second", words.Rounded(spent.Fastest/1e9, 1))
		}
	}
	a.env.Log.Info("trained", line...)
	if a.watched == nil {
		return nil
	}
	return a.watched.Table(a.env.Out)
}

// summarize adds the files for TensorBoard.
func (a *attempt) summarize(config *runner.Config, filled *loop.Filling) {
	p := a.Params
	if !p.Summary.Enabled {
		return
	}
	config.TrainSummaries, config.EvalSummaries = &record.Measured{Events: &a.board.Train, Fill: filled}, &a.board.Eval
	a.checkpoints.Logs = append(a.checkpoints.Logs, a.board)
	a.checkpoints.Saving = func(step int64, state []byte) {
		if run, err := runner.ParseRunState(state); err == nil && run.Complete(a.steps, a.evaluations != nil) {
			a.board.End(step)
		}
	}
	if p.Summary.Histograms {
		config.EvalActions = append(config.EvalActions, a.board.Histograms(a.on))
	}
}

// inspect adds what looks at the updates. It returns what looks for the reason of one that is not finite;
// nil for nobody.
func (a *attempt) inspect() (explain func(context.Context, int64) string, err error) {
	p := a.Params
	of, canLook := a.on.Strategy.(record.Inspected)
	check := func(param string, value any) error {
		err := errors.New("the strategy cannot be looked into")
		if canLook {
			err = of.CheckGradients()
		}
		if err != nil {
			return params.Errorf(param, "is %v, and %w; leave it out", value, err)
		}
		return nil
	}
	if n := p.Summary.HistogramInterval; n > 0 {
		if err := check("summary.histogram_interval", n); err != nil {
			return nil, err
		}
		a.model.Inspectors = append(a.model.Inspectors, &record.Histograms{Interval: n, Model: of, To: &a.board.Train})
	}
	if p.Train.DebugNumerics {
		if err := check("train.debug_numerics", true); err != nil {
			return nil, err
		}
		numerics := &record.Numerics{Model: of}
		a.model.Inspectors, explain = append(a.model.Inspectors, numerics), numerics.Explain
	}
	first, last, err := p.Train.ProfiledSteps()
	if err == nil && last > 0 { // after others, whose calls are not traced
		a.profile = &record.Profile{First: first, Last: last, Folder: a.folder, Out: a.env.Out}
		a.model.Inspectors = append(a.model.Inspectors, a.profile)
	}
	return explain, err
}

// endProfile writes the profile if the training ended within it, and returns what ended the training.
func (a *attempt) endProfile(ended error) error {
	if a.profile == nil {
		return ended
	}
	if err := a.profile.Close(); err != nil {
		return cmp.Or(ended, err)
	}
	if !a.profile.Written() {
		a.env.Log.Warn("no step was profiled", "train.profile", a.Params.Train.Profile, "step", a.controller.Step())
	}
	return ended
}

func onlyIf(condition bool, n int64) int64 {
	if condition {
		return n
	}
	return 0
}

func evalSteps(p params.Params) int64 {
	if p.Eval.Steps == 0 {
		return runner.UntilEnd
	}
	return p.Eval.Steps
}

// evaluateWith adds the evaluations of a training, what they leave and what they decide. step returns
// the step of the trainer; plateau may be nil.
func (a *attempt) evaluateWith(config *runner.Config, step func() int64, plateau *runner.Plateau) error {
	if err := a.generateTexts(config); err != nil {
		return err
	}
	config.EvalSplits = len(a.evaluators)
	config.Evaluator = measuredEvaluator{of: a.phases, splitEvaluators: a.evaluators, step: step, ended: func() { a.journalPhases(a.phases.take()) }}
	config.EvalActions = append(config.EvalActions, a.keepEvaluations)
	if plateau != nil {
		config.Persist[loop.PlateauState] = plateau
		config.EvalActions = append(config.EvalActions, plateau.Check)
	}
	return keepBest(a.Params, a.task, a.checkpoints, config)
}

// newPlateau returns what lowers the learning rate of the schedule plateau; nil for other schedules.
func newPlateau(p params.Params, of task.Task, steps int64, out io.Writer) (*runner.Plateau, error) {
	if p.Optimizer.Schedule != runner.OnPlateau {
		return nil, nil
	}
	order, err := p.PlateauOrder(of)
	if err != nil {
		return nil, err
	}
	c := p.Optimizer.Plateau
	plateau, err := runner.NewPlateau(runner.PlateauConfig{Metric: p.PlateauMetric(), Order: order, Factor: c.Factor, Patience: c.Patience,
		MinDelta: c.MinDelta, Cooldown: c.Cooldown, Out: out}, p.ScheduleConfig(steps))
	if err != nil {
		return nil, &params.Error{Params: []string{"optimizer.schedule"}, Err: err}
	}
	return plateau, nil
}

// keepBest configures the tracking of the best checkpoint and early stopping.
func keepBest(p params.Params, of task.Task, checkpoints *loop.Checkpoints, config *runner.Config) error {
	if p.Checkpoint.Best == "" {
		return nil
	}
	order, err := p.BestOrder(of)
	if err != nil {
		return err
	}
	best := runner.NewBest(p.Checkpoint.Best, order)
	config.Persist[loop.BestState] = best
	config.EvalActions = append(config.EvalActions, best.Commit)
	checkpoints.Best = best
	if p.Train.Patience > 0 {
		stopping, err := runner.NewEarlyStopping(p.Checkpoint.Best, order, p.Train.Patience, p.Train.MinDelta)
		if err != nil {
			return &params.Error{Params: []string{"train.patience", "train.min_delta"}, Err: err}
		}
		config.Persist[loop.StoppingState] = stopping
		config.EvalActions = append(config.EvalActions, stopping.Check)
	}
	return nil
}
