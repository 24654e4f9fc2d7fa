package compose

import (
	"slices"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/kernels"
	"github.com/gorbit-ml/gorbit/internal/shardinput"
)

// Layout says which graph to compose.
type Layout struct {
	// Devices are the devices of the replicas.
	Devices []string
	// Train adds the training step and the slots. Evaluation and prediction are always
	// there.
	Train bool
	// Own uses the kernels of package internal/kernels.
	Own bool
	// Shard makes one replica the owner of each variable. Only the owner has its slots.
	Shard bool
	// Shared means that all replicas are lanes of one device and share the variables of one
	// copy of the model. It requires Shard.
	Shared bool
	// Bucket is the number of bytes of gradients to reduce together.
	Bucket int64
	// Hint is the communication_hint of CollectiveReduceV2.
	Hint string
	// Local makes the workers read the training features; if nil, they are fed.
	Local *shardinput.Data
	// Hosted means that the devices, TPU cores, run whole programs only. Operations around
	// these are on their hosts.
	Hosted bool
}

// Plan is a composed graph with the names of the nodes that calls use. A name is "node", or
// "node:output" for an output other than the first.
type Plan struct {
	builder *build.Builder
	// Init is the node that sets the variables that start at zero. It must run first.
	Init string
	// Variables are those of one replica, sorted by name.
	Variables []Variable
	// Reads lists, for every variable, the nodes that read it on each replica that has it,
	// in the order of the replicas.
	Reads   map[string][]string
	Assigns map[string]Assignment
	// TPU holds the calls of a graph for a TPU, which replace Train, Evaluate and Predict.
	TPU *TPUCalls
	// Train is the training step; nil if there is none.
	Train *Train
	// Evaluate and Predict have one call per replica.
	Evaluate []*Call
	Predict  []*Call
	// Kernels lists the kernels of internal/kernels in use, one for each replaced function.
	Kernels []string
	// SlotBytes is the size of the optimizer's slots on each replica.
	SlotBytes []int64
}

// GraphDef returns the serialized graph.
func (p *Plan) GraphDef() ([]byte, error) { return p.builder.Marshal() }

// longRow limits the costs that grow with the square of the examples per row.
const longRow = 4096

// LongRows returns the number of tokens that a row of a micro-batch may have at no extra cost
// because attention is limited to sequences. It returns 0 if attention covers whole rows.
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
	// Slot is set for the optimizer's variables.
	Slot bool
}

// Assignment sets a variable on all replicas that have it.
type Assignment struct {
	Value, Assign string // the placeholder, and the node to run
	Variable      Variable
}

// Train is the training step. A step with one micro-batch per replica is a single call. A step with
// several has one call per round, which adds to the accumulators, and a last call that applies
// them.
type Train struct {
	Feeds *Feeds
	Local *Local // replaces Feeds if the workers read the features
	// Scalars are the values of ScalarFeed, float32, in this order.
	Scalars    []graphs.Hyperparameter
	ScalarFeed string
	// Seeds is fed with one seed per replica, int64 [replicas, 2].
	Seeds string
	// Sums are the names of a replica's sums.
	Sums []string
	// SumFetches are the sums of all replicas, replica by replica.
	SumFetches []string
	// Clocks are the clock readings of a micro-batch on each replica; empty if there is only
	// one.
	Clocks []string
	// Step computes new values from one micro-batch per replica.
	Step Apply
	// First sets the accumulators, Next adds to them.
	First, Next string
	// Rows are fed with the rows in which gradients are not 0, by feature.
	Rows map[string]RowFeed
	// Totals is fed with the sums of weights and losses that Apply needs.
	Totals string
	// Apply computes new values from the accumulators.
	Apply Apply
}

// Apply is a call that computes new values of the variables.
type Apply struct {
	Fetches []string // gradient norm, applied, iterations
	Clocks  []string // clock readings by replica; empty if there is only one
	Done    string
}

// Call is a call of a function whose only arguments are features.
type Call struct {
	Name    string
	Feeds   *Feeds
	Outputs []string // names, in the order of Fetches
	Fetches []string
}

// Feeds says how to feed the features of some replicas: one tensor per dtype with the concatenated
// values, and one with the size and shape of each feature (see internal/flat).
type Feeds struct {
	// Features are the features to feed, those of int32 first.
	Features []graphs.Feature
	Int32s   int // number of int32 features
	Replicas int
	// Placeholders; "" means none.
	//   Ints, Floats  all values, replica by replica, feature by feature
	//   Layout        int64 [replicas, L]: the sizes of a replica's features, then their shapes
	//   Totals        int64 [2, replicas]: the number of values of each dtype of a replica
	Ints, Floats, Layout, Totals string
}

// Local says how workers read the features of the training step.
type Local struct {
	// Request is fed with the batch that all workers draw, Take with the part of it that the
	// replicas use next.
	Request, Take string
	// Fetches are the outputs of a draw: the stats and the rows of each worker.
	Fetches []string
	// Rows are the features whose values a draw returns.
	Rows []string
	// Replicas is the number of replicas of each worker.
	Replicas []int
}

// RowFeed holds the placeholders of the rows in which gradients are not 0.
type RowFeed struct {
	Rows  string // int32, the row indices
	Class string // int32 [], the class of the number of rows, see RowClass
}
