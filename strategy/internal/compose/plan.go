package compose

import (
	"slices"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/kernels"
	"github.com/gorbit-ml/gorbit/internal/shardinput"
)

// Layout says what a graph is composed for.
type Layout struct {
	// Devices of the replicas, one each.
	Devices []string
	// Train adds the training step to evaluation and prediction, and the slots.
	Train bool
	// Own puts the kernels of package internal/kernels in.
	Own bool
	// Shard gives every variable an owner among the replicas, which alone keeps
	// its slots.
	Shard bool
	// Shared has all replicas on one device with the same variables, so that they
	// are lanes of one copy of the model. It goes with Shard.
	Shared bool
	// Bucket is how many bytes of gradients are reduced together.
	Bucket int64
	// Hint is CollectiveReduceV2's communication_hint.
	Hint string
	// Local has the workers read the training features; nil feeds them.
	Local *shardinput.Data
}

// Plan is a composed graph with the names of the nodes that calls go through. A name is
// "node", or "node:output" for an output that is not the first.
type Plan struct {
	builder *build.Builder
	// Init sets the variables that start at zero. It is the first thing to run.
	Init string
	// Variables are those of one replica, sorted by name.
	Variables []Variable
	// Reads has the reading of every variable on every replica that has it, the
	// first one's first.
	Reads   map[string][]string
	Assigns map[string]Assignment
	// Train is the training step; nil where there is none.
	Train *Train
	// Evaluate and Predict have a call on every replica.
	Evaluate []*Call
	Predict  []*Call
	// Kernels are the kernels of internal/kernels that stand for functions, one each.
	Kernels []string
	// SlotBytes is the size of the optimizer's slots on every replica.
	SlotBytes []int64
}

// GraphDef returns the composed graph, serialized.
func (p *Plan) GraphDef() ([]byte, error) { return p.builder.Marshal() }

// longRow bounds what is quadratic in the examples of a row.
const longRow = 4096

// LongRows is how many tokens the rows of a micro-batch may have at no cost, where
// attention stays within sequences; 0 where it costs what the rows do.
func (p *Plan) LongRows() int {
	if slices.Contains(p.Kernels, kernels.Attention) {
		return longRow
	}
	return 0
}

// Variable is a variable of the composed graph: a trained variable, a slot, or the count
// of iterations.
type Variable struct {
	Name  string
	DType dtpb.DataType
	Shape []int64
	// Slot is set for the variables that exist for the optimizer's sake.
	Slot bool
}

// Assignment sets a variable on all replicas that have it.
type Assignment struct {
	Value, Assign string // the placeholder, and the node to run
	Variable      Variable
}

// Train is the training step. A step of one micro-batch per replica is one
// call; a step of several is a call for each, which adds to the accumulators, and
// then the application of these.
type Train struct {
	Feeds *Feeds
	Local *Local // in place of Feeds, where workers read the features
	// Scalars are what ScalarFeed is fed with, float32, in this order.
	Scalars    []graphs.Hyperparameter
	ScalarFeed string
	// Seeds is fed with a seed for every replica, int64 [replicas, 2].
	Seeds string
	// Sums are the names of one replica's sums.
	Sums []string
	// SumFetches are the sums of all replicas, replica after replica.
	SumFetches []string
	// Clocks are each replica's of a micro-batch, none where there is one replica.
	Clocks []string
	// Step goes from one micro-batch of each replica to new values.
	Step Apply
	// First sets the accumulators, Next adds to them.
	First, Next string
	// Rows are fed with the numbers of the rows that gradients have, by feature.
	Rows map[string]RowFeed
	// Totals is fed with the sums of weights and of losses that Apply needs.
	Totals string
	// Apply goes from the accumulators to new values.
	Apply Apply
}

// Apply is a way to the variables' new values.
type Apply struct {
	Fetches []string // gradient norm, applied, iterations
	Clocks  []string // each replica's, none where there is one
	Done    string
}

// Call is a call of a function that takes features alone.
type Call struct {
	Name    string
	Feeds   *Feeds
	Outputs []string // names, as Fetches
	Fetches []string
}

// Feeds says how the features of some replicas go into the graph: the numbers of
// all of them, one after the other, as one tensor of each dtype, and one that says
// where each begins and what shape it has (internal/flat).
type Feeds struct {
	// Features that are fed, those of int32 first.
	Features []graphs.Feature
	Int32s   int // how many are of int32
	Replicas int
	// Placeholders, "" for none.
	//   Ints, Floats  all numbers, replica after replica, feature after feature
	//   Layout        int64 [replicas, L]: the sizes of a replica's features, then their shapes
	//   Totals        int64 [2, replicas]: how many numbers of each dtype a replica has
	Ints, Floats, Layout, Totals string
}

// Local says how workers read the features of the training step.
type Local struct {
	// Request is fed with what all workers are to draw, Take with what the replicas
	// are to take of it.
	Request, Take string
	// Fetches of a draw: the stats and the rows of each worker.
	Fetches []string
	// Rows are the features of which a draw tells the numbers.
	Rows []string
	// Replicas of each worker.
	Replicas []int
}

// RowFeed are the placeholders of the rows that gradients have.
type RowFeed struct {
	Rows  string // int32, their numbers
	Class string // int32 [], the class of their number
}
