package compose

import (
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/flat"
	"github.com/gorbit-ml/gorbit/tpu"
)

// TPULayout says which graph to compose for a TPU.
type TPULayout struct {
	// Topology and Job are the TPU's, see tpu.System.
	Topology *tpu.Topology
	Job      string
	// Replicas is the number of cores to use.
	Replicas int
	// Train adds the training step and the slots. Evaluation and prediction are always there.
	Train bool
	// Axes are the sizes of the axes of the contract's features. A TPU's program has fixed
	// shapes.
	Axes map[string]int64
	// MoreAxes are the axes of more shapes, each of which has programs of its own to train and
	// evaluate.
	MoreAxes []map[string]int64
	// Factors and Average are those of Layout.
	Factors Factors
	Average Averages
	// Steps is the number of training steps in a call. If there is more than one, a loop on the
	// TPU makes them.
	Steps int
}

// TPUCalls are the programs of a TPU. Every core runs the same program.
type TPUCalls struct {
	Train             *TPUTrain // nil if there is none
	Evaluate, Predict *TPUCall
	// More are the programs for the shapes of TPULayout.MoreAxes, without Predict.
	More []TPUCalls
}

// TPUFeeds says how to feed the features of a call: one tensor per dtype, with the values replica by
// replica, step by step, feature by feature.
type TPUFeeds struct {
	// Features are the features, kind by kind. Shapes are their shapes.
	Features []graphs.Feature
	Shapes   [][]int64
	Kinds    []flat.Kind
	// Replicas and Steps are the first axes of the fed tensors: [replicas, steps, values], or
	// [replicas, values] if Steps is 1.
	Replicas, Steps int
	// Sizes are the numbers of values of each kind in a replica's step. Values are the
	// placeholders; the zero Ref means none.
	Sizes  []int64
	Values []build.Ref
}

// TPUTrain is a call of the training step. Tensors have a first axis of Feeds.Steps, unless that is
// 1.
type TPUTrain struct {
	Name  string // of its nodes
	Feeds TPUFeeds
	// Scalars are the values of ScalarFeed, float32 [steps, scalars], in this order.
	Scalars    []graphs.Hyperparameter
	ScalarFeed build.Ref
	// Seeds is fed with one seed per replica and step, int64 [replicas, steps, 2].
	Seeds build.Ref
	// Count is fed with the number of steps to make, int32 []; the zero Ref if there is one step.
	Count build.Ref
	// Sums are the parts of the first output, in order.
	Sums []TPUSum
	// Fetches are the outputs: the sums of all replicas as float32 [steps, sizes of Sums], the
	// gradient norms, whether the steps were applied, and the iterations after each.
	Fetches []build.Ref
	// Made is the fetch of the number of steps that were made, int32 []; the zero Ref if there is
	// one step. It is less than Count if the last of them was not applied.
	Made build.Ref
	// Compiled is the fetch of TPUCompilationResult.
	Compiled build.Ref
}

// TPUSum is a metric sum in a vector of them.
type TPUSum struct {
	Name string
	Size int
}

// TPUCall is a call of a function whose only arguments are features. Every replica calls it with
// features of its own.
type TPUCall struct {
	Name    string
	Feeds   TPUFeeds
	Outputs []string // names, in the order of Fetches
	// Fetches are the outputs of each replica.
	Fetches  [][]build.Ref
	Compiled build.Ref
}
