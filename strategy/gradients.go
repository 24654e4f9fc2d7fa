package strategy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	vpb "github.com/wamuir/graft/tensorflow/core/framework/versions_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/capi"
	"github.com/gorbit-ml/gorbit/strategy/internal/numerics"
)

// CheckGradients returns an error if Gradients cannot give what it is asked for.
func (m *Model) CheckGradients() error {
	switch p := m.plan.Train; {
	case p == nil:
		return errors.New("the graph was composed for evaluation only")
	case len(m.export.Contract.Phases) > 0:
		return fmt.Errorf("a step of the graph has %d phases, each with gradients of its own", len(m.export.Contract.Phases))
	case p.Local != nil:
		return errors.New("the workers read the batches themselves, and keep only the next one")
	case p.Gradients == nil:
		return errors.New("XLA compiles the step as one program, which gives no gradients; expected an export without --xla")
	}
	return nil
}

// Gradients returns the gradient of the mean loss of a batch before it is clipped, whose global norm is
// Result.GradientNorm, by trained variable: float32 in the variable's order, flat. Sums over micro-batches
// are made in float32. It computes the passes of the step, and changes no variable. If memory runs out,
// the error is an *OutOfMemoryError.
func (m *Model) Gradients(ctx context.Context, in StepInput) (map[string][]float32, error) {
	if err := m.CheckGradients(); err != nil {
		return nil, err
	}
	s, err := m.newStep(in)
	if err != nil {
		return nil, err
	}
	p := s.plan
	names := slices.Sorted(maps.Keys(p.Gradients[0]))
	fetches := slices.Clone(p.SumFetches)
	for _, replica := range p.Gradients {
		for _, name := range names {
			fetches = append(fetches, replica[name])
		}
	}
	sums := make(map[string][]float32, len(names))
	for k := range s.rounds {
		out, err := s.pass(ctx, k, fetches)
		if err != nil {
			return nil, err
		}
		if err := s.result.add(p.Sums, out[:len(p.SumFetches)]); err != nil {
			return nil, err
		}
		for i, t := range out[len(p.SumFetches):] {
			name := names[i%len(names)]
			values, err := Float32s(t)
			if err != nil {
				return nil, fmt.Errorf("gradient of %s: %w", name, err)
			}
			if sums[name] == nil {
				sums[name] = make([]float32, len(values))
			}
			for k, v := range values {
				sums[name][k] += v
			}
		}
	}
	unit := float32(1 / s.result.Sums["weight_sum"][0])
	for _, sum := range sums {
		for i := range sum {
			sum[i] *= unit
		}
	}
	return sums, nil
}

// pass computes outputs of the passes of one of the step's rounds, without an update.
func (s *step) pass(ctx context.Context, round int, fetches []build.Ref) ([]*tf.Tensor, error) {
	feeds, err := s.round(round)
	if err != nil {
		return nil, err
	}
	out, err := s.m.session.run(ctx, feeds, fetches)
	if err != nil {
		return nil, s.m.stepError(ctx, err)
	}
	return out, nil
}

// Diagnosis is what Diagnose found. Tensor and Gradient are nil if all are finite.
type Diagnosis struct {
	// Tensor is the first tensor that is not finite of those that make the loss or a gradient so, in the
	// order in which the pass computes them: what it is computed from is finite, or a constant.
	Tensor *NonFinite
	// Gradient is the first gradient of a variable that is not finite.
	Gradient *NonFinite
	// Micro is the number of the micro-batch in which they were found, counted from 0.
	Micro int
}

// NonFinite is a tensor with numbers that are not finite.
type NonFinite struct {
	// Name is the node in the function gradients, which has the names of the scopes that it was made
	// in, or the argument. Op is the operation, "" for an argument.
	Name, Op string
	// Variable is the variable that the node computes with, or that what it computes with was computed
	// with last, "" if there is none. Of a gradient it is the gradient's.
	Variable string
	DType    tf.DataType
	// Elements, NaNs and Infinite are numbers of values, Largest is the largest absolute value of the
	// others, 0 if there are none.
	Elements, NaNs, Infinite int64
	Largest                  float64
}

// Diagnose computes the pass of a step once more and finds where it is not finite first. It changes no
// variable. It adds to the graph, so that nothing else may call the model in the meantime.
func (m *Model) Diagnose(ctx context.Context, in StepInput) (*Diagnosis, error) {
	if err := m.CheckGradients(); err != nil {
		return nil, err
	}
	s, err := m.newStep(in)
	if err != nil {
		return nil, err
	}
	for replica := range s.plan.Gradients {
		added, err := m.probe(replica)
		if err != nil {
			return nil, err
		}
		look := &look{s, added}
		for round := range s.rounds {
			d, err := look.diagnose(ctx, round)
			if err != nil {
				return nil, fmt.Errorf("look for the first tensor that is not finite: %w", err)
			}
			if d.Tensor != nil || d.Gradient != nil {
				d.Micro = round*len(s.plan.Gradients) + replica
				return d, nil
			}
		}
	}
	return new(Diagnosis), nil
}

// graph returns the graph of the model.
func (m *Model) graph() (*gpb.GraphDef, error) {
	content, err := m.plan.GraphDef()
	if err != nil {
		return nil, err
	}
	def := new(gpb.GraphDef)
	return def, proto.Unmarshal(content, def)
}

// look looks into the pass of a replica.
type look struct {
	*step
	*probe
}

// probe is what was added to the graph to look into the pass of a replica. Nothing can be taken out of a graph, so
// that it stays for the next time.
type probe struct {
	versions *vpb.VersionDef
	call     *npb.NodeDef     // of the pass
	of       *fpb.FunctionDef // that it calls
	replica  int
	tensors  []numerics.Tensor
	near     map[string]string    // variables by node
	variants map[string]build.Ref // calls of variants of the function, by what they give more
}

// probe returns that of a replica.
func (m *Model) probe(replica int) (*probe, error) {
	if l := m.probes[replica]; l != nil {
		return l, nil
	}
	ops, err := capi.Ops()
	if err != nil {
		return nil, err
	}
	def, err := m.graph()
	if err != nil {
		return nil, err
	}
	l := &probe{versions: def.GetVersions(), replica: replica, variants: make(map[string]build.Ref)}
	var gradient build.Ref // any: the pass gives all of them
	for _, gradient = range m.plan.Train.Gradients[replica] {
		break
	}
	for _, n := range def.GetNode() {
		if n.GetName() == gradient.Node {
			l.call = n
		}
	}
	for _, f := range def.GetLibrary().GetFunction() {
		if f.GetSignature().GetName() == l.call.GetAttr()["f"].GetFunc().GetName() {
			l.of = f
		}
	}
	if l.of == nil {
		return nil, fmt.Errorf("the pass %s calls no function of the graph", gradient.Node)
	}
	if l.tensors, err = numerics.Tensors(l.of, ops); err != nil {
		return nil, err
	}
	handles := make(map[string]string)
	pass := m.export.Functions["gradients"]
	for i, name := range pass.Captures {
		handles[l.of.GetSignature().GetInputArg()[len(pass.Inputs)+i].GetName()] = name
	}
	l.near = numerics.Near(l.of, handles)
	if m.probes == nil {
		m.probes = make(map[int]*probe)
	}
	m.probes[replica] = l
	return l, nil
}

// variant returns what a variant of the function gives more, of some tensors. A call of it is added the first time.
func (l *look) variant(key string, variant func(*fpb.FunctionDef, string, []numerics.Tensor) *fpb.FunctionDef, of ...numerics.Tensor) (build.Ref, error) {
	if out, ok := l.variants[key]; ok {
		return out, nil
	}
	name := fmt.Sprintf("gorbit_look_%d_%d", l.probe.replica, len(l.variants))
	call := proto.CloneOf(l.probe.call)
	call.Name = name
	delete(call.Attr, "_XlaMustCompile")
	call.Attr["f"].GetFunc().Name = name
	types := call.Attr["Tout"].GetList()
	out := build.Ref{Node: name, Index: len(types.Type)}
	types.Type = append(types.Type, dtpb.DataType_DT_DOUBLE)
	call.Input = slices.DeleteFunc(call.Input, func(in string) bool { return strings.HasPrefix(in, "^") })
	err := l.m.session.extend(&gpb.GraphDef{
		Versions: l.versions,
		Library:  &fpb.FunctionDefLibrary{Function: []*fpb.FunctionDef{variant(l.of, name, of)}},
		Node:     []*npb.NodeDef{call},
	})
	if err == nil {
		l.variants[key] = out
	}
	return out, err
}

// diagnose looks into a round of micro-batches.
func (l *look) diagnose(ctx context.Context, round int) (*Diagnosis, error) {
	all, err := l.variant("counts", numerics.Counting, l.tensors...)
	if err != nil {
		return nil, err
	}
	out, err := l.pass(ctx, round, []build.Ref{all})
	if err != nil {
		return nil, err
	}
	counts, err := floats(out[0])
	if err != nil {
		return nil, err
	}
	found, bad := make(map[string]*NonFinite), make(map[string]bool)
	for i, t := range l.tensors {
		row := counts[numerics.Counts*i:][:numerics.Counts]
		if row[2]+row[3]+row[4] > 0 {
			bad[t.Ref] = true
			found[t.Ref] = &NonFinite{Name: t.Node, Op: t.Op, Variable: l.near[t.Node], DType: tf.DataType(t.DType), Elements: int64(row[1]), Infinite: int64(row[2] + row[3]), NaNs: int64(row[4])}
		}
	}
	at := numerics.First(l.of, l.tensors, bad, l.decisive())
	if at < 0 {
		return new(Diagnosis), nil
	}
	first := l.tensors[at]
	d := &Diagnosis{Tensor: found[first.Ref]}
	shown := []numerics.Tensor{first}
	gradient := l.firstGradient(found)
	if gradient != nil {
		for _, t := range l.tensors {
			if t.Ref == gradient.ref {
				shown = append(shown, t)
			}
		}
		copied := *found[gradient.ref]
		copied.Variable = gradient.variable
		d.Gradient = &copied
	}
	for i, of := range []*NonFinite{d.Tensor, d.Gradient}[:len(shown)] {
		values, err := l.variant(shown[i].Ref, numerics.Showing, shown[i])
		if err != nil {
			return nil, err
		}
		out, err := l.pass(ctx, round, []build.Ref{values})
		if err != nil {
			return nil, err
		}
		if of.Largest, err = largest(out[0]); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// decisive returns the outputs of the function that must be finite: all but the sums of metrics.
func (l *look) decisive() []string {
	sums := make(map[int]bool)
	for i, name := range l.plan.Sums {
		if name != "loss_sum" && name != "weight_sum" {
			sums[l.plan.SumOutputs[i]] = true
		}
	}
	var out []string
	for i, a := range l.of.GetSignature().GetOutputArg() {
		if !sums[i] {
			out = append(out, l.of.GetRet()[a.GetName()])
		}
	}
	return out
}

// gradientRef is the gradient of a variable in the function.
type gradientRef struct{ variable, ref string }

// firstGradient returns the gradient that is not finite and comes first in the backward pass; nil if all
// are finite.
func (l *look) firstGradient(found map[string]*NonFinite) *gradientRef {
	place := make(map[string]int, len(l.tensors))
	for i, t := range l.tensors {
		place[t.Ref] = i
	}
	var first *gradientRef
	outputs := l.of.GetSignature().GetOutputArg()
	for name, ref := range l.plan.Gradients[0] { // each replica calls the same function
		at := l.of.GetRet()[outputs[ref.Index].GetName()]
		if found[at] == nil {
			continue
		}
		if first == nil || place[at] < place[first.ref] || at == first.ref && name < first.variable {
			first = &gradientRef{name, at}
		}
	}
	return first
}

// largest returns the largest absolute value of the finite elements of a tensor.
func largest(t *tf.Tensor) (float64, error) {
	values, err := floats(t)
	most := 0.0
	for _, v := range values {
		if a := math.Abs(v); a > most && !math.IsInf(a, 0) {
			most = a
		}
	}
	return most, err
}
