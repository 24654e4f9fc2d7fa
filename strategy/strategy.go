package strategy

import (
	"context"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/dataset"
)

// Strategy is a model on one or more devices: how its steps are made and where its
// variables live. NewOneDevice, NewMirrored and NewMultiWorker make one; a training loop
// needs nothing else to train on any of them.
//
// All methods but Steps may be called from several goroutines at a time; Steps from one
// at a time, beside the others.
type Strategy interface {
	// Steps makes one optimizer update for each of the inputs, one after the other, and
	// returns what each gave. Where it fails, the results are those of the updates that
	// were made before; an *OutOfMemoryError has changed nothing beyond them.
	//
	// It takes several steps because some devices make several in one call: a TPU stacks
	// the batches of Runtime.StepsPerCall steps, runs them as one loop on the device, and
	// fetches the sums, and whether each step was applied, behind the last. A caller hands
	// over as many steps as Runtime says and reads the results alike for all strategies;
	// here every step is a call of its own, and any number will do.
	Steps(ctx context.Context, steps []StepInput) ([]Result, error)
	// Evaluate returns the metric sums of a batch by output name, flat; never means. One of
	// the replicas computes them.
	Evaluate(ctx context.Context, features []Feature) (map[string][]float64, error)
	// Predict returns the graph's answers on a batch by output name, flat; their first axis
	// is examples. One of the replicas computes them.
	Predict(ctx context.Context, features []Feature) (map[string][]float64, error)
	// Read returns the values of variables, in the order of the names. A value may share
	// its memory with the variable until the next step, which then makes a copy: reading
	// costs nothing, and the step after it is as much slower as copying takes.
	Read(ctx context.Context, names ...string) ([]*tf.Tensor, error)
	// Assign sets variables on all replicas that have them.
	Assign(ctx context.Context, values map[string]*tf.Tensor) error
	// Variables lists what a checkpoint holds, sorted by name.
	Variables() []VariableSpec
	// Runtime says what the model runs with.
	Runtime() Runtime
	// Times returns what the steps so far took on every replica, one of several; nil where
	// there is one. A step counts once it is done.
	Times() []Times
	// GraphDef returns the composed graph, serialized.
	GraphDef() ([]byte, error)
	// Close frees the model and its variables.
	Close() error
}

// Feature is a named tensor of a batch, as package dataset gives it: the Features of a
// dataset.Batch are fed as they are.
type Feature = dataset.Feature

// StepInput is what one optimizer update is made of.
type StepInput struct {
	// Batches is a global batch divided into micro-batches: Runtime.MicroBatches of them,
	// or a multiple of that, which are then taken one after the other and added up before
	// the update. How the batch is divided changes nothing but rounding and random numbers.
	Batches [][]Feature
	// Drawn takes the place of Batches where the workers read the data themselves.
	Drawn *Drawn
	// Seed decides all randomness of the step; callers give every step its own.
	Seed [2]int64
	// Scalars are the step's numbers.
	Scalars Scalars
}

// Scalars are the numbers of one step that a user tunes: learning_rate,
// weight_decay, clip_norm (0 is off), and the contract's hyperparameters. Those
// that are not set have the contract's defaults, weight_decay 0 and clip_norm 1. A step
// without learning_rate is an error.
type Scalars map[string]float64

// Result is what a step gives.
type Result struct {
	// Sums by output name, flat; never means.
	Sums map[string][]float64
	// GradientNorm is the global norm of the mean loss' gradient before clipping.
	GradientNorm float64
	// Applied is false where the loss or the norm was not finite: no variable changed.
	Applied bool
	// Iterations is the graph's own count of steps after this one.
	Iterations int64
	// InSession is how long the session's calls took.
	InSession time.Duration
}

// VariableSpec names a variable of the composed graph: a trained variable, a
// slot, or the count of iterations.
type VariableSpec struct {
	Name  string
	DType tf.DataType
	Shape []int64
	// Slot is set for the variables that exist for the optimizer's sake, which
	// start at zero and need not be there in what a run begins with.
	Slot bool
}

// Runtime is what a strategy runs with.
type Runtime struct {
	// Devices of the replicas, one each.
	Devices []string
	// MicroBatches is how many micro-batches are computed side by side: one on every
	// replica, or as many as a single one has lanes.
	MicroBatches int
	// StepsPerCall is how many steps a call of Steps is best given; 1 where each is a call
	// of the session anyway.
	StepsPerCall int
	// InFlight is how many evaluations or predictions at a time keep all devices busy:
	// one for each lane, else two for each replica, so that what one leaves idle, in
	// operations that are too small for all cores, the other takes.
	InFlight int
	// IntraOpThreads and InterOpThreads are the sizes of TensorFlow's pools; 0 is
	// one thread per core.
	IntraOpThreads, InterOpThreads int
	// Kernels names the instructions that the package's own kernels use: avx512,
	// avx2 or generic; "" if the graph has TensorFlow's operations alone.
	Kernels string
	// LongRows is how many tokens the rows of a micro-batch may have at no cost, where
	// attention stays within sequences; 0 where it costs what the rows do.
	LongRows int
	// OptimizerBytes is the size of the optimizer's slots on each replica.
	OptimizerBytes []int64
}

// Times says where a replica's time went, by the clock of its own machine.
type Times struct {
	// Compute is from the arrival of a micro-batch to the last gradient, Reduce from
	// there until the sums of all replicas are there, waiting for the slowest
	// included, and Update from there to the last new value. Reducing that goes on beside
	// computing counts as computing.
	Compute, Reduce, Update time.Duration
}
