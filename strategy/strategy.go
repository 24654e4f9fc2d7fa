package strategy

import (
	"context"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/dataset"
)

// Strategy is a model on one or more devices. It runs the steps and holds the variables.
// NewOneDevice, NewMirrored and NewMultiWorker return one. A training loop needs nothing else.
//
// All methods may be called concurrently, except that there must be only one call of Steps at a
// time.
type Strategy interface {
	// Steps runs one optimizer update for each input, in order, and returns their results.
	// It ends after the first update that was not applied: the inputs after it have not run,
	// because their learning rates and seeds no longer hold, and there are fewer results than
	// inputs. If it fails, it also returns the results of the updates before the failed one.
	// After an *OutOfMemoryError, the failed update has changed nothing.
	//
	// Any number of inputs works. Runtime.StepsPerCall of them at most are one call of the
	// session: their batches are fed together, a loop in the graph makes the steps, and the
	// sums, and whether each step was applied, are fetched at its end. Results are the same
	// for any number of steps per call. A context that ends stops the steps between calls.
	Steps(ctx context.Context, steps []StepInput) ([]Result, error)
	// Evaluate returns the metric sums of a batch by output name, flat; never means. One
	// replica computes them.
	Evaluate(ctx context.Context, features []Feature) (map[string][]float64, error)
	// Predict returns the outputs of the graph for a batch by name, flat; their first axis
	// is the example. One replica computes them.
	Predict(ctx context.Context, features []Feature) (map[string][]float64, error)
	// Results returns the metrics that the export computes from the sums of any number of
	// batches, by name. Sums must have those of the contract's Results; others are ignored.
	// Without a function results, there are no metrics.
	Results(ctx context.Context, sums map[string][]float64) (map[string]float64, error)
	// Read returns the values of the named variables, in the order of the names. A value
	// may share its memory with the variable until the next step. Reading is then free, but
	// the next step has to copy the value first. The prefix graphs.MergePrefix before a name of
	// the contract's Merge reads the variable as it is served.
	Read(ctx context.Context, names ...string) ([]*tf.Tensor, error)
	// Assign sets variables on all replicas that have them.
	Assign(ctx context.Context, values map[string]*tf.Tensor) error
	// Variables lists the variables that a checkpoint holds, sorted by name.
	Variables() []VariableSpec
	// Runtime describes the devices, threads and kernels in use.
	Runtime() Runtime
	// Times returns the time that the finished steps took on each replica, or nil if there
	// is only one replica.
	Times() []Times
	// GraphDef returns the composed graph, serialized.
	GraphDef() ([]byte, error)
	// Close frees the model and its variables.
	Close() error
}

// Feature is a named tensor of a batch. The Features of a dataset.Batch can be fed as they are.
type Feature = dataset.Feature

// StepInput is the input of one optimizer update.
type StepInput struct {
	// Batches is a global batch divided into micro-batches: Runtime.MicroBatches of them or
	// a multiple of that. If there are more, they are processed in rounds, whose gradients
	// are summed before the update. The division affects only rounding and random numbers.
	Batches [][]Feature
	// Drawn replaces Batches if the workers read the data themselves.
	Drawn *Drawn
	// Seed determines all random numbers of the step. Every step needs its own.
	Seed [2]int64
	// Scalars are the step's hyperparameters.
	Scalars Scalars
}

// Scalars are the hyperparameters of one step by name: learning_rate, weight_decay, clip_norm (0
// is off), and those of the contract. learning_rate is required. The default of weight_decay is
// 0, that of clip_norm is 1, and the others have the contract's defaults.
type Scalars map[string]float64

// Result is the result of a step.
type Result struct {
	// Sums are the metric sums by output name, flat; never means. Those of a phase are "PHASE/NAME", and
	// loss_sum and weight_sum are then the totals of the phases that the step had.
	Sums map[string][]float64
	// GradientNorm is the global norm of the gradient of the mean loss before clipping; of several
	// phases, of the gradients of all of them.
	GradientNorm float64
	// Applied is false if the loss or the norm was not finite, so that no variable changed. Of several
	// phases, those before the one that was not applied have updated their variables, and those
	// after it have not been made.
	Applied bool
	// Iterations is the graph's own count of steps after this one.
	Iterations int64
	// InSession is the time spent in calls of the session. The steps of a call have equal parts
	// of its time.
	InSession time.Duration
}

// VariableSpec describes a variable of the composed graph: a trained variable, a slot, or the
// count of iterations.
type VariableSpec struct {
	Name  string
	DType tf.DataType
	Shape []int64
	// Slot is set for the optimizer's variables, including the count of iterations. They
	// start at zero and may be missing from the weights that a run starts with.
	Slot bool
	// Offloaded means that the variable is not in memory (Config.Offload). Its value, as Read returns
	// it, changes with the next step: use it before.
	Offloaded bool
}

// Runtime describes what a strategy runs on.
type Runtime struct {
	// Devices are the devices of the replicas.
	Devices []string
	// MicroBatches is the number of micro-batches that are computed in parallel: one per
	// replica, or one per lane of a single device.
	MicroBatches int
	// StepsPerCall is the largest number of steps that a call of the session makes. It is 1
	// if each step is a call of its own. Steps that accumulate micro-batches always are.
	StepsPerCall int
	// OffloadedBytes is the size of what is in files instead of in memory, see Config.Offload.
	OffloadedBytes int64
	// InFlight is the number of concurrent evaluations or predictions that keeps all
	// devices busy: one per lane, or else two per replica, so that one uses the cores that
	// the other's small operations leave idle.
	InFlight int
	// IntraOpThreads and InterOpThreads are the sizes of TensorFlow's thread pools; 0 means
	// one thread per core.
	IntraOpThreads, InterOpThreads int
	// Kernels names the instruction set of our own kernels: avx512, avx2, neon or generic. It is
	// "" if the graph uses only TensorFlow's operations.
	Kernels string
	// LongRows is the number of tokens that a row of a micro-batch may have at no extra
	// cost because attention is limited to sequences. It is 0 if attention covers whole
	// rows.
	LongRows int
	// OptimizerBytes is the size in bytes of the optimizer's slots on each replica.
	OptimizerBytes []int64
}

// Times is the time that a replica spent in each part of the steps, by its machine's clock.
type Times struct {
	// Compute runs from the arrival of a micro-batch to its last gradient. Reduce runs from
	// there until the sums over all replicas have arrived, including the wait for the
	// slowest one. Update runs from there to the last new value. Time in which gradients are
	// computed and reduced at once counts as Compute.
	Compute, Reduce, Update time.Duration
}
