package build

import (
	"strings"

	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs"
)

// Without takes the outputs for which drop is true from a function of the graph, and the operations
// that nothing but these outputs needs. Operations that the function runs for their effects stay. It
// returns the function as it then is; calls are to be made with that.
func (b *Builder) Without(f *graphs.Function, drop func(output string) bool) *graphs.Function {
	for i, def := range b.def.GetLibrary().GetFunction() {
		if def.GetSignature().GetName() != f.GraphName {
			continue
		}
		var dropped, kept []*opb.OpDef_ArgDef
		out := *f
		out.Outputs = nil
		for j, a := range f.Outputs {
			if arg := def.GetSignature().GetOutputArg()[j]; drop(a.Name) {
				dropped = append(dropped, arg)
			} else {
				kept = append(kept, arg)
				out.Outputs = append(out.Outputs, a)
			}
		}
		if len(dropped) == 0 {
			return f
		}
		b.def.Library.Function[i] = without(def, dropped, kept)
		return &out
	}
	return f
}

func without(def *fpb.FunctionDef, dropped, kept []*opb.OpDef_ArgDef) *fpb.FunctionDef {
	inputs := make(map[string][]string, len(def.GetNodeDef()))
	for _, n := range def.GetNodeDef() {
		inputs[n.GetName()] = n.GetInput()
	}
	// reach adds the node of a reference to reached, and all that it needs.
	var reach func(reached map[string]bool, ref string)
	reach = func(reached map[string]bool, ref string) {
		node, _, _ := strings.Cut(strings.TrimPrefix(ref, "^"), ":")
		if in, ok := inputs[node]; ok && !reached[node] {
			reached[node] = true
			for _, i := range in {
				reach(reached, i)
			}
		}
	}
	ofDropped, needed := make(map[string]bool), make(map[string]bool)
	for _, a := range dropped {
		reach(ofDropped, def.GetRet()[a.GetName()])
	}
	for _, node := range def.GetControlRet() {
		reach(needed, node)
	}
	for node := range inputs {
		if !ofDropped[node] {
			reach(needed, node)
		}
	}
	out := &fpb.FunctionDef{
		Signature:           proto.CloneOf(def.GetSignature()),
		Attr:                def.GetAttr(),
		ArgAttr:             def.GetArgAttr(),
		ResourceArgUniqueId: def.GetResourceArgUniqueId(),
		Ret:                 make(map[string]string, len(kept)),
		ControlRet:          def.GetControlRet(),
	}
	out.Signature.OutputArg = kept
	for _, a := range kept {
		out.Ret[a.GetName()] = def.GetRet()[a.GetName()]
		reach(needed, out.Ret[a.GetName()])
	}
	for _, n := range def.GetNodeDef() {
		if needed[n.GetName()] {
			out.NodeDef = append(out.NodeDef, n)
		}
	}
	return out
}
