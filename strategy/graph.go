package strategy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// Graph is the graph that a strategy runs, for programs that look at it without its devices.
type Graph struct {
	// GraphDef is the graph, serialized.
	GraphDef []byte
	// Config is the ConfigProto of the session that runs it, serialized; nil for a TPU.
	Config []byte
	// Devices are those of the replicas, "" for TensorFlow's choice; nil for a TPU.
	Devices []string
	// Calls are those of the session.
	Calls []Call
}

// Call is a call of a session.
type Call struct {
	// Name is what the call does:
	//
	//	initialize  sets all variables to their first values
	//	assign      sets all variables to what is fed
	//	read        reads all variables
	//	train       one training step, on a TPU also a loop of them
	//	accumulate first, accumulate, apply
	//	            a training step of several micro-batches per replica; where a step has
	//	            phases, "of" and the name of one follow
	//	loop        several training steps
	//	evaluate, predict
	//	            a batch; those of other replicas, on a TPU of other shapes, have a number
	//	results     metrics of sums
	//	generate caches, generate
	//	            makes the caches of a generation; the logits of next tokens
	Name string `json:"name"`
	// Feeds are the tensors that the call takes.
	Feeds []CallFeed `json:"feeds"`
	// Fetches are names of tensors ("node:0"), Targets are names of nodes.
	Fetches []string `json:"fetches"`
	Targets []string `json:"targets"`
}

// CallFeed is a tensor that a call takes.
type CallFeed struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	// Shape has -1 for a dimension that depends on the batch. A TPU has none.
	Shape []int64 `json:"shape"`
	// Parts are the features, or scalars, that a TPU is fed in the last dimension, in order; nil if it
	// is one thing.
	Parts []CallPart `json:"parts,omitempty"`
}

// CallPart is a part of a fed tensor.
type CallPart struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// deviceName matches what findDevice finds where there is such a device.
var deviceName = regexp.MustCompile(`(?i)^/?(.*/)?device:[CG]PU:\d+$`)

// ComposeOneDevice composes the graph that NewOneDevice would run. This machine need not have the device;
// "" is one of its own.
func ComposeOneDevice(export *graphs.Export, device string, config Config) (*Graph, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if device != "" && !deviceName.MatchString(device) {
		return nil, fmt.Errorf("device is %q; expected a name of a CPU or GPU, such as /device:GPU:0", device)
	}
	if device == "" {
		n, err := CountGPUs()
		if err != nil {
			return nil, err
		}
		if n > 0 {
			device = "/device:GPU:0"
		}
	}
	_, cpu := cpuNumber(device)
	return composeGraph(export, oneDevice(device, device == "" || cpu, config.Lanes), config.forLanes())
}

// ComposeMirrored composes the graph that NewMirrored would run. This machine need not have the devices.
func ComposeMirrored(export *graphs.Export, devices []string, config Config) (*Graph, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	t, config, err := mirrored(devices, config)
	if err != nil {
		return nil, err
	}
	return composeGraph(export, t, config)
}

// composeGraph composes the graph that newModel would run.
func composeGraph(export *graphs.Export, t target, config Config) (*Graph, error) {
	p, config, err := composeFor(export, t, config)
	if err != nil {
		return nil, err
	}
	g, err := newGraph(p, callsOf(p))
	if err == nil {
		g.Devices = slices.Clone(t.devices)
		g.Config, err = t.sessionConfig(config, graphRewrites(p, len(t.devices)))
	}
	if err != nil {
		return nil, fmt.Errorf("compose %s: %w", export.Path, err)
	}
	return g, nil
}

// callsOf lists the calls of a Model.
func callsOf(p *compose.Plan) []Call {
	out := variableCalls(p)
	for _, t := range p.Phases {
		of := ""
		if t.Phase.Name != "" {
			of = " of " + t.Phase.Name
		}
		out = append(out,
			callOf("train"+of, slices.Concat(t.Step.Clocks, t.SumFetches, t.Step.Fetches), t.Step.Done),
			callOf("accumulate first"+of, slices.Concat(t.Clocks, t.First.Sums), t.First.Done),
			callOf("accumulate"+of, slices.Concat(t.Clocks, t.Next.Sums), t.Next.Done),
			callOf("apply"+of, slices.Concat(t.Apply.Clocks, t.Apply.Fetches), t.Apply.Done))
	}
	if l := p.Loop; l != nil {
		out = append(out, callOf("loop", []build.Ref{l.Done, l.Results}))
	}
	for _, passes := range [][]*compose.Call{p.Evaluate, p.Predict} {
		for i, c := range passes {
			name := c.Name
			if i > 0 {
				name = fmt.Sprint(name, " ", i+1)
			}
			out = append(out, callOf(name, c.Fetches))
		}
	}
	if r := p.Results; r != nil {
		out = append(out, callOf("results", r.Fetches))
	}
	if g := p.Generate; g != nil {
		out = append(out, callOf("generate caches", nil, g.Caches.Made), callOf("generate", []build.Ref{g.Logits}))
		if e := g.Encode; e != nil {
			out = append(out, callOf("encode caches", nil, e.Caches.Made), callOf("encode", []build.Ref{e.Encoded}))
		}
	}
	return out
}

// variableCalls lists the calls for all variables.
func variableCalls(p *compose.Plan) []Call {
	var read, assign []build.Ref
	for _, name := range slices.Sorted(maps.Keys(p.Assigns)) {
		assign = append(assign, p.Assigns[name].Assign)
		read = append(read, p.Reads[name][0])
	}
	return []Call{callOf("initialize", nil, p.Init), callOf("assign", nil, assign...), callOf("read", read)}
}

// callOf returns a call without its feeds.
func callOf(name string, fetches []build.Ref, targets ...build.Ref) Call {
	c := Call{Name: name, Feeds: []CallFeed{}, Fetches: make([]string, len(fetches)), Targets: make([]string, len(targets))}
	for i, r := range fetches {
		c.Fetches[i] = tensorName(r)
	}
	for i, r := range targets {
		c.Targets[i] = r.Node
	}
	return c
}

// tensorName returns the name of an output as a session's API has it, with the output's number.
func tensorName(r build.Ref) string { return fmt.Sprintf("%s:%d", r.Node, r.Index) }

// newGraph serializes a graph and sets the feeds of its calls.
func newGraph(p *compose.Plan, calls []Call) (*Graph, error) {
	g := &Graph{Calls: calls}
	var err error
	if g.GraphDef, err = p.GraphDef(); err != nil {
		return nil, err
	}
	def := new(gpb.GraphDef)
	if err := proto.Unmarshal(g.GraphDef, def); err != nil {
		return nil, err
	}
	at := make(map[string]int, len(def.Node))
	for i, n := range def.Node {
		at[n.Name] = i
	}
	for i := range calls {
		calls[i].Feeds = append(calls[i].Feeds, feedsOf(def, at, slices.Concat(calls[i].Fetches, calls[i].Targets))...)
	}
	return g, nil
}

// feedsOf returns the placeholders that nodes and tensors of a graph need. at has the nodes' places.
func feedsOf(def *gpb.GraphDef, at map[string]int, names []string) []CallFeed {
	needed := make([]bool, len(def.Node))
	for todo := slices.Clone(names); len(todo) > 0; {
		name, _, _ := strings.Cut(strings.TrimPrefix(todo[len(todo)-1], "^"), ":")
		todo = todo[:len(todo)-1]
		if i := at[name]; !needed[i] {
			needed[i] = true
			todo = append(todo, def.Node[i].Input...)
		}
	}
	var out []CallFeed
	for i, n := range def.Node {
		if !needed[i] || n.Op != "Placeholder" {
			continue
		}
		f := CallFeed{Name: n.Name + ":0", DType: dtype.DType(n.Attr["dtype"].GetType()).String(), Shape: []int64{}}
		for _, d := range n.Attr["shape"].GetShape().GetDim() {
			f.Shape = append(f.Shape, d.Size)
		}
		out = append(out, f)
	}
	return out
}
