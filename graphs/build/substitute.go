package build

import (
	"cmp"
	"slices"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs"
)

// implementsAttr is TensorFlow's attribute for the interface that a function implements, and
// variablesAttr that of functions that take variables.
const implementsAttr, variablesAttr = "_implements", "api_implements"

// Op is an operation that can replace some functions.
type Op struct {
	// Name is the name of the operation, for example "GorbitGelu".
	Name string
	// Implements is the _implements attribute of the functions, for example "gorbit.gelu".
	Implements string
	// Inputs and Outputs are in the order of the function's. Shapes are ignored.
	Inputs, Outputs []graphs.Arg
}

// SubstituteFunction replaces the body of a function of the export by an operation, regardless of
// its _implements attribute. It returns false, and changes nothing, if their dtypes differ.
func (b *Builder) SubstituteFunction(f *graphs.Function, op Op) bool {
	for i, def := range b.def.GetLibrary().GetFunction() {
		if def.GetSignature().GetName() == f.GraphName && fits(def.GetSignature(), op) {
			b.def.Library.Function[i] = substitute(def, op)
			return true
		}
	}
	return false
}

// Substitute replaces the body of every function that implements one of the operations and has the
// same dtypes by that operation. It returns the operation of each replaced function.
func (b *Builder) Substitute(ops []Op) []string {
	var names []string
	for i, f := range b.def.GetLibrary().GetFunction() {
		name := implements(f)
		for _, op := range ops {
			if name == op.Implements && fits(f.GetSignature(), op) {
				b.def.Library.Function[i] = substitute(f, op)
				names = append(names, op.Name)
			}
		}
	}
	return names
}

func implements(f *fpb.FunctionDef) string {
	attr := f.GetAttr()
	return cmp.Or(string(attr[implementsAttr].GetS()), string(attr[variablesAttr].GetS()))
}

func fits(signature *opb.OpDef, op Op) bool {
	same := func(d *opb.OpDef_ArgDef, a graphs.Arg) bool { return d.GetType() == a.DType }
	return slices.EqualFunc(signature.GetInputArg(), op.Inputs, same) &&
		slices.EqualFunc(signature.GetOutputArg(), op.Outputs, same)
}

func substitute(f *fpb.FunctionDef, op Op) *fpb.FunctionDef {
	const node = "op"
	body := &npb.NodeDef{Name: node, Op: op.Name, Attr: make(map[string]*apb.AttrValue)}
	stateful := false
	for _, a := range f.GetSignature().GetInputArg() {
		body.Input = append(body.Input, a.GetName())
		stateful = stateful || a.GetType() == dtpb.DataType_DT_RESOURCE
	}
	out := proto.CloneOf(f)
	delete(out.Attr, variablesAttr) // by which TensorFlow looks for other functions
	out.NodeDef = []*npb.NodeDef{body}
	out.Ret = make(map[string]string, len(op.Outputs))
	for i, a := range f.GetSignature().GetOutputArg() {
		out.Ret[a.GetName()] = node + ":" + op.Outputs[i].Name + ":0"
	}
	out.ControlRet = nil
	out.Signature.ControlOutput = nil
	if stateful {
		out.ControlRet = map[string]string{node: node}
		out.Signature.ControlOutput = []string{node}
	}
	return out
}
