package strategy

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// Config holds the settings of a strategy.
type Config struct {
	// IntraOpThreads and InterOpThreads are the sizes of TensorFlow's thread pools. If
	// IntraOpThreads is 0, the cores are divided among the replicas of the process. If
	// InterOpThreads is 0 and the kernels of package internal/exec/kernels are used, there is
	// one inter-op thread per replica.
	IntraOpThreads, InterOpThreads int
	// Functions selects the functions of the contract to compose: FunctionsTrain to
	// train, FunctionsEvaluate to only evaluate and predict.
	Functions Functions
	// Generate composes the generation of texts with FunctionsTrain, too, if the export has it.
	Generate bool
	// StandardOps uses only TensorFlow's own operations. Otherwise the kernels of package
	// internal/exec/kernels replace some of them if all devices are CPUs and XLA does not
	// compile the graph.
	StandardOps bool
	// ShardOptimizer keeps the slots of each variable on one replica, its owner, instead of
	// on all. The owner sums the gradients and sends the new value to the other replicas.
	ShardOptimizer bool
	// Offload is a folder. If it is not "", the optimizer's slots are not in memory but in files without
	// a name in it, which the update reads and writes page by page: what is in memory of them at once is
	// some 16 MiB each for the variables that are updated together. Results are the same, bit for bit. It
	// needs the kernels of package internal/exec/kernels, one of them for the optimizer, and the devices
	// of one process. Moving averages stay in memory, unless OffloadAll is set.
	Offload string
	// OffloadAll has the variables, their gradients and averages in such files as well. It needs one
	// device, which may have several lanes. With FunctionsEvaluate, Offload has an effect only with it.
	OffloadAll bool
	// Lanes is the number of micro-batches that one device computes in parallel with the
	// same variables; 0 means one. On a CPU with few cores, one lane per core is faster
	// than a single lane whose operations use all cores.
	Lanes int
	// Patience limits the calls of a session with other servers, so that none hangs
	// forever; 0 means no limit. A call may take Patience plus five times the longest call
	// so far. Until a call has ended, the limit is ten times Patience. A call of several steps
	// may take so many times as long. On a TPU, a call has Patience plus five times the longest
	// call from the start, for any number of steps. The first call of each program, which compiles
	// it, may take ten times as long, and counts as a tenth of its time.
	Patience time.Duration
	// Log takes a line if a session with other servers is left behind, since a call of it, closing
	// included, does not come back; nil is none.
	Log *slog.Logger
	// BucketBytes is the number of bytes of gradients that the replicas reduce together; 0
	// means DefaultBucketBytes.
	BucketBytes int64
	// StepsPerCall is the largest number of steps that one call of the session makes: a loop in
	// the graph makes them, and their results are known when it ends. 1 means a call for each
	// step, and 0 the strategy's best, which is 1 here. Results do not depend on it, bit for bit
	// on CPUs. Steps that accumulate micro-batches are always calls of their own. It is at most
	// 1 with LocalInput. Runtime.StepsPerCall has the number in use.
	StepsPerCall int
	// Replicas is the number of cores of a TPU to use; 0 means all.
	Replicas int
	// Axes are the sizes of the axes of the contract's features, such as rows, length and
	// examples. A TPU needs all of them: its programs have fixed shapes.
	Axes map[string]int64
	// MoreAxes are the axes of more shapes that batches for training and evaluation may have on a
	// TPU, in which there is a program for each. Predictions have Axes.
	MoreAxes []map[string]int64
	// Factors are the factors of variables, by name, that multiply those of the contract. Those
	// of other variables are 1.
	Factors map[string]Factor
	// Average is the decay of moving averages of the trained variables, as Keras' ema_momentum; 0
	// means none. An update makes of each average decay times the average plus (1 - decay) times
	// the new value, and the first makes it the value. Evaluations and predictions take the
	// averages. Their names are those of the variables after graphs.AveragePrefix.
	Average float64
	// AverageFrom is the update from which on the averages are means with equal weights (stochastic
	// weight averaging), of its variables and of those of every AverageEvery-th update after it; until
	// then they are the variables. 0 means none; one of it and Average may be set. AverageEvery 0 means 1.
	AverageFrom, AverageEvery int64
	// LocalInput makes every worker of NewMultiWorker read its own part of the training
	// batches. Steps then need the result of MultiWorker.Draw. If nil, batches are fed.
	LocalInput *LocalInput

	together int64 // compose.Layout.Together, for tests of the form for GPUs on CPUs
}

// Factor is what a run changes about the update of a variable.
type Factor struct {
	// LearningRate and WeightDecay multiply the factors of the contract.
	LearningRate, WeightDecay float64
	// Frozen means that the variable is not updated. It has no slots, and its gradient counts
	// neither for the norm nor for whether the step is applied. The other fields then mean nothing.
	Frozen bool
}

// LocalInput describes the data when every worker reads its own part of the batches.
type LocalInput struct {
	// Dir is the data folder in the process that composes the graph. Files are its files in
	// order; the paths of files in Dir are relative to it. Every worker must have the same
	// files.
	Dir   string
	Files []dataset.FileInfo
	// Dataset says how to make batches of the files. Its Files, Part and Layout are ignored.
	Dataset dataset.Config
	// Layout says how batches are laid out. It is a packed.Config or a dense.Config.
	Layout dataset.Layout
	// Settings are those of the data as this process opened it. A worker's must be equal.
	Settings dataset.Settings
	// Workers are the names of the workers in errors, by index.
	Workers []string
}

// DefaultBucketBytes is the default of Config.BucketBytes.
const DefaultBucketBytes = 1 << 20

// MaxStepsPerCall is the largest Config.StepsPerCall. A call holds the batches of all its steps.
const MaxStepsPerCall = 10_000

// Functions selects what a composed graph can do.
type Functions int

const (
	// FunctionsTrain composes the training step, evaluation and prediction.
	FunctionsTrain Functions = iota
	// FunctionsEvaluate composes evaluation and prediction, without slots.
	FunctionsEvaluate
)

// factors returns the factors as a graph takes them.
func (c Config) factors() compose.Factors {
	out := make(compose.Factors, len(c.Factors))
	for name, f := range c.Factors {
		out[name] = compose.Factor(f)
	}
	return out
}

// averages returns the settings of averages for compose.
func (c Config) averages() compose.Averages {
	return compose.Averages{Decay: c.Average, From: c.AverageFrom, Every: c.AverageEvery}
}

// Validate returns an error that names the first invalid field.
func (c Config) Validate() error {
	for _, pool := range []struct {
		name    string
		threads int
	}{{"intra-op", c.IntraOpThreads}, {"inter-op", c.InterOpThreads}} {
		if pool.threads < 0 || pool.threads > devices.MostThreads {
			return fmt.Errorf("the number of %s threads is %d; expected 0 to %d", pool.name, pool.threads, devices.MostThreads)
		}
	}
	if c.OffloadAll && c.Offload == "" {
		return errors.New("Config.OffloadAll is set and Config.Offload is not; expected the folder of the files in it")
	}
	if c.Lanes < 0 || c.Lanes > 64 {
		return fmt.Errorf("the number of lanes is %d; expected 0 (the default, one) to 64", c.Lanes)
	}
	if c.Replicas < 0 {
		return fmt.Errorf("the number of replicas is %d; expected 0 (all cores of the TPU) or more", c.Replicas)
	}
	if c.BucketBytes < 0 {
		return fmt.Errorf("the size of buckets is %d bytes; expected 0 (the default, %d) or more", c.BucketBytes, DefaultBucketBytes)
	}
	if c.StepsPerCall < 0 || c.StepsPerCall > MaxStepsPerCall {
		return fmt.Errorf("steps per call are %d; expected 0 (the strategy's best) to %d", c.StepsPerCall, MaxStepsPerCall)
	}
	if c.StepsPerCall > 1 && c.LocalInput != nil {
		return fmt.Errorf("steps per call are %d; expected 0 or 1 if the workers read the data themselves: they keep the batches of few steps", c.StepsPerCall)
	}
	return nil
}
