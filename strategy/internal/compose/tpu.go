package compose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// ComposeTPU builds the graph of the programs of a TPU's cores.
func ComposeTPU(export *graphs.Export, l TPULayout) (*Plan, error) {
	if n := len(export.Contract.Phases); n > 0 && l.Train {
		return nil, fault.Usagef("a step of the graph has %d phases, which a TPU cannot make; use CPUs or GPUs", n)
	}
	if err := l.check(export.Contract); err != nil {
		return nil, err
	}
	if err := cmp.Or(l.Factors.check(export.Contract), l.Average.check(export.Contract)); err != nil {
		return nil, err
	}
	assignment, err := l.Topology.Assign(l.Replicas)
	if err != nil {
		return nil, err
	}
	functions := passFunctions(export.Contract)
	if l.Train {
		functions = append(functions, trainingFunctions(export.Contract)...)
	}
	layout := Layout{Train: l.Train, Hosted: true, Factors: l.Factors, Average: l.Average}
	for _, core := range assignment.Cores {
		layout.Devices = append(layout.Devices, core.Name(l.Job))
	}
	c := newComposer(export, layout, functions)
	c.plan.TPU = new(TPUCalls)
	if l.Train {
		c.divideUpdates()
	}
	t := &tpuParts{layout: l, assignment: assignment, host: c.replicas[0].host, export: export}
	if err := c.variables(l.Train); err != nil {
		return nil, err
	}
	c.results()
	for i, axes := range append([]map[string]int64{l.Axes}, l.MoreAxes...) {
		calls := c.plan.TPU
		if t.axes = axes; i > 0 {
			t.suffix = fmt.Sprintf("_%d", i+1)
			c.plan.TPU.More = append(c.plan.TPU.More, TPUCalls{})
			calls = &c.plan.TPU.More[i-1]
		}
		calls.Evaluate = c.tpuCall(t, "evaluate")
		if i == 0 {
			calls.Predict = c.tpuCall(t, "predict")
		}
		if !l.Train {
			continue
		}
		if calls.Train, err = c.tpuTrain(t); err != nil {
			return nil, err
		}
	}
	return c.plan, nil
}

// check returns an error that names the field at fault.
func (l TPULayout) check(contract *graphs.Contract) error {
	if l.Steps < 1 {
		return fault.Usagef("%d steps per call given; expected 1 or more", l.Steps)
	}
	known := make(map[string]bool)
	for _, f := range contract.Features {
		for i, axis := range f.Axes {
			if f.Shape[i] < 0 {
				known[axis] = true
			}
		}
	}
	for _, axes := range append([]map[string]int64{l.Axes}, l.MoreAxes...) {
		for axis := range known {
			if axes[axis] < 1 {
				return fault.Usagef("axis %s has no size; expected the sizes of %v: a TPU's program has fixed shapes", axis, slices.Sorted(maps.Keys(known)))
			}
		}
		for axis := range axes {
			if !known[axis] {
				return fault.Usagef("axis %s not found in the export's features; expected %v", axis, slices.Sorted(maps.Keys(known)))
			}
		}
	}
	return nil
}

// tpuCall adds a cluster that calls a function of features on every replica.
func (c *composer) tpuCall(t *tpuParts, function string) *TPUCall {
	f, name := t.function(function), function+t.suffix
	p := &TPUCall{Name: name, Feeds: t.feeds(c, name, f, 1)}
	k := newCluster(c.Builder, name, t.layout.Topology, t.assignment)
	in := t.inputs(c, k, p.Feeds)
	handles := make(map[string]build.Ref)
	for _, v := range f.Captures {
		handles[v] = k.variable(name+"/variable/"+v, t.handles(c, c.passed(v)))
	}
	k.inside()
	call := c.Call(name, f, c.tpuCut(name+"/", &p.Feeds, in), handles)
	var values []tensor
	for i, a := range f.Outputs {
		p.Outputs = append(p.Outputs, a.Name)
		values = append(values, tensor{name + "/output/" + a.Name, call.Output(i), a.DType})
	}
	p.Fetches, p.Compiled = k.outputs(values), k.status
	return p
}
