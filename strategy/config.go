package strategy

import (
	"fmt"
	"time"

	"github.com/gorbit-ml/gorbit/dataset"
)

// Config is what a user chooses of a strategy.
type Config struct {
	// IntraOpThreads and InterOpThreads bound TensorFlow's pools; 0 is the cores
	// divided among the replicas of the process, and one inter-op thread for each
	// where the kernels of package internal/kernels are used.
	IntraOpThreads, InterOpThreads int
	// Functions are the parts of the contract to compose: FunctionsTrain to
	// train, FunctionsEvaluate to evaluate and predict only.
	Functions Functions
	// StandardOps keeps to TensorFlow's own operations. Without it, the kernels
	// of package internal/kernels stand in their place where all devices are CPUs, unless
	// XLA compiles the graph.
	StandardOps bool
	// ShardOptimizer has every variable's slots on one replica, its owner, instead
	// of on all: gradients are added up there, and the new value goes to the others.
	ShardOptimizer bool
	// Lanes is how many micro-batches one device computes side by side, with the same
	// variables; 0 is one. On a CPU of few cores, a lane for each is faster than one
	// whose operations use all cores.
	Lanes int
	// Patience bounds the calls of a session with other servers, so that none hangs
	// for ever; 0 is no bound. A call may take as long, and five times longer than the
	// longest before it; before the first has ended, ten times as long.
	Patience time.Duration
	// BucketBytes is how many bytes of gradients the replicas reduce together; 0 is
	// DefaultBucketBytes.
	BucketBytes int64
	// LocalInput has every worker of a NewMultiWorker read its part of the batches of
	// training: MultiWorker.Draw gives what a step is then made of. Nil has them fed.
	LocalInput *LocalInput
}

// LocalInput says what workers read where each reads its part of the batches.
type LocalInput struct {
	// Dir is the folder of the data in the process that composes the graph, and Files are
	// its files, in order, the paths of those in the folder from there. A worker's must hold
	// the same.
	Dir   string
	Files []dataset.FileInfo
	// Dataset is how batches are made of them; its Files and Part do not count.
	Dataset dataset.Config
	// Settings are those of the data as this process opened it, which a worker's must equal.
	Settings dataset.Settings
	// Workers are what the workers are called in errors, by their number.
	Workers []string
}

// DefaultBucketBytes is how many bytes of gradients are reduced together.
const DefaultBucketBytes = 1 << 20

// Functions says what a composed graph can do.
type Functions int

const (
	// FunctionsTrain composes the training step, evaluation and prediction.
	FunctionsTrain Functions = iota
	// FunctionsEvaluate composes evaluation and prediction, without slots.
	FunctionsEvaluate
)

// Validate returns an error that names the field at fault.
func (c Config) Validate() error {
	if c.IntraOpThreads < 0 || c.InterOpThreads < 0 {
		return fmt.Errorf("intra-op threads %d and inter-op threads %d must not be negative", c.IntraOpThreads, c.InterOpThreads)
	}
	if c.Lanes < 0 || c.Lanes > 64 {
		return fmt.Errorf("%d lanes: expected 0 (one) to 64", c.Lanes)
	}
	if c.BucketBytes < 0 {
		return fmt.Errorf("buckets of %d bytes: expected 0 (%d) or more", c.BucketBytes, DefaultBucketBytes)
	}
	return nil
}
