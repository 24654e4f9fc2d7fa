// Package params has the params of a run: what each of them is, how files, settings and flags are
// read, and which values are valid. One table says what there is to know of a param; flags, checks,
// suggestions, and the table in docs/guide/run.md come from it.
package params

import "time"

// Params describe a run. They are read from YAML files and changed by "section.name=value" settings,
// and written to the run's params.yaml. Table says what each of them means, as docs/guide/run.md does.
type Params struct {
	Graph       string `yaml:"graph"`
	Init        string `yaml:"init"`
	Strict      bool   `yaml:"strict"`
	InitPartial bool   `yaml:"init_partial"`
	InitValues  string `yaml:"init_values"`
	Seed        int64  `yaml:"seed"`

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
	Dir               string            `yaml:"dir"`
	Train             string            `yaml:"train"`
	Eval              Splits            `yaml:"eval"`
	TrainExamples     int64             `yaml:"train_examples"`
	Features          map[string]string `yaml:"features"`
	Resize            string            `yaml:"resize"`
	CropToAspectRatio bool              `yaml:"crop_to_aspect_ratio"`
	JPEG              string            `yaml:"jpeg"`
	RowLength         int               `yaml:"row_length"`
	TargetRowLength   int               `yaml:"target_row_length"`
	Truncate          bool              `yaml:"truncate"`
	Rows              int               `yaml:"rows"`
	RowExamples       int               `yaml:"row_examples"`
	Buckets           string            `yaml:"buckets"`
	MaskProbability   float64           `yaml:"mask_probability"`
	WholeWords        bool              `yaml:"whole_words"`
	MaskSpan          float64           `yaml:"mask_span"`
	Packing           string            `yaml:"packing"`
	Shuffle           string            `yaml:"shuffle"`
	Buffer            int               `yaml:"buffer"`
	ClassWeights      ByClass           `yaml:"class_weights"`
	Sampling          ByClass           `yaml:"sampling"`
	DropRemainder     bool              `yaml:"drop_remainder"`
	OnCorrupt         string            `yaml:"on_corrupt"`
	Readers           int               `yaml:"readers"`
}

// Train sets how long to train and how often to log and evaluate.
type Train struct {
	BatchSize     int      `yaml:"batch_size"`
	BatchWarmup   string   `yaml:"batch_warmup"`
	LengthWarmup  string   `yaml:"length_warmup"`
	Profile       string   `yaml:"profile"`
	DebugNumerics bool     `yaml:"debug_numerics"`
	Steps         int64    `yaml:"steps"`
	Epochs        float64  `yaml:"epochs"`
	StepsPerLoop  Interval `yaml:"steps_per_loop"`
	LogFirstStep  bool     `yaml:"log_first_step"`
	StepsPerCall  int      `yaml:"steps_per_call"`
	EvalInterval  Interval `yaml:"eval_interval"`
	OnNonFinite   string   `yaml:"on_non_finite"`
	MaxNonFinite  int64    `yaml:"max_non_finite"`
	Patience      int64    `yaml:"patience"`
	MinDelta      float64  `yaml:"min_delta"`
}

// Eval configures evaluations.
type Eval struct {
	BatchSize     int     `yaml:"batch_size"`
	Steps         int64   `yaml:"steps"`
	Examples      int64   `yaml:"examples"`
	AtStart       bool    `yaml:"at_start"`
	NullThreshold float64 `yaml:"null_threshold"`

	Generate Generate `yaml:"generate"`
}

// Generate says what evaluations generate, and which scores the texts get.
type Generate struct {
	Metrics      string  `yaml:"metrics"`
	MaxNewTokens int     `yaml:"max_new_tokens"`
	NumBeams     int     `yaml:"num_beams"`
	Examples     int     `yaml:"examples"`
	Budget       float64 `yaml:"budget"`
}

// Optimizer configures the optimizer and the schedule of its learning rate.
type Optimizer struct {
	LearningRate    float64            `yaml:"learning_rate"`
	EndLearningRate float64            `yaml:"end_learning_rate"`
	Schedule        string             `yaml:"schedule"`
	WarmupSteps     int64              `yaml:"warmup_steps"`
	WarmupRatio     float64            `yaml:"warmup_ratio"`
	Power           float64            `yaml:"power"`
	Cycles          float64            `yaml:"cycles"`
	Timescale       int64              `yaml:"timescale"`
	DecaySteps      int64              `yaml:"decay_steps"`
	DecayRatio      float64            `yaml:"decay_ratio"`
	DecayShape      string             `yaml:"decay_shape"`
	Points          string             `yaml:"points"`
	Plateau         Plateau            `yaml:"plateau"`
	WeightDecay     float64            `yaml:"weight_decay"`
	ClipNorm        float64            `yaml:"clip_norm"`
	Hyperparameters map[string]float64 `yaml:"hyperparameters"`
	Groups          []Group            `yaml:"groups"`
	LayerDecay      float64            `yaml:"layer_decay"`
	EMA             float64            `yaml:"ema"`
	SWA             int64              `yaml:"swa"`
	SWAEvery        int64              `yaml:"swa_every"`
}

// Plateau says when the schedule plateau lowers the learning rate.
type Plateau struct {
	Metric   string  `yaml:"metric"`
	Factor   float64 `yaml:"factor"`
	Patience int64   `yaml:"patience"`
	MinDelta float64 `yaml:"min_delta"`
	Cooldown int64   `yaml:"cooldown"`
}

// Checkpoint sets when to save checkpoints and which to keep.
type Checkpoint struct {
	Interval       Interval `yaml:"interval"`
	MaxToKeep      int      `yaml:"max_to_keep"`
	KeepEveryHours float64  `yaml:"keep_every_hours"`
	Best           string   `yaml:"best"`
	BestMode       string   `yaml:"best_mode"`
}

// Summary configures the TensorBoard files.
type Summary struct {
	Enabled           bool  `yaml:"enabled"`
	Interval          int64 `yaml:"interval"`
	Histograms        bool  `yaml:"histograms"`
	HistogramInterval int64 `yaml:"histogram_interval"`
}

// Strategy places the replicas of the model and divides the batch among them. None of them
// changes the content of a checkpoint, so a run may continue with different ones.
type Strategy struct {
	Name            string        `yaml:"name"`
	Devices         string        `yaml:"devices"`
	Workers         string        `yaml:"workers"`
	Accumulate      int           `yaml:"accumulate"`
	Input           string        `yaml:"input"`
	ShardOptimizer  bool          `yaml:"shard_optimizer"`
	Offload         string        `yaml:"offload"`
	BucketMB        float64       `yaml:"bucket_mb"`
	WorkerTimeout   time.Duration `yaml:"worker_timeout"`
	MaxRestarts     int           `yaml:"max_restarts"`
	Elastic         bool          `yaml:"elastic"`
	TPU             string        `yaml:"tpu"`
	TPUProject      string        `yaml:"tpu_project"`
	TPUZone         string        `yaml:"tpu_zone"`
	TPUAPI          string        `yaml:"tpu_api"`
	TPUReadyTimeout time.Duration `yaml:"tpu_ready_timeout"`
	TPUWait         bool          `yaml:"tpu_wait"`
	TPUTimeout      time.Duration `yaml:"tpu_timeout"`
}

// Runtime configures TensorFlow on this machine.
type Runtime struct {
	Device             string `yaml:"device"`
	IntraOpThreads     int    `yaml:"intra_op_threads"`
	InterOpThreads     int    `yaml:"inter_op_threads"`
	Lanes              int    `yaml:"lanes"`
	OneDNN             string `yaml:"onednn"`
	Kernels            string `yaml:"kernels"`
	AllowSlowPrecision bool   `yaml:"allow_slow_precision"`
}
