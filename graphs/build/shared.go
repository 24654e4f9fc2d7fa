package build

import (
	"fmt"
	"slices"
	"strings"

	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs"
)

// pointwise are operations of one output that give the same for the same inputs, and the attribute
// that has the output's type.
var pointwise = map[string]string{
	"AddV2": "T", "Cast": "DstT", "Const": "dtype", "Exp": "T", "Expm1": "T", "Identity": "T", "Log": "T", "Log1p": "T",
	"Maximum": "T", "Minimum": "T", "Mul": "T", "Neg": "T", "Pow": "T", "RealDiv": "T", "Reciprocal": "T", "Rsqrt": "T",
	"Sqrt": "T", "Square": "T", "Sub": "T",
}

// Share takes from a function of the graph what it computes of the given arguments alone, so that
// calls with the same values of them need not compute it again. It returns a function that gives
// this, and the function as it then is, which takes the outputs of the first as arguments of the same
// names. If there is nothing to take, the first is nil. The function must have no outputs.
//
// Only pointwise operations are taken, none of which a control input says when to run.
func (b *Builder) Share(f *graphs.Function, arguments ...string) (shared, rest *graphs.Function) {
	for i, def := range b.def.GetLibrary().GetFunction() {
		if def.GetSignature().GetName() != f.GraphName {
			continue
		}
		s := newSharing(f, def, arguments)
		if len(s.outputs) == 0 {
			return nil, f
		}
		shared = &graphs.Function{Name: f.Name, GraphName: f.GraphName + "_shared", Inputs: s.inputs, Outputs: s.outputs}
		b.def.Library.Function = append(b.def.Library.Function, s.shared(shared.GraphName))
		b.def.Library.Function[i] = s.rest()
		out := *f
		out.Inputs = slices.Concat(f.Inputs, s.outputs)
		return shared, &out
	}
	return nil, f
}

// sharing divides the nodes of a function.
type sharing struct {
	def     *fpb.FunctionDef
	args    []*opb.OpDef_ArgDef // that are shared, as inputs
	inputs  []graphs.Arg
	taken   map[string]*npb.NodeDef
	outputs []graphs.Arg
	names   map[string]string // of outputs, by node
}

func newSharing(f *graphs.Function, def *fpb.FunctionDef, arguments []string) *sharing {
	s := &sharing{def: def, taken: make(map[string]*npb.NodeDef), names: make(map[string]string)}
	for i, a := range f.Inputs {
		if slices.Contains(arguments, a.Name) {
			s.args, s.inputs = append(s.args, def.GetSignature().GetInputArg()[i]), append(s.inputs, a)
		}
	}
	nodes := make(map[string]*npb.NodeDef)
	for _, n := range def.GetNodeDef() {
		nodes[n.GetName()] = n
	}
	known := make(map[string]bool)
	var take func(name string) bool
	take = func(name string) bool {
		if slices.ContainsFunc(s.args, func(a *opb.OpDef_ArgDef) bool { return a.GetName() == name }) {
			return true
		}
		n := nodes[name]
		if yes, ok := known[name]; ok || n == nil || pointwise[n.GetOp()] == "" {
			return yes
		}
		for _, in := range n.GetInput() {
			if strings.HasPrefix(in, "^") || !take(producer(in)) {
				return false
			}
		}
		known[name], s.taken[name] = true, n
		return true
	}
	for _, n := range def.GetNodeDef() {
		take(n.GetName())
	}
	for _, n := range def.GetNodeDef() {
		if s.taken[n.GetName()] != nil {
			continue
		}
		for _, in := range n.GetInput() {
			if !strings.HasPrefix(in, "^") {
				s.output(producer(in))
			}
		}
	}
	return s
}

// output makes an output of a node that is taken. Constants are none: both functions have them.
func (s *sharing) output(node string) {
	n := s.taken[node]
	if n == nil || n.GetOp() == "Const" || s.names[node] != "" {
		return
	}
	s.names[node] = fmt.Sprintf("shared_%d", len(s.outputs))
	s.outputs = append(s.outputs, graphs.Arg{Name: s.names[node], DType: n.GetAttr()[pointwise[n.GetOp()]].GetType()})
}

// producer returns the node, or argument, of a reference within a function.
func producer(ref string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(ref, "^"), ":")
	return name
}

func (s *sharing) argDefs() []*opb.OpDef_ArgDef {
	var out []*opb.OpDef_ArgDef
	for _, a := range s.outputs {
		out = append(out, &opb.OpDef_ArgDef{Name: a.Name, Type: a.DType})
	}
	return out
}

// shared returns the function that gives the outputs.
func (s *sharing) shared(name string) *fpb.FunctionDef {
	out := &fpb.FunctionDef{Signature: &opb.OpDef{Name: name, InputArg: s.args, OutputArg: s.argDefs()}, Ret: make(map[string]string)}
	for _, n := range s.def.GetNodeDef() {
		if s.taken[n.GetName()] != nil {
			out.NodeDef = append(out.NodeDef, n)
		}
	}
	for node, output := range s.names {
		out.Ret[output] = node + ":" + outputNames[s.taken[node].GetOp()][0] + ":0"
	}
	return out
}

// rest returns the function that takes the outputs.
func (s *sharing) rest() *fpb.FunctionDef {
	out := proto.CloneOf(s.def)
	out.Signature.InputArg = append(out.Signature.InputArg, s.argDefs()...)
	out.NodeDef = slices.DeleteFunc(out.NodeDef, func(n *npb.NodeDef) bool {
		return s.taken[n.GetName()] != nil && n.GetOp() != "Const"
	})
	for _, n := range out.NodeDef {
		n.Input = slices.DeleteFunc(n.Input, func(in string) bool {
			return strings.HasPrefix(in, "^") && s.taken[producer(in)] != nil
		})
		for i, in := range n.Input {
			if output, ok := s.names[producer(in)]; ok {
				n.Input[i] = output
			}
		}
	}
	return out
}
