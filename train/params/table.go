package params

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/data/pixels"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/tpu"
)

// Param is what there is to know of a param, but for the field that holds it.
type Param struct {
	// Name is section.name, as in params.yaml.
	Name string
	// Default is what Defaults sets; nil for the zero value.
	Default any
	// Choices are the values of a param that takes one of a few; with Empty, it may be "", too.
	Choices []string
	Empty   bool
	// check is what a value must fulfil by itself; Validate checks more of some together.
	check rule
	// Change says when a run may change it.
	Change Change
	// Read means that reading a run (evaluating, predicting) depends on it. The others are for training.
	Read bool
	// Compared means that runs with different values cannot be compared.
	Compared bool
	// On says whether it is only for TPUs, or not for them.
	On On
	// Flag is the flag of gorbit train for it, if it has one.
	Flag Flag
	// Meaning is its description, in Markdown, and See where docs/guide says more. The table in
	// docs/guide/run.md is made of them.
	Meaning, See string
}

// Flag is a flag for a param.
type Flag struct {
	// Name is without the dashes; "" if there is no flag.
	Name string
	// Group is the title below which help shows it.
	Group string
	// Form is that of its value in help; "" for that of the param's type.
	Form string
	Help string
}

// Words of params.
const (
	// ValuesOfExport and ValuesOfSeed are those of init_values.
	ValuesOfExport = "export"
	ValuesOfSeed   = "seed"
	// ModeAuto, ModeMax and ModeMin are those of checkpoint.best_mode. "" is the same as ModeAuto.
	ModeAuto = "auto"
	ModeMax  = "max"
	ModeMin  = "min"
	// BestAuto is the checkpoint.best that stands for the best metric of the graph.
	BestAuto = "auto"
	// NoEval is the train.eval_interval without evaluations.
	NoEval = -2
	// NoSave is the checkpoint.interval with which only the end is saved.
	NoSave = -1
	// mostHours is more than a hundred years and fits into a time.Duration.
	mostHours = 1_000_000
)

// The groups of flags.
const (
	WhatToTrain = "What to train"
	OfData      = "Data"
	HowLong     = "How long"
	OfOptimizer = "Optimizer"
	OfLoop      = "Log, evaluations and checkpoints"
	Where       = "Where"
	CloudTPU    = "Cloud TPU"
)

// Change says when a run may change a param.
type Change int

const (
	// Free params may change: a run continues with the new value from its next step on.
	Free Change = iota
	// Outside are params that affect neither the variables nor the evaluations of a run: where it runs,
	// and what it logs and keeps.
	Outside
	// FromStart are params that a run cannot change after its first step, however long it is made: its
	// weights come from a checkpoint, and its position in the data depends on the others.
	FromStart
	// Settled are as FromStart, and 0 is what the run began with.
	Settled
	// Kept are params that affect only how sums are rounded: a run keeps its own, whatever is asked for.
	Kept
)

// On says where a param has an effect.
type On int

// Anywhere is also where a TPU is not, NoTPU is there alone.
const (
	Anywhere On = iota
	OnlyTPU
	NoTPU
)

// Affects reports whether params that change so affect the variables or the evaluations of a run.
func (c Change) Affects() bool { return c != Outside && c != Kept }

// Fixed reports whether a run has them from its first step on, and other values are an error.
func (c Change) Fixed() bool { return c == FromStart || c == Settled }

// Table returns all params, by section.
func Table() []Param { return slices.Clone(table) }

// Lookup returns the param of a name, which may be that of a member, such as data.features.image or
// optimizer.groups[0].match.
func Lookup(name string) (Param, bool) {
	for _, p := range table {
		rest, ok := strings.CutPrefix(name, p.Name)
		if ok && (rest == "" || hasMembers[p.Name] && strings.ContainsAny(rest[:1], ".[")) {
			return p, true
		}
	}
	return Param{}, false
}

// Choices returns the values of a param that takes one of a few, or nil for other params.
func Choices(name string) []string {
	p, _ := Lookup(name)
	return p.Choices
}

// table has all params, by section.
var table = []Param{
	{Name: "graph", Read: true, Compared: true,
		Flag:    Flag{"graph", WhatToTrain, "FOLDER", "folder of the export"},
		Meaning: "folder of an export"},
	{Name: "init", Change: FromStart,
		Flag: Flag{"init", WhatToTrain, "PATH", "initial weights: file of safetensors or GGUF, checkpoint or run folder"},
		Meaning: "initial weights: a file of safetensors or GGUF, a checkpoint's prefix or folder, or a run folder; \"\" keeps the " +
			"export's values, as do variables that it lacks"},
	{Name: "strict", Change: FromStart,
		Flag:    Flag{"strict", WhatToTrain, "", "fail if --init lacks a variable or has it in another shape"},
		Meaning: "fail if `init` lacks a variable or has it in another shape"},
	{Name: "init_partial", Change: FromStart,
		Meaning: "allow `init` to fill less than half of the encoder (of the model, without one), to have another number of positions, which " +
			"then keep the export's values, or to have learned other labels or categories; these are refused otherwise"},
	{Name: "init_values", Default: ValuesOfExport, Choices: []string{ValuesOfExport, ValuesOfSeed}, Change: FromStart,
		Meaning: "what variables that init lacks begin with: export, the values in the export, or seed, numbers drawn " +
			"by the run's seed in the way that the export tells"},
	{Name: "seed", Default: 42, Change: FromStart,
		Flag: Flag{"seed", WhatToTrain, "", "seed for the order of the data and the graph's random numbers"},
		Meaning: "seed for the order of the data and the graph's random numbers; with `init_values=seed`, also for the " +
			"initial values"},
	{Name: "data.dir", Read: true, Compared: true,
		Flag:    Flag{"data", OfData, "FOLDER", "folder of the records"},
		Meaning: "folder that `gorbit convert` wrote, or any folder of TFRecords"},
	{Name: "data.train", Default: "train", Change: FromStart,
		Meaning: "split to train on: its name in the manifest, or a file, pattern or base of shard names in the folder"},
	{Name: "data.eval", Default: Splits{"dev"}, Read: true, Compared: true,
		Meaning: "split to evaluate on, named the same way, or a list such as `[dev, test]`: the metrics of the first " +
			"have plain names, and those of the others begin with the split, such as `test/accuracy`",
		See: "[evaluate.md](evaluate.md#several-splits)"},
	{Name: "data.train_examples", check: atLeast(0, "0 (all) or more"), Change: FromStart,
		Meaning: "train on so many examples of the split, the first that its shuffle by `seed` draws; 0, or more than there are: all"},
	{Name: "data.features", Change: FromStart, Read: true,
		Meaning: "names of features in the records, by the graph's names, where they differ, such as " +
			"`data.features.image=pixels`"},
	{Name: "data.resize", Choices: pixels.Resizes, Empty: true, Change: FromStart, Read: true,
		Meaning: "how PNG and JPEG images of other sizes are scaled to the graph's: bilinear, antialias or nearest; " +
			"empty: they are refused. Images that are labels are always scaled by nearest"},
	{Name: "data.crop_to_aspect_ratio", Change: FromStart, Read: true,
		Meaning: "before scaling, cut images down to the graph's proportions, as Keras does"},
	{Name: "data.jpeg", Choices: pixels.JPEGDecoders, Empty: true, Change: Settled, Read: true,
		Meaning: "what decodes JPEG images: tensorflow, libjpeg-turbo in TensorFlow's library, with the pixels of " +
			"tf.io.decode_jpeg, or go, Go's library, which takes five times as long and has other pixels; empty: tensorflow. A " +
			"run keeps it; those that do not say it began with go"},
	{Name: "data.row_length", check: atLeast(0, "0 (by the data) or more"), Change: Settled, Read: true,
		Meaning: "positions in a row, and the maximum tokens of an example; 0: 128 or, for longer examples, the longest " +
			"rounded up to a multiple of 64, but never more than the graph's positions. A run keeps it. For graphs " +
			"without rows: the maximum length of an example on an open axis, and on a TPU the length of all; 0: no " +
			"limit, and on a TPU the longest of the data"},
	{Name: "data.target_row_length", check: atLeast(0, "0 (as `data.row_length`) or more"), Change: FromStart, Read: true,
		Meaning: "for encoder-decoder models: positions in a row of targets, and the maximum tokens of a target; 0: as " +
			"`data.row_length`"},
	{Name: "data.truncate", Change: FromStart, Read: true,
		Meaning: "shorten longer examples instead of refusing them"},
	{Name: "data.rows", check: atLeast(0, "0 (as many as a batch needs) or more"), Change: Settled, Read: true,
		Meaning: "rows of every batch, of `data.row_length` each, shared evenly by the micro-batches: all features then " +
			"have one shape, as TPUs need it. A batch takes as many of the next examples as fit, at most " +
			"`train.batch_size`; the others come first in the next batch. 0: as many rows as each batch needs, but on TPUs, and on " +
			"GPUs for exports with `--xla`, a number by the data. A run keeps it"},
	{Name: "data.row_examples", check: atLeast(0, "0 (by the data) or more"), Change: Settled, Read: true,
		Meaning: "maximum examples in one of `data.rows`; 0: twice as many as fit on average, or one for every 8 " +
			"positions if the data have no manifest. A run keeps it"},
	{Name: "data.buckets", Change: Settled, Read: true,
		Meaning: "more lengths of rows, below `data.row_length`, such as 32,64; needs `data.rows`. The rows of a batch " +
			"then all have one of these lengths, and examples go to the shortest rows that hold them. A run keeps " +
			"it. For graphs without rows: more lengths of batches; each batch holds examples of similar lengths"},
	{Name: "data.mask_probability", Default: packed.DefaultMaskProbability, check: between(0, 1, "more than 0 and less than 1"), Change: FromStart,
		Meaning: "share of the tokens that a masked language model is to predict"},
	{Name: "data.whole_words", Change: FromStart,
		Meaning: "mask all tokens of a word or none; the records say where words start"},
	{Name: "data.mask_span", check: rule{"0 (none) or 1 to 10", func(v float64) bool { return v == 0 || v >= 1 && v <= packed.MaxSpan }}, Change: FromStart,
		Meaning: "mask spans of this many tokens, or words, on average, as SpanBERT does; 0 masks each by itself"},
	{Name: "data.packing", Default: string(packed.PackBestFit), Choices: []string{string(packed.PackBestFit), string(packed.PackFirstFit), string(packed.PackNone)}, Empty: true, Change: FromStart, Read: true,
		Meaning: "how examples are packed into rows: best-fit, first-fit, none (one per row)"},
	{Name: "data.shuffle", Default: string(dataset.ShuffleFull), Choices: []string{string(dataset.ShuffleFull), string(dataset.ShuffleBuffer), string(dataset.ShuffleNone)}, Empty: true, Change: FromStart,
		Meaning: "full: a permutation of the whole set per epoch; buffer: `data.buffer` examples at a time; none"},
	{Name: "data.buffer", check: atLeast(0, "0 (the default) or more"), Change: FromStart,
		Meaning: "number of examples that buffer shuffles at a time; 0 is 65,536"},
	{Name: "data.class_weights", Default: ClassesNone, Change: FromStart,
		Meaning: "how much the examples of each class count in training: none, balanced (all classes together count the " +
			"same), or a number for each class, by its name or number, such as `data.class_weights.positive=2`; " +
			"other classes have 1. A run keeps it",
		See: "[Classes of unequal size](#classes-of-unequal-size)"},
	{Name: "data.sampling", Default: ClassesUniform, Change: FromStart,
		Meaning: "how often the examples of each class are drawn in an epoch: uniform (each once), balanced (with " +
			"replacement, all classes equally often), or a number for each class, by its name or number, such as " +
			"`data.sampling.positive=2`, which the chance of its examples is in proportion to; other classes have " +
			"1. A run keeps it"},
	{Name: "data.drop_remainder", Change: FromStart,
		Meaning: "leave out the last, smaller batch of an epoch"},
	{Name: "data.on_corrupt", Default: "fail", Choices: []string{tfrecord.Fail.String(), tfrecord.Skip.String()}, Read: true,
		Flag:    Flag{"on-corrupt", OfData, "fail|skip", "what to do with damaged records"},
		Meaning: "what to do with damaged records: fail or skip"},
	{Name: "data.readers", check: within(0, 1024, "0 (the default) to 1024"), Change: Outside, Read: true,
		Meaning: "goroutines that build batches, up to 1024; 0 is two. Batches do not depend on it"},
	{Name: "train.batch_size", Default: 32, check: atLeast(1, "1 or more"), Change: FromStart,
		Flag:    Flag{"batch-size", OfData, "", "global batch size, in examples"},
		Meaning: "global batch size: examples per step, with any packing; with `data.rows`, the most examples of a step"},
	{Name: "train.batch_warmup", Change: FromStart,
		Meaning: "batch sizes from steps on, which grow to `train.batch_size`, such as 0:8, 1000:16, 2000:32 ([Growing batches](#growing-batches))"},
	{Name: "train.length_warmup", Change: FromStart,
		Meaning: "lengths of rows from steps on, which grow to `data.row_length`, such as 0:128, 1000:256, 3000:512, for tasks mlm and lm ([Growing rows](#growing-rows))"},
	{Name: "train.epochs", Default: 3,
		Flag:    Flag{"epochs", HowLong, "", "epochs to train"},
		Meaning: "how long to train, in epochs, if `train.steps` is 0; may be a fraction"},
	{Name: "train.steps", check: atLeast(0, "0 (use train.epochs) or more"),
		Flag:    Flag{"steps", HowLong, "", "steps to train, instead of epochs"},
		Meaning: "how long to train, in steps; 0: use `train.epochs`"},
	{Name: "train.steps_per_loop", Default: 20, check: interval(0, "0 (every epoch) or a number of steps"), Change: Outside,
		Flag:    Flag{"steps-per-loop", OfLoop, "", "steps between two log lines (0: every epoch; below 1: a share of all steps)"},
		Meaning: "steps between two log lines; 0: once per epoch; below 1: a share of all steps, such as 0.1"},
	{Name: "train.log_first_step", Change: Outside,
		Meaning: "log the first step by itself, before the first loop ends: a line, and one in metrics.jsonl"},
	{Name: "train.steps_per_call", check: atLeast(0, "0 (the strategy's best) or more"), Change: Outside,
		Flag: Flag{"steps-per-call", Where, "", "most steps in one call of the devices; results do not depend on it (0: the strategy's best)"},
		Meaning: "most steps that are made in one call of the devices, within a loop; 0: the strategy's best. Results " +
			"do not depend on it",
		See: "[Steps per call](#steps-per-call)"},
	{Name: "train.eval_interval", check: interval(NoEval, "-2 (no evaluation), -1 (at the end), 0 (every epoch) or a number of steps"), Compared: true,
		Flag: Flag{"eval-interval", OfLoop, "", "steps between evaluations (0: every epoch, -1: only at the end, -2: none; below 1: a share of all steps)"},
		Meaning: "steps between evaluations; 0: once per epoch, -1: only at the end, -2: none; below 1: a share of all steps, " +
			"such as 0.1"},
	{Name: "train.on_non_finite", Default: "fail", Choices: []string{"fail", "skip", "rollback"},
		Meaning: "what to do when a loss or gradient is not finite: fail, skip (the batch), rollback (to the last " +
			"checkpoint, then continue after the batch)"},
	{Name: "train.max_non_finite", Default: 10, check: atLeast(1, "1 or more"),
		Meaning: "how often that may happen in one run"},
	{Name: "train.debug_numerics", Change: Outside, On: NoTPU,
		Flag: Flag{"debug-numerics", OfLoop, "", "name the first tensor that is not finite if a loss or gradient is not"},
		Meaning: "when a loss or gradient is not finite, compute the step once more and name the first tensor and the " +
			"first gradient that are not; other steps cost nothing",
		See: "[inside.md](inside.md#numbers-that-are-not-finite)"},
	{Name: "train.profile", Change: Outside, On: NoTPU,
		Flag: Flag{"profile", OfLoop, "FIRST-LAST", "trace these steps, such as 100-105: for Chrome, Perfetto and TensorBoard"},
		Meaning: "trace these steps, the first and the last of at most 100, such as 100-105: what ran on each device and " +
			"thread, for Chrome, Perfetto and TensorBoard, and the costliest operations; empty: none",
		See: "[inside.md](inside.md#profile)"},
	{Name: "train.patience", check: atLeast(0, "0 (off) or more"),
		Flag:    Flag{"patience", HowLong, "", "stop after this many evaluations without a better one (0: off)"},
		Meaning: "stop training after this many evaluations without a better `checkpoint.best`; 0 is off"},
	{Name: "train.min_delta", check: finite(0, "a finite number of 0 or more"),
		Flag: Flag{"min-delta", HowLong, "", "how much better an evaluation must be to count for --patience"},
		Meaning: "how much better than the best before an evaluation must be to count for `train.patience`; the best " +
			"checkpoint is the best by any difference"},
	{Name: "eval.batch_size", Default: 64, check: atLeast(1, "1 or more"), Read: true,
		Meaning: "examples per batch in evaluations; with `data.rows`, a batch has as many as fit"},
	{Name: "eval.steps", check: atLeast(0, "0 (all) or more"), Read: true, Compared: true,
		Meaning: "maximum batches of an evaluation; 0 is all"},
	{Name: "eval.examples", check: atLeast(0, "0 (all) or more"), Read: true, Compared: true,
		Meaning: "evaluate on so many examples of each split, chosen by a shuffle by `seed` and the same in every evaluation; 0, or more " +
			"than there are: all"},
	{Name: "eval.at_start",
		Meaning: "evaluate before the first step, too; the model that training begins with may then be the best, and is " +
			"kept as `ckpt-0`"},
	{Name: "eval.null_threshold", check: finite(-math.MaxFloat64, "a number"), Read: true,
		Meaning: "task qa: a question has no answer if the score of none exceeds that of the best span by more than " +
			"this"},
	{Name: "eval.generate.metrics", Read: true, On: NoTPU,
		Meaning: "scores of the texts that evaluations generate for the prompts of their examples, such as bleu,rougeL; " +
			"empty: none are generated",
		See: "[generate.md](generate.md#scores)"},
	{Name: "eval.generate.max_new_tokens", Default: 128, check: atLeast(1, "1 or more"), Read: true, Compared: true,
		Meaning: "most tokens of such a text; fewer where the model has no room for them"},
	{Name: "eval.generate.num_beams", Default: 1, check: atLeast(1, "1 or more"), Read: true, Compared: true,
		Meaning: "beams of the search for such a text"},
	{Name: "eval.generate.examples", check: atLeast(0, "0 (by the budget) or more"), Read: true, Compared: true,
		Meaning: "examples that texts are generated for, drawn by `seed`; 0: as many as fit into the budget"},
	{Name: "eval.generate.budget", Default: 0.1, check: between(0, math.Inf(1), "more than 0"),
		Meaning: "without `eval.generate.examples`: the part of the time of training until the first evaluation that its " +
			"texts may take, of all splits together. Later evaluations have the same examples"},
	{Name: "optimizer.learning_rate", Default: 5e-5, check: between(0, math.Inf(1), "more than 0"),
		Flag:    Flag{"learning-rate", OfOptimizer, "", "peak learning rate"},
		Meaning: "peak learning rate of the schedule"},
	{Name: "optimizer.end_learning_rate", check: finite(0, "a finite number, 0 or more"),
		Meaning: "final learning rate of linear, polynomial, exponential, wsd and both cosine schedules, and the lowest of " +
			"plateau"},
	{Name: "optimizer.schedule", Default: runner.Linear, Choices: runner.Schedules(),
		Flag: Flag{"schedule", OfOptimizer, "NAME", words.Or(runner.Schedules())},
		Meaning: "constant, linear, polynomial, cosine, cosine_with_restarts, inverse_sqrt, exponential, " +
			"wsd (warmup, stable, decay), points, plateau"},
	{Name: "optimizer.warmup_ratio", Default: 0.1, check: within(0, 1, "0 to 1"),
		Flag:    Flag{"warmup-ratio", OfOptimizer, "", "share of all steps spent warming up"},
		Meaning: "linear warmup as a share of all steps"},
	{Name: "optimizer.warmup_steps", check: atLeast(0, "0 or more"),
		Flag:    Flag{"warmup-steps", OfOptimizer, "", "steps spent warming up, instead of a share"},
		Meaning: "steps of linear warmup at the start; 0: use `optimizer.warmup_ratio`"},
	{Name: "optimizer.power", check: finite(0, "0 (1) or more"),
		Meaning: "exponent of polynomial; 0 is 1",
		See:     "[runner.md](../design/runner.md)"},
	{Name: "optimizer.cycles", check: finite(0, "0 (half a wave, or one decay) or more"),
		Meaning: "number of waves of cosine, or of decays of cosine_with_restarts; 0 is half a wave, or one decay"},
	{Name: "optimizer.timescale", check: atLeast(0, "0 (by the warmup) or more"),
		Meaning: "timescale of inverse_sqrt in steps; 0 is the warmup's length, or 10,000 without warmup"},
	{Name: "optimizer.decay_ratio", Default: 0.1, check: within(0, 1, "0 to 1"),
		Meaning: "decay of wsd as a share of all steps, the last ones"},
	{Name: "optimizer.decay_steps", check: atLeast(0, "0 or more"),
		Meaning: "last steps in which wsd decays; 0: use `optimizer.decay_ratio`"},
	{Name: "optimizer.decay_shape", Default: runner.ShapeCosine, Choices: runner.DecayShapes(),
		Meaning: "how wsd decays: cosine, linear, 1-sqrt"},
	{Name: "optimizer.points",
		Meaning: "the schedule points: factors of the learning rate at steps or shares of all steps, and straight " +
			"lines between them, such as 0:0, 5%:1, 80%:1, 100%:0.1",
		See: "[runner.md](../design/runner.md)"},
	{Name: "optimizer.plateau.metric",
		Meaning: "metric of evaluations that the schedule plateau watches; empty: `checkpoint.best`",
		See:     "[evaluate.md](evaluate.md#a-learning-rate-that-follows-evaluations)"},
	{Name: "optimizer.plateau.factor", Default: 0.1, check: between(0, 1, "more than 0 and less than 1"),
		Meaning: "what plateau multiplies the learning rate by when the metric does not get better"},
	{Name: "optimizer.plateau.patience", Default: 10, check: atLeast(1, "1 or more"),
		Meaning: "evaluations in a row without a better one after which it does that"},
	{Name: "optimizer.plateau.min_delta", Default: 1e-4, check: finite(0, "a finite number of 0 or more"),
		Meaning: "how much better than the best before an evaluation must be to count for that, as a difference"},
	{Name: "optimizer.plateau.cooldown", check: atLeast(0, "0 or more"),
		Meaning: "evaluations after a reduction that do not count"},
	{Name: "optimizer.weight_decay", Default: 0.01, check: atLeast(0, "0 or more"),
		Meaning: "decoupled weight decay, for all variables except biases and norms"},
	{Name: "optimizer.clip_norm", Default: 1, check: atLeast(0, "0 (off) or more"),
		Meaning: "clip gradients to this global norm; 0 is off"},
	{Name: "optimizer.groups",
		Meaning: "variables with a learning rate or weight decay of their own, or frozen: a list of `match`, " +
			"`learning_rate_scale`, `weight_decay_scale` and `frozen`",
		See: "[optimizers.md](../reference/optimizers.md#groups-of-variables)"},
	{Name: "optimizer.layer_decay", Default: 1,
		Meaning: "factor of the learning rate from one layer to that below it, down to the embeddings, for names such " +
			"as layers/0/; 1 is off",
		See: "[optimizers.md](../reference/optimizers.md#layer-wise-decay)"},
	{Name: "optimizer.ema", check: rule{"0 (off) or more and less than 1, such as 0.999", func(v float64) bool { return v >= 0 && v < 1 }},
		Meaning: "decay of moving averages of the variables, which evaluations and exports then use, such as 0.999; 0 " +
			"is off",
		See: "[optimizers.md](../reference/optimizers.md#moving-averages)"},
	{Name: "optimizer.swa", check: atLeast(0, "0 (off) or the number of a step"), Change: FromStart,
		Meaning: "step from which on evaluations and exports use the mean of the variables after it and after later " +
			"steps, with equal weights; 0 is off",
		See: "[optimizers.md](../reference/optimizers.md#stochastic-weight-averaging)"},
	{Name: "optimizer.swa_every", Default: 1, check: atLeast(1, "1 or more"), Change: FromStart,
		Meaning: "steps from one to the next of those whose variables are in the mean of `optimizer.swa`"},
	{Name: "optimizer.hyperparameters",
		Meaning: "the graph's hyperparameters by name (`gorbit inspect` lists them): dropout rates, betas, epsilon, " +
			"label smoothing"},
	{Name: "checkpoint.interval", check: interval(NoSave, "-1 (at the end), 0 (as evaluations) or a number of steps"),
		Flag: Flag{"checkpoint-interval", OfLoop, "", "steps between checkpoints (0: same as --eval-interval, -1: only at the end; below 1: a share of all steps)"},
		Meaning: "steps between checkpoints; 0: same as evaluations, -1: none; below 1: a share of all steps, such as 0.1. The end of " +
			"training is always saved, and so is a run that stops; `checkpoint.best` saves evaluations, too"},
	{Name: "checkpoint.max_to_keep", Default: 3, check: atLeast(0, "0 (all) or more"), Change: Outside,
		Meaning: "number of checkpoints to keep; 0 is all"},
	{Name: "checkpoint.keep_every_hours", check: within(0, mostHours, "0 (off) to 1000000"), Change: Outside,
		Meaning: "keep one checkpoint per this many hours permanently; 0 is off, 1,000,000 the most"},
	{Name: "checkpoint.best", Default: BestAuto, Compared: true,
		Meaning: "metric that selects the best checkpoint, which is kept; auto: the graph's own choice, which gorbit " +
			"inspect prints; \"\" for none. If set, every evaluation is followed by a checkpoint"},
	{Name: "checkpoint.best_mode", Default: ModeAuto, Choices: []string{ModeAuto, ModeMax, ModeMin}, Empty: true, Compared: true,
		Meaning: "auto: as the graph or its task says, such as lower for `loss`; max and min are for metrics whose " +
			"direction they do not say, and are refused if they contradict them"},
	{Name: "summary.enabled", Default: true, Change: Outside, Read: true,
		Meaning: "write TensorBoard files"},
	{Name: "summary.interval", check: atLeast(0, "0 (every loop) or more"), Change: Outside,
		Meaning: "steps between training summaries; 0: every loop"},
	{Name: "summary.histograms", Change: Outside,
		Meaning: "write histograms of the variables at every evaluation"},
	{Name: "summary.histogram_interval", check: atLeast(0, "0 (off) or a number of steps"), Change: Outside, On: NoTPU,
		Meaning: "steps between histograms of the variables and of their gradients, layer by layer; 0 is off",
		See:     "[inside.md](inside.md#histograms)"},
	{Name: "strategy.name", Default: devices.Auto, Choices: append(devices.Strategies(), devices.TPU), Change: Outside, Read: true,
		Flag: Flag{"strategy", Where, "NAME", "auto, one, mirrored (several devices of this machine), multiworker (several machines) or tpu"},
		Meaning: "one, mirrored (several devices of this machine), multiworker (several machines), tpu; auto: chosen by " +
			"the params below, otherwise all GPUs",
		See: "[strategies.md](strategies.md)"},
	{Name: "strategy.devices", Change: Outside, On: NoTPU, Read: true,
		Flag: Flag{"devices", Where, "gpu:N|cpu:N", "devices of this machine, one replica each; cpu:N makes virtual ones"},
		Meaning: "devices of this machine, one replica each: `gpu:4`, or `cpu:4` for virtual ones; workers choose their " +
			"own devices"},
	{Name: "strategy.workers", Change: Outside, Read: true,
		Flag:    Flag{"workers", Where, "HOST:PORT,...", "addresses of gorbit worker processes"},
		Meaning: "comma-separated addresses of `gorbit worker` processes"},
	{Name: "strategy.input", Default: InputChief, Choices: []string{InputChief, InputLocal}, Change: Outside,
		Flag:    Flag{"input", Where, "chief|local", "who reads the training batches: chief, or local (each worker reads its own part)"},
		Meaning: "who reads the training batches: `chief`, or `local` for each worker to read its own part",
		See:     "[strategies.md](strategies.md)"},
	{Name: "strategy.accumulate", Default: 1, check: atLeast(1, "1 or more"), Change: Outside, On: NoTPU,
		Flag:    Flag{"accumulate", Where, "", "micro-batches per replica for each update"},
		Meaning: "micro-batches per replica for each update; doubled when memory runs out"},
	{Name: "strategy.shard_optimizer", Change: Outside, On: NoTPU,
		Flag:    Flag{"shard-optimizer", Where, "", "keep the optimizer state of each variable on only one replica"},
		Meaning: "keep the optimizer slots of each variable on only one replica"},
	{Name: "strategy.offload", Choices: []string{OffloadDisk, OffloadAll}, Empty: true, Change: Outside, On: NoTPU, Read: true,
		Meaning: "`disk`: keep the optimizer slots in files in the run's folder instead of in memory, for models that " +
			"would not fit; `all`: the variables and gradients, too; on CPUs",
		See: "[strategies.md](strategies.md#slots-on-disk)"},
	{Name: "strategy.bucket_mb", Default: float64(strategy.DefaultBucketBytes) / (1 << 20), check: rule{"more than 0 and at most 1048576", func(v float64) bool { return v > 0 && v <= 1<<20 }}, Change: Outside, On: NoTPU,
		Meaning: "size in MiB of the buckets in which gradients are reduced"},
	{Name: "strategy.worker_timeout", Default: time.Minute, check: within(float64(time.Second), float64(cluster.MaxTimeout), "1s to 1h0m0s"), Change: Outside, Read: true,
		Flag:    Flag{"worker-timeout", Where, "", "how long to wait for a worker to start or to answer"},
		Meaning: "how long to wait for a worker to start or to answer: 1s to 1h"},
	{Name: "strategy.max_restarts", Default: 3, check: atLeast(0, "0 or more"), Change: Outside,
		Flag:    Flag{"max-restarts", Where, "", "how often to continue from the last checkpoint after losing a worker or the TPU"},
		Meaning: "how often to continue from the last checkpoint after losing a worker or the TPU"},
	{Name: "strategy.elastic", Change: Outside, On: NoTPU,
		Flag:    Flag{"elastic", Where, "", "continue without workers that do not come back"},
		Meaning: "continue without workers that do not come back"},
	{Name: "strategy.tpu", Change: Outside, On: OnlyTPU, Read: true,
		Flag: Flag{"tpu", CloudTPU, "NAME|grpc://...|local", "Cloud TPU to use: a node's name, addresses grpc://HOST:8470,..., or local"},
		Meaning: "Cloud TPU: a node's name, comma-separated addresses (`grpc://10.0.0.2:8470`), or local; \"\" with " +
			"strategy tpu takes the name from the environment, as `gorbit tpu describe` does",
		See: "[tpu.md](tpu.md)"},
	{Name: "strategy.tpu_project", Change: Outside, On: OnlyTPU, Read: true,
		Flag:    Flag{"tpu-project", CloudTPU, "NAME", "project of the TPU"},
		Meaning: "project of the node; \"\" is this machine's"},
	{Name: "strategy.tpu_zone", Change: Outside, On: OnlyTPU, Read: true,
		Flag:    Flag{"tpu-zone", CloudTPU, "ZONE", "zone of the TPU"},
		Meaning: "zone of the node; \"\" is this machine's"},
	{Name: "strategy.tpu_api", Change: Outside, On: OnlyTPU, Read: true,
		Flag:    Flag{"tpu-api", CloudTPU, "URL", "base URL of the Cloud TPU API"},
		Meaning: "base URL of the Cloud TPU API; \"\" is Google's"},
	{Name: "strategy.tpu_ready_timeout", Change: Outside, On: OnlyTPU, Read: true,
		Flag:    Flag{"tpu-ready-timeout", CloudTPU, "", "how long to wait for a TPU that is being created or started"},
		Meaning: "how long to wait for a node that is being created or started"},
	{Name: "strategy.tpu_wait", Change: Outside, On: OnlyTPU, Read: true,
		Flag: Flag{"tpu-wait", CloudTPU, "", "also wait for a TPU that was preempted or does not answer"},
		Meaning: "wait up to `strategy.tpu_ready_timeout` also for a TPU that was preempted or stopped, or that does " +
			"not answer, until it is there again; otherwise the run ends"},
	{Name: "strategy.tpu_timeout", Default: tpu.DefaultStartTimeout, Change: Outside, On: OnlyTPU, Read: true,
		Flag:    Flag{"tpu-timeout", CloudTPU, "", "how long the TPU may take to start, and to answer in a call"},
		Meaning: "how long the TPU may take to start, and to answer in a step: 1s to 1h. The first call of a program, which compiles it, may take ten times as long"},
	{Name: "runtime.device", Change: Outside, On: NoTPU, Read: true,
		Meaning: "a TensorFlow device such as `/device:GPU:0`; \"\" lets TensorFlow choose"},
	{Name: "runtime.intra_op_threads", check: within(0, devices.MostThreads, "0 (by the cores) to 4096"), Change: Outside, On: NoTPU, Read: true,
		Meaning: "threads per TensorFlow operation, up to 4096; 0 is one per core, or the cores divided among the lanes " +
			"or virtual CPU devices"},
	{Name: "runtime.inter_op_threads", check: within(0, devices.MostThreads, "0 (by the cores) to 4096"), Change: Outside, On: NoTPU, Read: true,
		Meaning: "operations that TensorFlow runs at the same time, up to 4096; 0 is one per core, or one per lane or " +
			"virtual CPU device"},
	{Name: "runtime.onednn", Default: "on", Choices: []string{"on", "off"}, Change: Kept, Read: true,
		Meaning: "oneDNN kernels: on or off. A run keeps it"},
	{Name: "runtime.kernels", Default: "on", Choices: []string{"on", "off"}, Change: Kept, On: NoTPU, Read: true,
		Meaning: "gorbit's own CPU kernels: on, or off to use only TensorFlow's operations. Exports with `--xla` do not " +
			"use them. A run keeps it",
		See: "[performance.md](../measurements/performance.md)"},
	{Name: "runtime.lanes", check: within(0, 64, "0 (by the cores) to 64"), Change: Kept, On: NoTPU, Read: true,
		Meaning: "micro-batches that a CPU computes in parallel, up to 64; 0: one per core on up to 4 cores if no " +
			"threads are set and XLA does not compile the graph, otherwise one. A run keeps it"},
	{Name: "runtime.allow_slow_precision", Change: Outside, Read: true,
		Flag:    Flag{"allow-slow-precision", Where, "", "train a bf16 or fp16 graph even where TensorFlow only emulates it"},
		Meaning: "train a bf16 or fp16 graph even if TensorFlow only emulates it",
		See:     "[precision.md](precision.md)"},
}
