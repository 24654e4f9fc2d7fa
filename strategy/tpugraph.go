package strategy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
	"github.com/gorbit-ml/gorbit/tpu"
)

// DefaultTPUSteps is the number of steps that a TPU makes in one call if Config.StepsPerCall is 0.
const DefaultTPUSteps = 20

// TPUGraph is the graph that a TPU runs, for programs that look at it without a TPU.
type TPUGraph struct {
	// GraphDef is the graph, serialized.
	GraphDef []byte
	// Runs are the calls of a session that NewTPU's strategy makes.
	Runs []TPURun
}

// TPURun is a call of a session.
type TPURun struct {
	// Name is initialize, train, evaluate or predict; those for Config.MoreAxes have a number.
	Name string `json:"name"`
	// Feeds are the tensors that the call takes, with all dimensions.
	Feeds []TPUFeed `json:"feeds"`
	// Fetches are names of tensors ("node:0"), Targets are names of nodes.
	Fetches []string `json:"fetches"`
	Targets []string `json:"targets"`
}

// TPUFeed is a tensor that a call takes.
type TPUFeed struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
}

// NewTPUGraph composes the graph that NewTPU would run on a TPU of the given topology, whose tasks
// are of the given job. It needs no TPU.
func NewTPUGraph(export *graphs.Export, topology *tpu.Topology, job string, config Config) (*TPUGraph, error) {
	p, err := composeTPU(export, topology, job, config)
	if err != nil {
		return nil, err
	}
	g := new(TPUGraph)
	if g.GraphDef, err = p.GraphDef(); err != nil {
		return nil, fmt.Errorf("compose %s: %w", export.Path, err)
	}
	g.Runs = append(g.Runs, TPURun{Name: "initialize", Feeds: []TPUFeed{}, Fetches: []string{}, Targets: []string{p.Init.Node}})
	call := func(name string, c *compose.TPUCall) {
		g.Runs = append(g.Runs, TPURun{Name: name, Feeds: featureFeeds(c.Feeds), Fetches: tensorNames(slices.Concat(c.Fetches...)...), Targets: []string{}})
	}
	for i, calls := range append([]compose.TPUCalls{*p.TPU}, p.TPU.More...) {
		shape := "" // of more shapes, its number
		if i > 0 {
			shape = fmt.Sprint(" ", i+1)
		}
		call("evaluate"+shape, calls.Evaluate)
		if calls.Predict != nil {
			call("predict", calls.Predict)
		}
		t := calls.Train
		if t == nil {
			continue
		}
		replicas, stacked := int64(t.Feeds.Replicas), []int64(nil)
		feeds := featureFeeds(t.Feeds)
		if t.Feeds.Steps > 1 {
			stacked = []int64{int64(t.Feeds.Steps)}
			feeds = append(feeds, TPUFeed{tensorName(t.Count), "int32", []int64{}})
		}
		feeds = append(feeds, TPUFeed{tensorName(t.ScalarFeed), "float32", slices.Concat(stacked, []int64{int64(len(t.Scalars))})},
			TPUFeed{tensorName(t.Seeds), "int64", slices.Concat([]int64{replicas}, stacked, []int64{2})})
		fetches := slices.Clone(t.Fetches)
		if !t.Made.IsZero() {
			fetches = append(fetches, t.Made)
		}
		g.Runs = append(g.Runs, TPURun{Name: "train" + shape, Feeds: feeds, Fetches: tensorNames(fetches...), Targets: []string{}})
	}
	return g, nil
}

// tensorName returns the name of an output as a session's API has it, with the output's number.
func tensorName(r build.Ref) string { return fmt.Sprintf("%s:%d", r.Node, r.Index) }

func tensorNames(refs ...build.Ref) []string {
	out := make([]string, len(refs))
	for i, r := range refs {
		out[i] = tensorName(r)
	}
	return out
}

// featureFeeds lists the feeds of the features of a call.
func featureFeeds(p compose.TPUFeeds) []TPUFeed {
	out := []TPUFeed{}
	for k, kind := range p.Kinds {
		if !p.Values[k].IsZero() {
			out = append(out, TPUFeed{tensorName(p.Values[k]), kind.DType, feedShape(p, p.Sizes[k])})
		}
	}
	return out
}

// feedShape is the shape of a feed with so many values for a replica's step.
func feedShape(p compose.TPUFeeds, values int64) []int64 {
	if p.Steps == 1 {
		return []int64{int64(p.Replicas), values}
	}
	return []int64{int64(p.Replicas), int64(p.Steps), values}
}

// composeTPU composes the graph for the cores of a TPU.
func composeTPU(export *graphs.Export, topology *tpu.Topology, job string, config Config) (*compose.Plan, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	for _, not := range []struct {
		field string
		set   bool
	}{{"ShardOptimizer", config.ShardOptimizer}, {"Lanes", config.Lanes > 1}, {"LocalInput", config.LocalInput != nil}} {
		if not.set {
			return nil, fault.Usagef("Config.%s is set; expected none on a TPU, whose cores run one program on variables of the same shapes", not.field)
		}
	}
	return compose.ComposeTPU(export, compose.TPULayout{Topology: topology, Job: job, Replicas: cmp.Or(config.Replicas, topology.Cores()),
		Train: config.Functions == FunctionsTrain, Axes: config.Axes, MoreAxes: config.MoreAxes, Factors: config.factors(), Average: config.Average, Steps: cmp.Or(config.StepsPerCall, DefaultTPUSteps)})
}
