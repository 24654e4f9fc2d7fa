package build

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	gpb "github.com/wamuir/graft/tensorflow/core/framework/graph_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"google.golang.org/protobuf/proto"
)

// Function is a function of a graph's library in the making. Its nodes are added as those of a
// graph are, so the same code can add them to either.
type Function struct {
	*Builder
	name    string
	library *fpb.FunctionDefLibrary
	args    []*opb.OpDef_ArgDef
	returns []*opb.OpDef_ArgDef
	values  []Ref // of returns
	effects []Ref
}

// Function begins a function that the graph's nodes can call by the returned Function's Name. It is
// part of the graph after End.
func (b *Builder) Function(name string) *Function {
	if b.def.Library == nil {
		b.def.Library = new(fpb.FunctionDefLibrary)
	}
	return &Function{
		Builder: &Builder{def: &gpb.GraphDef{Library: b.def.Library}, names: make(map[string]int), outputs: b.outputs},
		name:    name,
		library: b.def.Library,
	}
}

// Arg adds an argument and returns its reference. TensorFlow takes names of lower-case letters,
// digits and "_" only.
func (f *Function) Arg(name string, dtype dtpb.DataType) Ref {
	f.args = append(f.args, &opb.OpDef_ArgDef{Name: name, Type: dtype})
	f.names[name]++ // nodes have other names
	return Ref{Node: name}
}

// Return adds an output.
func (f *Function) Return(name string, value Ref, dtype dtpb.DataType) {
	f.returns = append(f.returns, &opb.OpDef_ArgDef{Name: name, Type: dtype})
	f.values = append(f.values, value)
}

// Effect says that a node must run even if no output needs it, because it changes a variable.
func (f *Function) Effect(node Ref) { f.effects = append(f.effects, node) }

// argName is what TensorFlow takes as the name of an argument.
var argName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// End adds the function to the graph's library and returns its name. It returns an error if a name
// is not valid, or if the output names of an operation are not known.
func (f *Function) End() (string, error) {
	def := &fpb.FunctionDef{
		Signature:  &opb.OpDef{Name: f.name, InputArg: f.args, OutputArg: f.returns, IsStateful: len(f.effects) > 0},
		NodeDef:    f.def.Node,
		Ret:        make(map[string]string, len(f.returns)),
		ControlRet: make(map[string]string, len(f.effects)),
	}
	ops := make(map[string]string, len(f.def.Node)) // by node
	for _, a := range f.args {
		ops[a.GetName()] = ""
	}
	for _, n := range f.def.Node {
		ops[n.GetName()] = n.GetOp()
	}
	var errs []error
	for _, a := range append(append([]*opb.OpDef_ArgDef(nil), f.args...), f.returns...) {
		if !argName.MatchString(a.GetName()) {
			errs = append(errs, fmt.Errorf("argument or output is named %q; expected a name of a-z, 0-9 and _", a.GetName()))
		}
	}
	translate := func(of string, ref Ref) string {
		out, err := f.inFunction(ops, ref)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", of, err))
		}
		return out
	}
	for i, n := range f.def.Node {
		for _, ref := range f.inputs[i] {
			n.Input = append(n.Input, translate("node "+n.GetName(), ref))
		}
	}
	for i, r := range f.returns {
		def.Ret[r.GetName()] = translate("output "+r.GetName(), f.values[i])
	}
	for _, effect := range f.effects {
		def.Signature.ControlOutput = append(def.Signature.ControlOutput, effect.Node)
		def.ControlRet[effect.Node] = effect.Node
	}
	if err := errors.Join(errs...); err != nil {
		return "", fmt.Errorf("function %s: %w", f.name, err)
	}
	f.library.Function = append(f.library.Function, def)
	return f.name, nil
}

// inFunction returns a reference as functions have it ("node:output:1"). Ops holds the operation of
// each node, and "" for each argument.
func (f *Function) inFunction(ops map[string]string, ref Ref) (string, error) {
	op, ok := ops[ref.Node]
	if !ok {
		return "", fmt.Errorf("node %s not found", ref.Node)
	}
	if ref.Index == control {
		return ref.String(), nil
	}
	if op == "" { // an argument
		return ref.Node, nil
	}
	names, ok := f.outputs[op]
	if !ok {
		names, ok = outputNames[op]
	}
	switch {
	case !ok:
		return "", fmt.Errorf("the names of the outputs of operation %s are not known; add them to outputNames, or Declare them", op)
	case len(names) == 1: // one output, or a list
		return fmt.Sprintf("%s:%s:%d", ref.Node, names[0], ref.Index), nil
	case ref.Index >= len(names):
		return "", fmt.Errorf("input %s: operation %s has %d outputs", ref, op, len(names))
	}
	return fmt.Sprintf("%s:%s:0", ref.Node, names[ref.Index]), nil
}

// Branch adds an If: it calls one of two functions of the same arguments, and has their outputs.
func (b *Builder) Branch(name string, condition Ref, then, otherwise string, inputs []Ref, in, out []dtpb.DataType, attrs ...Attr) Ref {
	return b.Node("If", name, append([]Ref{condition}, inputs...), append([]Attr{Type("Tcond", dtpb.DataType_DT_BOOL), Types("Tin", in), Types("Tout", out),
		Func("then_branch", then), Func("else_branch", otherwise)}, attrs...)...)
}

// Loop adds a While: it calls the function body with the inputs, and then with its own outputs, as
// long as the function condition is true. Shapes are those of the outputs; none means unknown.
func (b *Builder) Loop(name, condition, body string, inputs []Ref, types []dtpb.DataType, outputs [][]int64, attrs ...Attr) Ref {
	return b.Node("While", name, inputs, append([]Attr{Types("T", types), Func("cond", condition), Func("body", body),
		Shapes("output_shapes", outputs), Int("parallel_iterations", 1)}, attrs...)...)
}

// lowering is the attribute of an If or a While that TensorFlow takes apart when it inlines a function.
const lowering = "_lower_using_switch_merge"

// KeepControlFlow keeps every If and While of the library's functions whole where TensorFlow inlines
// the functions. XLA knows these, but not the operations that would be made of them.
func (b *Builder) KeepControlFlow() {
	for i, f := range b.def.GetLibrary().GetFunction() {
		if !slices.ContainsFunc(f.NodeDef, func(n *npb.NodeDef) bool { return n.Attr[lowering].GetB() }) {
			continue
		}
		own := proto.CloneOf(f) // the export has the other
		for _, n := range own.NodeDef {
			delete(n.Attr, lowering)
		}
		b.def.Library.Function[i] = own
	}
}
