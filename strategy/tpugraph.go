package strategy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
	"github.com/gorbit-ml/gorbit/tpu"
)

// DefaultTPUSteps is the number of steps that a TPU makes in one call if Config.StepsPerCall is 0.
const DefaultTPUSteps = 20

// NewTPUGraph composes the graph that NewTPU would run on a TPU of the given topology, whose tasks
// are of the given job. It needs no TPU.
func NewTPUGraph(export *graphs.Export, topology *tpu.Topology, job string, config Config) (*Graph, error) {
	p, err := composeTPU(export, topology, job, config)
	if err != nil {
		return nil, err
	}
	calls, parts := variableCalls(p), make(map[string][]CallPart)
	for i, of := range append([]compose.TPUCalls{*p.TPU}, p.TPU.More...) {
		shape := "" // of more shapes, its number
		if i > 0 {
			shape = fmt.Sprint(" ", i+1)
		}
		featureParts(parts, of.Evaluate.Feeds)
		calls = append(calls, callOf("evaluate"+shape, slices.Concat(of.Evaluate.Fetches...)))
		if of.Predict != nil {
			featureParts(parts, of.Predict.Feeds)
			calls = append(calls, callOf("predict", slices.Concat(of.Predict.Fetches...)))
		}
		if t := of.Train; t != nil {
			fetches := slices.Clone(t.Fetches)
			if !t.Made.IsZero() {
				fetches = append(fetches, t.Made)
			}
			featureParts(parts, t.Feeds)
			scalars := tensorName(t.ScalarFeed)
			for _, h := range t.Scalars {
				parts[scalars] = append(parts[scalars], CallPart{h.Name, 1})
			}
			calls = append(calls, callOf("train"+shape, fetches))
		}
	}
	g, err := newGraph(p, calls)
	if err != nil {
		return nil, fmt.Errorf("compose %s: %w", export.Path, err)
	}
	for _, c := range g.Calls {
		for i := range c.Feeds {
			c.Feeds[i].Parts = parts[c.Feeds[i].Name]
		}
	}
	return g, nil
}

// featureParts adds what the feeds of features hold.
func featureParts(parts map[string][]CallPart, p compose.TPUFeeds) {
	for k, kind := range p.Kinds {
		for i := kind.From; i < kind.To; i++ {
			size := int64(1)
			for _, d := range p.Shapes[i] {
				size *= d
			}
			name := tensorName(p.Values[k])
			parts[name] = append(parts[name], CallPart{p.Features[i].Name, size})
		}
	}
}

// composeTPU composes the graph for the cores of a TPU.
func composeTPU(export *graphs.Export, topology *tpu.Topology, job string, config Config) (*compose.Plan, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	for _, not := range []struct {
		field string
		set   bool
	}{{"ShardOptimizer", config.ShardOptimizer}, {"Lanes", config.Lanes > 1}, {"LocalInput", config.LocalInput != nil}, {"Offload", config.Offload != ""}} {
		if not.set {
			return nil, fault.Usagef("Config.%s is set; expected none on a TPU, whose cores run one program on variables of the same shapes", not.field)
		}
	}
	return compose.ComposeTPU(export, compose.TPULayout{Topology: topology, Job: job, Replicas: cmp.Or(config.Replicas, topology.Cores()),
		Train: config.Functions == FunctionsTrain, Axes: config.Axes, MoreAxes: config.MoreAxes, Factors: config.factors(), Average: config.averages(), Steps: cmp.Or(config.StepsPerCall, DefaultTPUSteps)})
}
