package params

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/dense"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/tpu"
)

// Params describe a run. They are read from YAML files and changed by "section.name=value"
// settings, and written to the run's params.yaml. The comments are also the descriptions in
// docs/guide/run.md; a test compares the two.
type Params struct {
	// Graph: folder of an export.
	Graph string `yaml:"graph"`
	// Init: initial weights: a safetensors file, a checkpoint's prefix or folder, or a run folder;
	// "" keeps the export's values, as do variables that it lacks.
	Init string `yaml:"init"`
	// Strict: fail if init lacks a variable or has it in another shape.
	Strict bool `yaml:"strict"`
	// InitPartial: allow init to fill less than half of the encoder, to have another number of
	// positions, which then keep the export's values, or to have learned other labels or categories;
	// these are refused otherwise.
	InitPartial bool `yaml:"init_partial"`
	// InitValues: what variables that init lacks begin with: export, the values in the export, or
	// seed, numbers drawn by the run's seed in the way that the export tells.
	InitValues string `yaml:"init_values"`
	// Seed: seed for the order of the data and the graph's random numbers; with init_values=seed, also
	// for the initial values.
	Seed int64 `yaml:"seed"`

	Data       Data       `yaml:"data"`
	Train      Train      `yaml:"train"`
	Eval       Eval       `yaml:"eval"`
	Optimizer  Optimizer  `yaml:"optimizer"`
	Checkpoint Checkpoint `yaml:"checkpoint"`
	Summary    Summary    `yaml:"summary"`
	Strategy   Strategy   `yaml:"strategy"`
	Runtime    Runtime    `yaml:"runtime"`
}

// Data selects the records and how batches are built from them.
type Data struct {
	// Dir: folder that gorbit convert wrote, or any folder of TFRecords.
	Dir string `yaml:"dir"`
	// Train: split to train on: its name in the manifest, or a file, pattern or base of shard names
	// in the folder.
	Train string `yaml:"train"`
	// Eval: split to evaluate on, named the same way.
	Eval string `yaml:"eval"`
	// Features: names of features in the records, by the graph's names, where they differ, such as
	// data.features.image=pixels.
	Features map[string]string `yaml:"features"`
	// Resize: how PNG and JPEG images of other sizes are scaled to the graph's: bilinear, antialias or
	// nearest; empty: they are refused. Images that are labels are always scaled by nearest.
	Resize string `yaml:"resize"`
	// CropToAspectRatio: before scaling, cut images down to the graph's proportions, as Keras does.
	CropToAspectRatio bool `yaml:"crop_to_aspect_ratio"`
	// RowLength: positions in a row, and the maximum tokens of an example; 0: 128 or, for longer
	// examples, the longest rounded up to a multiple of 64, but never more than the graph's
	// positions. A run keeps it. For graphs without rows: the maximum length of an example on an
	// open axis, and on a TPU the length of all; 0: no limit, and on a TPU the longest of the data.
	RowLength int `yaml:"row_length"`
	// Truncate: shorten longer examples instead of refusing them.
	Truncate bool `yaml:"truncate"`
	// Rows: rows of every batch, of data.row_length each, shared evenly by the micro-batches: all
	// features then have one shape, as TPUs need it. A batch takes as many of the next examples as
	// fit, at most train.batch_size; the others come first in the next batch. 0: as many rows as each
	// batch needs. A run keeps it.
	Rows int `yaml:"rows"`
	// RowExamples: maximum examples in one of data.rows; 0: twice as many as fit on average, or one
	// for every 8 positions if the data have no manifest. A run keeps it.
	RowExamples int `yaml:"row_examples"`
	// Buckets: more lengths of rows, below data.row_length, such as 32,64; needs data.rows. The rows of
	// a batch then all have one of these lengths, and examples go to the shortest rows that hold them.
	// A run keeps it. For graphs without rows: more lengths of batches; each batch holds examples of
	// similar lengths.
	Buckets string `yaml:"buckets"`
	// MaskProbability: share of the tokens that a masked language model is to predict.
	MaskProbability float64 `yaml:"mask_probability"`
	// WholeWords: mask all tokens of a word or none; the records say where words start.
	WholeWords bool `yaml:"whole_words"`
	// Packing: how examples are packed into rows: best-fit, first-fit, none (one per row).
	Packing string `yaml:"packing"`
	// Shuffle: full: a permutation of the whole set per epoch; buffer: data.buffer examples at a
	// time; none.
	Shuffle string `yaml:"shuffle"`
	// Buffer: number of examples that buffer shuffles at a time; 0 is 65,536.
	Buffer int `yaml:"buffer"`
	// ClassWeights: how much the examples of each class count in training: none, balanced (all
	// classes together count the same), or a number for each class, by its name or number, such as
	// data.class_weights.positive=2; other classes have 1. A run keeps it.
	ClassWeights ByClass `yaml:"class_weights"`
	// Sampling: how often the examples of each class are drawn in an epoch: uniform (each once),
	// balanced (with replacement, all classes equally often), or a number for each class, by its name
	// or number, such as data.sampling.positive=2, which the chance of its examples is in proportion
	// to; other classes have 1. A run keeps it.
	Sampling ByClass `yaml:"sampling"`
	// DropRemainder: leave out the last, smaller batch of an epoch.
	DropRemainder bool `yaml:"drop_remainder"`
	// OnCorrupt: what to do with damaged records: fail or skip.
	OnCorrupt string `yaml:"on_corrupt"`
	// Readers: goroutines that build batches, up to 1024; 0 is two. Batches do not depend on it.
	Readers int `yaml:"readers"`
}

// Train sets how long to train and how often to log and evaluate.
type Train struct {
	// BatchSize: global batch size: examples per step, with any packing; with data.rows, the most
	// examples of a step.
	BatchSize int `yaml:"batch_size"`
	// Steps: how long to train, in steps; 0: use train.epochs.
	Steps int64 `yaml:"steps"`
	// Epochs: how long to train, in epochs, if train.steps is 0; may be a fraction.
	Epochs float64 `yaml:"epochs"`
	// StepsPerLoop: steps between two log lines.
	StepsPerLoop int64 `yaml:"steps_per_loop"`
	// LogFirstStep: log the first step by itself, before the first loop ends: a line, and one in
	// metrics.jsonl.
	LogFirstStep bool `yaml:"log_first_step"`
	// StepsPerCall: most steps that are made in one call of the devices, within a loop; 0: the
	// strategy's best. Results do not depend on it.
	StepsPerCall int `yaml:"steps_per_call"`
	// EvalInterval: steps between evaluations; 0: once per epoch, -1: only at the end, -2: none.
	EvalInterval int64 `yaml:"eval_interval"`
	// OnNonFinite: what to do when a loss or gradient is not finite: fail, skip (the batch),
	// rollback (to the last checkpoint, then continue after the batch).
	OnNonFinite string `yaml:"on_non_finite"`
	// MaxNonFinite: how often that may happen in one run.
	MaxNonFinite int64 `yaml:"max_non_finite"`
	// Patience: stop training after this many evaluations without a better checkpoint.best; 0 is
	// off.
	Patience int64 `yaml:"patience"`
	// MinDelta: how much better than the best before an evaluation must be to count for
	// train.patience; the best checkpoint is the best by any difference.
	MinDelta float64 `yaml:"min_delta"`
}

// Eval configures evaluations.
type Eval struct {
	// BatchSize: examples per batch in evaluations; with data.rows, a batch has as many as fit.
	BatchSize int `yaml:"batch_size"`
	// Steps: maximum batches of an evaluation; 0 is all.
	Steps int64 `yaml:"steps"`
	// NullThreshold: task qa: a question has no answer if the score of none exceeds that of the best
	// span by more than this.
	NullThreshold float64 `yaml:"null_threshold"`
}

// Optimizer configures the optimizer and the schedule of its learning rate.
type Optimizer struct {
	// LearningRate: peak learning rate of the schedule.
	LearningRate float64 `yaml:"learning_rate"`
	// EndLearningRate: final learning rate of linear, polynomial, exponential and both cosine schedules.
	EndLearningRate float64 `yaml:"end_learning_rate"`
	// Schedule: constant, linear, polynomial, cosine, cosine_with_restarts, inverse_sqrt,
	// exponential.
	Schedule string `yaml:"schedule"`
	// WarmupSteps: steps of linear warmup at the start; 0: use optimizer.warmup_ratio.
	WarmupSteps int64 `yaml:"warmup_steps"`
	// WarmupRatio: linear warmup as a share of all steps.
	WarmupRatio float64 `yaml:"warmup_ratio"`
	// Power: exponent of polynomial; 0 is 1.
	Power float64 `yaml:"power"`
	// Cycles: number of waves of cosine, or of decays of cosine_with_restarts; 0 is half a wave, or
	// one decay.
	Cycles float64 `yaml:"cycles"`
	// Timescale: timescale of inverse_sqrt in steps; 0 is the warmup's length, or 10,000 without
	// warmup.
	Timescale int64 `yaml:"timescale"`
	// WeightDecay: decoupled weight decay, for all variables except biases and norms.
	WeightDecay float64 `yaml:"weight_decay"`
	// ClipNorm: clip gradients to this global norm; 0 is off.
	ClipNorm float64 `yaml:"clip_norm"`
	// Hyperparameters: the graph's hyperparameters by name (gorbit inspect lists them): dropout
	// rates, betas, epsilon, label smoothing.
	Hyperparameters map[string]float64 `yaml:"hyperparameters"`
	// Groups: variables with a learning rate or weight decay of their own, or frozen: a list of match,
	// learning_rate_scale, weight_decay_scale and frozen.
	Groups []Group `yaml:"groups"`
	// LayerDecay: factor of the learning rate from one layer to that below it, down to the embeddings,
	// for names such as layers/0/; 1 is off.
	LayerDecay float64 `yaml:"layer_decay"`
	// EMA: decay of moving averages of the variables, which evaluations and exports then use, such as
	// 0.999; 0 is off.
	EMA float64 `yaml:"ema"`
}

// Checkpoint sets when to save checkpoints and which to keep.
type Checkpoint struct {
	// Interval: steps between checkpoints; 0: same as evaluations. The end of training is always
	// saved.
	Interval int64 `yaml:"interval"`
	// MaxToKeep: number of checkpoints to keep; 0 is all.
	MaxToKeep int `yaml:"max_to_keep"`
	// KeepEveryHours: keep one checkpoint per this many hours permanently; 0 is off, 1,000,000 the
	// most.
	KeepEveryHours float64 `yaml:"keep_every_hours"`
	// Best: metric that selects the best checkpoint, which is kept; auto: the graph's own choice,
	// which gorbit inspect prints; "" for none. If set, every evaluation is followed by a checkpoint.
	Best string `yaml:"best"`
	// BestMode: auto: as the graph or its task says, such as lower for loss; max and min are for
	// metrics whose direction they do not say, and are refused if they contradict them.
	BestMode string `yaml:"best_mode"`
}

// Summary configures the TensorBoard files.
type Summary struct {
	// Enabled: write TensorBoard files.
	Enabled bool `yaml:"enabled"`
	// Interval: steps between training summaries; 0: every loop.
	Interval int64 `yaml:"interval"`
	// Histograms: write histograms of the variables at every evaluation.
	Histograms bool `yaml:"histograms"`
}

// Strategy places the replicas of the model and divides the batch among them. None of them
// changes the content of a checkpoint, so a run may continue with different ones.
type Strategy struct {
	// Name: one, mirrored (several devices of this machine), multiworker (several machines), tpu;
	// auto: chosen by the params below, otherwise all GPUs.
	Name string `yaml:"name"`
	// Devices: devices of this machine, one replica each: gpu:4, or cpu:4 for virtual ones; workers
	// choose their own devices.
	Devices string `yaml:"devices"`
	// Workers: comma-separated addresses of gorbit worker processes.
	Workers string `yaml:"workers"`
	// Accumulate: micro-batches per replica for each update; doubled when memory runs out.
	Accumulate int `yaml:"accumulate"`
	// Input: who reads the training batches: chief, or local for each worker to read its own part.
	Input string `yaml:"input"`
	// ShardOptimizer: keep the optimizer slots of each variable on only one replica.
	ShardOptimizer bool `yaml:"shard_optimizer"`
	// BucketMB: size in MiB of the buckets in which gradients are reduced.
	BucketMB float64 `yaml:"bucket_mb"`
	// WorkerTimeout: how long to wait for a worker to start or to answer: 1s to 1h.
	WorkerTimeout time.Duration `yaml:"worker_timeout"`
	// MaxRestarts: how often to continue from the last checkpoint after losing a worker or the TPU.
	MaxRestarts int `yaml:"max_restarts"`
	// Elastic: continue without workers that do not come back.
	Elastic bool `yaml:"elastic"`
	// TPU: Cloud TPU: a node's name, comma-separated addresses (grpc://10.0.0.2:8470), or local; ""
	// with strategy tpu takes the name from the environment, as gorbit tpu describe does.
	TPU string `yaml:"tpu"`
	// TPUProject: project of the node; "" is this machine's.
	TPUProject string `yaml:"tpu_project"`
	// TPUZone: zone of the node; "" is this machine's.
	TPUZone string `yaml:"tpu_zone"`
	// TPUAPI: base URL of the Cloud TPU API; "" is Google's.
	TPUAPI string `yaml:"tpu_api"`
	// TPUReadyTimeout: how long to wait for a node that is being created or started.
	TPUReadyTimeout time.Duration `yaml:"tpu_ready_timeout"`
	// TPUWait: wait up to strategy.tpu_ready_timeout also for a TPU that was preempted or stopped,
	// or that does not answer, until it is there again; otherwise the run ends.
	TPUWait bool `yaml:"tpu_wait"`
	// TPUTimeout: how long the TPU may take to start, and to answer in a step: 1s to 1h.
	TPUTimeout time.Duration `yaml:"tpu_timeout"`
}

// Runtime configures TensorFlow on this machine.
type Runtime struct {
	// Device: a TensorFlow device such as /device:GPU:0; "" lets TensorFlow choose.
	Device string `yaml:"device"`
	// IntraOpThreads: threads per TensorFlow operation, up to 4096; 0 is one per core, or the cores
	// divided among the lanes or virtual CPU devices.
	IntraOpThreads int `yaml:"intra_op_threads"`
	// InterOpThreads: operations that TensorFlow runs at the same time, up to 4096; 0 is one per
	// core, or one per lane or virtual CPU device.
	InterOpThreads int `yaml:"inter_op_threads"`
	// Lanes: micro-batches that a CPU computes in parallel, up to 64; 0: one per core on up to 4
	// cores if no threads are set and XLA does not compile the graph, otherwise one. A run keeps it.
	Lanes int `yaml:"lanes"`
	// OneDNN: oneDNN kernels: on or off. A run keeps it.
	OneDNN string `yaml:"onednn"`
	// Kernels: gorbit's own CPU kernels: on, or off to use only TensorFlow's operations. Exports
	// with --xla do not use them. A run keeps it.
	Kernels string `yaml:"kernels"`
	// AllowSlowPrecision: train a bf16 or fp16 graph even if TensorFlow only emulates it.
	AllowSlowPrecision bool `yaml:"allow_slow_precision"`
}

// Defaults returns the default params.
func Defaults() Params {
	return Params{
		Seed: 42, InitValues: ValuesOfExport,
		Data:  Data{Train: "train", Eval: "dev", Features: map[string]string{}, MaskProbability: packed.DefaultMaskProbability, Packing: string(packed.PackBestFit), Shuffle: string(dataset.ShuffleFull), ClassWeights: ByClass{Rule: ClassesNone}, Sampling: ByClass{Rule: ClassesUniform}, OnCorrupt: "fail"},
		Train: Train{BatchSize: 32, Epochs: 3, StepsPerLoop: 20, OnNonFinite: "fail", MaxNonFinite: 10},
		Eval:  Eval{BatchSize: 64},
		Optimizer: Optimizer{LearningRate: 5e-5, Schedule: runner.Linear, WarmupRatio: 0.1,
			WeightDecay: 0.01, ClipNorm: 1, LayerDecay: 1, Hyperparameters: map[string]float64{}},
		Checkpoint: Checkpoint{MaxToKeep: 3, Best: BestAuto, BestMode: ModeAuto},
		Summary:    Summary{Enabled: true},
		Strategy: Strategy{Name: devices.Auto, Accumulate: 1, Input: InputChief, BucketMB: float64(strategy.DefaultBucketBytes) / (1 << 20),
			WorkerTimeout: time.Minute, MaxRestarts: 3, TPUTimeout: tpu.DefaultStartTimeout},
		Runtime: Runtime{OneDNN: "on", Kernels: "on"},
	}
}

// maxParamsBytes limits the size of a params file, which usually has about a hundred lines.
const maxParamsBytes = 1 << 20

// Load applies YAML files to the params, then settings of the form "section.name=value". Later
// values win. The error for an unknown name or an invalid value is a *Error.
func (p *Params) Load(files, settings []string) error {
	for _, file := range files {
		data, err := vfs.ReadBounded(file, maxParamsBytes)
		if err != nil {
			return err
		}
		if err := p.decode(data); err != nil {
			return &Error{inFile(file, err)}
		}
	}
	for _, setting := range settings {
		if err := p.Set(setting); err != nil {
			return err
		}
	}
	return nil
}

// Set applies one setting, "section.name=value".
func (p *Params) Set(setting string) error {
	path, value, ok := strings.Cut(setting, "=")
	if !ok || path == "" {
		return &Error{fmt.Errorf("--set is %q; expected section.name=value", setting)}
	}
	node, err := document([]byte(value))
	if err != nil {
		return &Error{inSetting(setting, err)}
	}
	inner := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: ""}
	if node != nil {
		inner = node.Content[0]
	}
	names := strings.Split(path, ".")
	for i := len(names) - 1; i >= 0; i-- {
		inner = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
			{Kind: yaml.ScalarNode, Value: names[i]}, inner}}
	}
	data, err := yaml.Marshal(inner)
	if err != nil {
		return &Error{inSetting(setting, err)}
	}
	if err := p.decode(data); err != nil {
		return &Error{inSetting(setting, err)}
	}
	return nil
}

// Read reads a params.yaml that a run wrote.
func Read(path string) (Params, error) {
	p := Defaults()
	return p, p.Load([]string{path}, nil)
}

// LoadYAML applies the content of a YAML file to the params. The error for an unknown name or an
// invalid value is a *Error, which begins with the name of the content.
func (p *Params) LoadYAML(name string, content []byte) error {
	if err := p.decode(content); err != nil {
		return &Error{fmt.Errorf("%s: %w", name, err)}
	}
	return nil
}

// YAML returns the params as the content of a YAML file.
func (p Params) YAML() ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(p); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// Absolute makes the paths in the params absolute, so that they are valid in any folder. Paths
// with a scheme stay as they are.
func (p *Params) Absolute() error {
	for _, path := range []*string{&p.Graph, &p.Init, &p.Data.Dir} {
		if *path == "" {
			continue
		}
		abs, err := vfs.Abs(*path)
		if err != nil {
			return &Error{err}
		}
		*path = abs
	}
	return nil
}

// Validate returns a *Error that names the first invalid param.
func (p Params) Validate() error {
	bad := func(format string, args ...any) error { return &Error{fmt.Errorf(format, args...)} }
	if err := p.checkChoices(); err != nil {
		return bad("%w", err)
	}
	switch {
	case p.Graph == "":
		return bad("graph is empty; expected the folder of an export, made with python -m gorbit_export")
	case p.Data.Dir == "":
		return bad("data.dir is empty; expected the folder that gorbit convert wrote")
	case p.Train.BatchSize < 1:
		return bad("train.batch_size is %d; expected 1 or more", p.Train.BatchSize)
	case p.Eval.BatchSize < 1:
		return bad("eval.batch_size is %d; expected 1 or more", p.Eval.BatchSize)
	case p.Train.Steps < 0:
		return bad("train.steps is %d; expected 0 (use train.epochs) or more", p.Train.Steps)
	case p.Train.Steps == 0 && !(p.Train.Epochs > 0 && p.Train.Epochs < 1e9):
		return bad("train.epochs is %v; expected more than 0 and less than 1e9", p.Train.Epochs)
	case p.Train.StepsPerLoop < 1:
		return bad("train.steps_per_loop is %d; expected 1 or more", p.Train.StepsPerLoop)
	case p.Train.StepsPerCall > 1 && p.Strategy.Input == InputLocal:
		return bad("train.steps_per_call is %d and strategy.input is local; expected 1, because the workers keep only the next batch", p.Train.StepsPerCall)
	case p.Train.EvalInterval < NoEval:
		return bad("train.eval_interval is %d; expected -2 (no evaluation), -1 (at the end), 0 (every epoch) or a number of steps", p.Train.EvalInterval)
	case p.Train.MaxNonFinite < 1:
		return bad("train.max_non_finite is %d; expected 1 or more", p.Train.MaxNonFinite)
	case p.Eval.Steps < 0:
		return bad("eval.steps is %d; expected 0 (all) or more", p.Eval.Steps)
	case math.IsNaN(p.Eval.NullThreshold) || math.IsInf(p.Eval.NullThreshold, 0):
		return bad("eval.null_threshold is %v; expected a number", p.Eval.NullThreshold)
	case !(p.Optimizer.LearningRate > 0) || math.IsInf(p.Optimizer.LearningRate, 0):
		return bad("optimizer.learning_rate is %v; expected more than 0", p.Optimizer.LearningRate)
	case !(p.Optimizer.WeightDecay >= 0):
		return bad("optimizer.weight_decay is %v; expected 0 or more", p.Optimizer.WeightDecay)
	case !(p.Optimizer.ClipNorm >= 0):
		return bad("optimizer.clip_norm is %v; expected 0 (off) or more", p.Optimizer.ClipNorm)
	case p.Checkpoint.Interval < 0:
		return bad("checkpoint.interval is %d; expected 0 (as evaluations) or more", p.Checkpoint.Interval)
	case p.Checkpoint.MaxToKeep < 0:
		return bad("checkpoint.max_to_keep is %d; expected 0 (all) or more", p.Checkpoint.MaxToKeep)
	case !(p.Checkpoint.KeepEveryHours >= 0 && p.Checkpoint.KeepEveryHours <= mostHours):
		return bad("checkpoint.keep_every_hours is %v; expected 0 (off) to %d", p.Checkpoint.KeepEveryHours, int64(mostHours))
	case p.Summary.Interval < 0:
		return bad("summary.interval is %d; expected 0 (every loop) or more", p.Summary.Interval)
	case p.Runtime.Lanes < 0 || p.Runtime.Lanes > 64:
		return bad("runtime.lanes is %d; expected 0 (by the cores) to 64", p.Runtime.Lanes)
	}
	if err := cmp.Or(p.validateStopping(), p.validateInit()); err != nil {
		return &Error{err}
	}
	if err := p.Strategy.validate(); err != nil {
		return bad("strategy.%w", err)
	}
	if err := p.validateTPU(); err != nil {
		return bad("%w", err)
	}
	if kind := p.Strategy.Kind(); p.Runtime.Device != "" && (kind == devices.Mirrored || kind == devices.MultiWorker || p.Strategy.Devices != "") {
		return bad("runtime.device is %q, which is only for strategy one; name devices with strategy.devices", p.Runtime.Device)
	}
	for _, pool := range []struct {
		name    string
		threads int
	}{{"runtime.intra_op_threads", p.Runtime.IntraOpThreads}, {"runtime.inter_op_threads", p.Runtime.InterOpThreads}} {
		if pool.threads < 0 || pool.threads > devices.MostThreads {
			return bad("%s is %d; expected 0 (by the cores) to %d", pool.name, pool.threads, devices.MostThreads)
		}
	}
	if err := p.StrategyConfig(strategy.FunctionsTrain).Validate(); err != nil {
		return bad("runtime: %w", err)
	}
	if err := cmp.Or(p.validateData(), p.Optimizer.validateVariables()); err != nil {
		return &Error{err}
	}
	// The number of steps is not known yet; any number will do to check the rest.
	if err := p.ScheduleConfig(math.MaxInt32).Validate(); err != nil {
		return bad("optimizer: %w", err)
	}
	return nil
}

// validateStopping returns an error that names the first invalid param of early stopping.
func (p Params) validateStopping() error {
	switch {
	case p.Train.Patience < 0:
		return fmt.Errorf("train.patience is %d; expected 0 (off) or more", p.Train.Patience)
	case p.Train.Patience > 0 && p.Checkpoint.Best == "":
		return fmt.Errorf("train.patience is %d and checkpoint.best is empty; expected the name of a metric", p.Train.Patience)
	case p.Train.Patience > 0 && p.Train.EvalInterval == NoEval:
		return fmt.Errorf("train.patience is %d and train.eval_interval is -2 (no evaluation); expected evaluations, as with --eval-interval 0", p.Train.Patience)
	case !(p.Train.MinDelta >= 0) || math.IsInf(p.Train.MinDelta, 0):
		return fmt.Errorf("train.min_delta is %v; expected a finite number of 0 or more", p.Train.MinDelta)
	case p.Train.MinDelta > 0 && p.Train.Patience == 0:
		return fmt.Errorf("train.min_delta is %v and train.patience is 0; expected the number of evaluations to wait, as with --patience 3", p.Train.MinDelta)
	}
	return nil
}

// What init_values may be.
const (
	ValuesOfExport = "export"
	ValuesOfSeed   = "seed"
)

// validateInit returns an error if init_values is neither of its words.
func (p Params) validateInit() error {
	if p.InitValues != ValuesOfExport && p.InitValues != ValuesOfSeed {
		return fmt.Errorf("init_values is %q; expected %s or %s", p.InitValues, ValuesOfExport, ValuesOfSeed)
	}
	return nil
}

// validateData returns an error that names the first invalid param of the data and their batches.
func (p Params) validateData() error {
	if p.Data.Rows > p.Train.BatchSize {
		return fmt.Errorf("data.rows is %d and train.batch_size is %d; expected at most one row for each example; lower data.rows, or set train.batch_size to the most examples of a step", p.Data.Rows, p.Train.BatchSize)
	}
	if p.Data.Rows != 0 && p.Strategy.Input == InputLocal {
		return fmt.Errorf("strategy.input is local and data.rows is %d; expected 0, because workers that read their own parts cannot fill rows together; use --set strategy.input=chief, or leave out data.rows", p.Data.Rows)
	}
	if !(p.Data.MaskProbability > 0 && p.Data.MaskProbability < 1) {
		return fmt.Errorf("data.mask_probability is %v; expected more than 0 and less than 1", p.Data.MaskProbability)
	}
	if err := p.Data.ClassWeights.validate("data.class_weights", ClassesNone, ClassesBalanced); err != nil {
		return err
	}
	if err := p.Data.Sampling.validate("data.sampling", ClassesUniform, ClassesBalanced); err != nil {
		return err
	}
	if p.Data.Sampling.Rule != ClassesUniform && p.Data.Shuffle != string(dataset.ShuffleFull) {
		return fmt.Errorf("data.shuffle is %s and data.sampling is not uniform; expected full; leave out data.shuffle", p.Data.Shuffle)
	}
	layout := p.Packed()
	buckets, err := p.Data.BucketLengths()
	switch {
	case err != nil:
		return err
	case len(buckets) == 0:
	case p.Data.Rows == 0:
		layout.Buckets = nil // without rows, or these are chosen once the data has been opened
	case p.Data.RowLength == 0:
		layout.RowLength = slices.Max(buckets) + 1 // it may be as long
	}
	for _, train := range []bool{true, false} {
		if err := p.Dataset([]string{"."}, train, layout).Validate(); err != nil {
			return fmt.Errorf("data: %w", err)
		}
	}
	return nil
}

// validateVariables returns an error that names the first invalid group, or the decay of layers or averages.
func (o Optimizer) validateVariables() error {
	for i, g := range o.Groups {
		if err := g.Validate(); err != nil {
			return fmt.Errorf("%s.%w", GroupName(i), err)
		}
	}
	if !(o.EMA >= 0 && o.EMA < 1) {
		return fmt.Errorf("optimizer.ema is %v; expected 0 (off) or more and less than 1, such as 0.999", o.EMA)
	}
	return CheckLayerDecay(o.LayerDecay)
}

const (
	NoEval = -2
	// mostHours is more than a hundred years and fits into a time.Duration.
	mostHours = 1_000_000
)

func (p Params) StrategyConfig(functions strategy.Functions) strategy.Config {
	return strategy.Config{StepsPerCall: p.stepsPerCall(), IntraOpThreads: p.Runtime.IntraOpThreads, InterOpThreads: p.Runtime.InterOpThreads, Functions: functions,
		StandardOps: p.Runtime.Kernels == "off", ShardOptimizer: p.Strategy.ShardOptimizer, BucketBytes: int64(p.Strategy.BucketMB * (1 << 20))}
}

// stepsPerCall returns the number of steps in a call; 0 means the strategy's best. No call is longer
// than a loop.
func (p Params) stepsPerCall() int {
	if p.Strategy.Input == InputLocal {
		return 1
	}
	return int(min(int64(p.Train.StepsPerCall), p.Train.StepsPerLoop))
}

// Dataset returns the configuration of the data: for training, endless shuffled passes; for
// evaluation, one pass in order.
func (p Params) Dataset(files []string, train bool, layout dataset.Layout) dataset.Config {
	policy, _ := tfrecord.ParsePolicy(p.Data.OnCorrupt)
	c := dataset.Config{
		Files:     files,
		BatchSize: p.Eval.BatchSize,
		Epochs:    1,
		Shuffle:   dataset.ShuffleNone,
		Layout:    layout,
		OnCorrupt: policy,
		Readers:   p.Data.Readers,
	}
	if train {
		c.BatchSize, c.Epochs = p.Train.BatchSize, 0
		c.Shuffle, c.Buffer, c.Seed = dataset.Shuffle(p.Data.Shuffle), p.Data.Buffer, uint64(p.Seed)
		c.DropRemainder = p.Data.DropRemainder
	} else if rows, ok := layout.(packed.Config); ok && rows.Rows > 0 {
		c.BatchSize = rows.Shape(1).Examples
	} else if stacked, ok := layout.(dense.Config); ok && stacked.Examples > 0 {
		c.BatchSize = stacked.Examples
	}
	return c
}

// BucketLengths returns the lengths of data.buckets.
func (d Data) BucketLengths() ([]int, error) {
	if d.Buckets == "" {
		return nil, nil
	}
	var out []int
	for word := range strings.SplitSeq(d.Buckets, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("data.buckets is %q; expected lengths of rows, such as 32,64", d.Buckets)
		}
		out = append(out, n)
	}
	return out, nil
}

// Packed returns how the examples of a batch are laid into rows.
func (p Params) Packed() packed.Config {
	buckets, _ := p.Data.BucketLengths() // checked by Validate
	return packed.Config{Packing: packed.Packing(p.Data.Packing), RowLength: p.Data.RowLength, Rows: p.Data.Rows, RowExamples: p.Data.RowExamples, Buckets: buckets, Truncate: p.Data.Truncate}
}

func (p Params) ScheduleConfig(steps int64) runner.ScheduleConfig {
	o := p.Optimizer
	return runner.ScheduleConfig{Name: o.Schedule, PeakLearningRate: o.LearningRate, EndLearningRate: o.EndLearningRate,
		WarmupSteps: o.WarmupSteps, WarmupRatio: o.WarmupRatio, TotalSteps: steps, Power: o.Power, Cycles: o.Cycles, Timescale: o.Timescale}
}

// Flat returns the params by name, section.name. Strings are quoted.
func (p Params) Flat() map[string]any {
	out := make(map[string]any)
	var add func(path string, v reflect.Value)
	add = func(path string, v reflect.Value) {
		if by, ok := v.Interface().(ByClass); ok {
			if v = reflect.ValueOf(by.Of); by.Rule != "" {
				v = reflect.ValueOf(by.Rule)
			}
		}
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
		case reflect.Slice:
			for i := range v.Len() {
				add(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
			}
		default:
			out[path] = v.Interface()
		}
	}
	add("", reflect.ValueOf(p))
	return out
}

// checkChoices returns an error that names the first param that has none of the values that it takes.
func (p Params) checkChoices() error {
	values := p.Flat()
	return checkChoices(func(param string) string {
		text, _ := strconv.Unquote(values[param].(string))
		return text
	})
}

// Meant returns the param that was most likely meant by a name that no param has, or "" if none
// is like it.
func Meant(name string) string {
	return meantAmong(name, slices.Sorted(maps.Keys(Defaults().Flat())))
}

// decode applies the values of one YAML document to the params.
func (p *Params) decode(data []byte) error {
	node, err := document(data)
	if err != nil || node == nil {
		return err
	}
	if err := checkNode(node.Content[0], reflect.TypeFor[Params](), ""); err != nil {
		if unknown := (*nodeError)(nil); errors.As(err, &unknown) && unknown.unknown != "" {
			if meant := Meant(unknown.unknown); meant != "" {
				unknown.Err = fmt.Errorf("%w; did you mean %s?", unknown.Err, meant)
			}
		}
		return err
	}
	return node.Decode(p)
}
