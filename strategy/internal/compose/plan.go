package compose

import (
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/flat"
	"github.com/gorbit-ml/gorbit/internal/exec/shardinput"
)

// Layout says which graph to compose.
type Layout struct {
	// Devices are the devices of the replicas.
	Devices []string
	// Train adds the training step and the slots. Evaluation and prediction are always
	// there.
	Train bool
	// Generate adds the generation of texts, if the export has it. It is always there without Train.
	Generate bool
	// Own uses the kernels of package internal/exec/kernels.
	Own bool
	// Shard makes one replica the owner of each variable. Only the owner has its slots.
	Shard bool
	// Shared means that all replicas are lanes of one device and share the variables of one
	// copy of the model. It requires Shard.
	Shared bool
	// Bucket is the number of bytes of gradients to reduce together.
	Bucket int64
	// Together is the number of bytes of the variables that one call updates, where their update
	// is elementwise: this is the form of the step for GPUs, with few large kernels and without
	// a decision that the host waits for. 0 means that form if a device is a GPU, and the other
	// if none is.
	Together int64
	// Offload is the folder of files in whose memory the slots are, see kernels.Mapped; "" means none.
	Offload string
	// Whole means that the variables, their gradients and their averages are in such memory, too.
	Whole bool
	// Hint is the communication_hint of CollectiveReduceV2.
	Hint string
	// Steps adds a call of up to a given number of training steps; 0 and 1 mean none.
	Steps int
	// Factors are those of variables whose factors differ from the contract's.
	Factors Factors
	// Average says which averages of the trained variables there are.
	Average Averages
	// Local makes the workers read the training features; if nil, they are fed.
	Local *shardinput.Data
	// Hosted means that the devices, TPU cores, run whole programs only. Operations around
	// these are on their hosts.
	Hosted bool
}

// Plan is a composed graph with what calls feed, fetch and run.
type Plan struct {
	builder *build.Builder
	// Init is the node that runs all Fills. It, or the Fills themselves, must run first.
	Init build.Ref
	// Fills are the nodes that set the variables that start at a given value, by the variables. Those of
	// a variable that is assigned before it is used need not run. Those of "loop" set what a call of
	// several steps keeps.
	Fills map[string][]build.Ref
	// Variables are those of one replica, sorted by name.
	Variables []Variable
	// Reads lists, for every variable, the nodes that read it on each replica that has it,
	// in the order of the replicas.
	Reads   map[string][]build.Ref
	Assigns map[string]Assignment
	// TPU holds the calls of a graph for a TPU, which replace Train, Evaluate and Predict.
	TPU *TPUCalls
	// Train is the training step; nil if there is none.
	Train *Train
	// Phases are the parts of the training step, of which Train is the first: one, unless the export has
	// several. A step makes them one after the other, each by calls of its own.
	Phases []*Train
	// Programs is set if XLA compiles the training step as a whole, see program.
	Programs bool
	// Loop is the call of several training steps; nil if there is none.
	Loop *Loop
	// Evaluate and Predict have one call per replica.
	Evaluate []*Call
	Predict  []*Call
	// Results computes metrics from sums; nil if the export has no such function.
	Results *Results
	// Generate computes the logits of next tokens; nil if the export has no such function, or if the
	// graph is for training.
	Generate *Generate
	// Kernels lists the kernels of internal/exec/kernels in use, one for each replaced function.
	Kernels []string
	// withinSequences is set if a token costs the same in a row of any length.
	withinSequences bool
	// SlotBytes is the size of the optimizer's slots on each replica.
	SlotBytes []int64
	// FileBytes is the size of what is offloaded of all replicas.
	FileBytes int64
}

// GraphDef returns the serialized graph.
func (p *Plan) GraphDef() ([]byte, error) { return p.builder.Marshal() }

// longRow limits the costs that grow with the square of the examples per row.
const longRow = 4096

// LongRows returns the number of tokens that a row of a micro-batch may have at no extra cost
// because attention is limited to sequences. It returns 0 if attention covers whole rows.
func (p *Plan) LongRows() int {
	if p.withinSequences {
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
	// Offloaded means that its memory is that of a file, and that a step writes into it whatever else
	// uses its value.
	Offloaded bool
}

// Assignment sets a variable on all replicas that have it.
type Assignment struct {
	Value, Assign build.Ref // the placeholder, and the node to run
	Variable      Variable
}

// Train is the training step. A step with one micro-batch per replica is a single call. A step with
// several has one call per round, which adds to the accumulators, and a last call that applies
// them.
type Train struct {
	// Phase is the part of a step that this is; it has no name if a step has one part.
	Phase graphs.Phase
	Feeds *Feeds
	Local *Local // replaces Feeds if the workers read the features
	// Scalars are the values of ScalarFeed, float32, in this order.
	Scalars    []graphs.Hyperparameter
	ScalarFeed build.Ref
	// Seeds is fed with one seed per replica, int64 [replicas, 2].
	Seeds build.Ref
	// Sums are the names of a replica's sums, and SumOutputs the numbers of these outputs of gradients; nil if
	// XLA compiles the step as one program.
	Sums       []string
	SumOutputs []int
	// SumFetches are the sums of all replicas, replica by replica.
	SumFetches []build.Ref
	// Gradients are the sums of the gradients of each replica's micro-batch, by trained variable; nil if
	// XLA compiles the step as one program.
	Gradients []map[string]build.Ref
	// Clocks are the clock readings of a micro-batch on each replica; empty if there is only
	// one.
	Clocks []build.Ref
	// Step computes new values from one micro-batch per replica.
	Step Apply
	// First sets the accumulators, Next adds to them.
	First, Next Round
	// Rows are fed with the rows in which gradients are not 0, by feature.
	Rows map[string]RowFeed
	// Last is fed with 1, int64 [], by the last phase of a step, whose update counts the step, and with 0
	// by others; the zero Ref if a step has one part.
	Last build.Ref
	// Totals is fed with the sums of weights and losses that Apply needs.
	Totals build.Ref
	// Apply computes new values from the accumulators.
	Apply Apply
}

// Round is a call that computes one micro-batch per replica for the accumulators.
type Round struct {
	// Sums are the sums of all replicas, as Train.SumFetches.
	Sums []build.Ref
	Done build.Ref
}

// Loop is a call of several training steps with one micro-batch per replica each. It ends after the
// first step that is not applied. All feeds hold those of the steps, one after the other.
type Loop struct {
	// Steps is the largest number of steps of a call.
	Steps int
	// Call is fed with the number of the call and the number of its steps, int64 [2].
	Call build.Ref
	// Feeds are the features; Layout and Totals are part of Numbers.
	Feeds *Feeds
	// Numbers is int64 [steps, n]. A row has for each replica and each of Feeds.Kinds where its
	// values begin and how many they are; its seed (2); and its layout, see Feeds.Layout. Then
	// follow for each feature of Rows where its rows begin, how many they are, and their class.
	Numbers build.Ref
	// ScalarFeed is fed with the values of Train.Scalars, float32 [steps, n].
	ScalarFeed build.Ref
	// Rows are the features of which RowFeeds are fed with the rows in which gradients are not
	// 0, int32; see RowFeed.
	Rows     []string
	RowFeeds []build.Ref
	// Results is fetched for the results, float64 [Steps, n]. A row has for each replica its
	// sums, flat, of the sizes SumSizes, and so many Clocks readings; then the gradient norm,
	// whether the step was applied, and the iterations.
	Results  build.Ref
	SumSizes []int
	Clocks   int
	// Done is fetched for the number of the call and the number of steps that it has made, int64
	// [2].
	Done build.Ref
	// ReadResults and ReadDone are the same without a call. They tell what a call that failed
	// has done.
	ReadResults, ReadDone build.Ref

	sumTypes []dtpb.DataType
}

// Decided is how many numbers at the end of a row of Loop.Results are those of all replicas.
const Decided = 3

// rowNumbers is how many parts of a row of Loop.Numbers belong to a feature of Loop.Rows.
const rowNumbers = 3

// replicaNumbers returns how many parts of a row of Numbers belong to a replica.
func (p *Loop) replicaNumbers() int { return 2*len(p.Feeds.Kinds) + 2 }

// width returns the length of a row of Results.
func (p *Loop) width() int64 {
	n := p.Clocks
	for _, size := range p.SumSizes {
		n += size
	}
	return int64(p.Feeds.Replicas*n + Decided)
}

// numberSizes returns the sizes of the parts of a row of Numbers.
func (p *Loop) numberSizes() []int64 {
	var out []int64
	for range p.Feeds.Replicas {
		for range p.Feeds.Kinds {
			out = append(out, 1, 1)
		}
		out = append(out, 2, p.Feeds.layoutLength())
	}
	for range p.Rows {
		out = append(out, 1, 1, 1)
	}
	return out
}

// numbers returns the length of a row of Numbers.
func (p *Loop) numbers() int64 {
	n := int64(0)
	for _, size := range p.numberSizes() {
		n += size
	}
	return n
}

// Apply is a call that computes new values of the variables.
type Apply struct {
	Fetches []build.Ref // gradient norm, applied, steps
	Clocks  []build.Ref // clock readings by replica; empty if there is only one
	Done    build.Ref
}

// Call is a call of a function whose only arguments are features.
type Call struct {
	Name    string
	Feeds   *Feeds
	Outputs []string // names, in the order of Fetches
	Fetches []build.Ref
}

// Results is a call of the function that computes metrics from sums.
type Results struct {
	// Sums are the names of the sums, Sizes their numbers of elements. Feeds are the
	// placeholders, float32 [size].
	Sums  []string
	Sizes []int
	Feeds []build.Ref
	// Metrics are the names of the outputs, float32 [], in the order of Fetches.
	Metrics []string
	Fetches []build.Ref
}

// Feeds says how to feed the features of some replicas: one tensor per dtype with the concatenated
// values, and one with the size and shape of each feature (see internal/exec/flat).
type Feeds struct {
	// Features are the features to feed, kind by kind. Kinds are those of one dtype each.
	Features []graphs.Feature
	Kinds    []flat.Kind
	Replicas int
	// Placeholders; the zero Ref means none.
	//   Values  by kind: all values, replica by replica, feature by feature
	//   Layout  int64 [replicas, L]: the sizes of a replica's features, then their shapes
	//   Totals  int64 [kinds, replicas]: the number of values of each kind of a replica
	Values         []build.Ref
	Layout, Totals build.Ref
}

// layoutLength returns the length of a replica's layout.
func (p *Feeds) layoutLength() int64 {
	n := len(p.Features)
	for _, feature := range p.Features {
		n += len(feature.Axes)
	}
	return int64(n)
}

// Local says how workers read the features of the training step.
type Local struct {
	// Request is fed with the batch that all workers draw, Take with the part of it that the
	// replicas use next.
	Request, Take build.Ref
	// Fetches are the outputs of a draw: the stats and the rows of each worker.
	Fetches []build.Ref
	// Rows are the features whose values a draw returns.
	Rows []string
	// Replicas is the number of replicas of each worker.
	Replicas []int
}

// RowFeed holds the placeholders of the rows in which gradients are not 0.
type RowFeed struct {
	Rows  build.Ref // int32, the row indices
	Class build.Ref // int32 [], the class of the number of rows, see RowClass
}
