package build

import (
	"strings"

	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
)

// WritesWait reports whether everything that a function of the graph does to variables waits for one
// of its arguments. Only then does a dead tensor in the place of the argument stop the whole
// function: TensorFlow inlines calls, and operations that do not depend on the argument run.
//
// Everything that takes the handle of a variable counts, except for reading it.
func (b *Builder) WritesWait(f *graphs.Function, argument string) bool {
	for _, def := range b.def.GetLibrary().GetFunction() {
		if def.GetSignature().GetName() != f.GraphName {
			continue
		}
		for i, a := range f.Inputs {
			if a.Name == argument {
				return writesWait(def, def.GetSignature().GetInputArg()[i].GetName())
			}
		}
	}
	return false
}

func writesWait(def *fpb.FunctionDef, argument string) bool {
	handles := make(map[string]bool)
	for _, a := range def.GetSignature().GetInputArg() {
		handles[a.GetName()] = a.GetType() == dtpb.DataType_DT_RESOURCE
	}
	inputs := make(map[string][]string, len(def.GetNodeDef()))
	for _, n := range def.GetNodeDef() {
		for _, in := range n.GetInput() {
			name, _, _ := strings.Cut(strings.TrimPrefix(in, "^"), ":")
			inputs[n.GetName()] = append(inputs[n.GetName()], name)
		}
	}
	known := map[string]bool{argument: true}
	var waits func(name string) bool
	waits = func(name string) bool {
		if yes, ok := known[name]; ok {
			return yes
		}
		known[name] = false // so that cycles end
		for _, in := range inputs[name] {
			if waits(in) {
				known[name] = true
				break
			}
		}
		return known[name]
	}
	for _, n := range def.GetNodeDef() {
		if n.GetOp() == "ReadVariableOp" {
			continue
		}
		for _, in := range inputs[n.GetName()] {
			if handles[in] && !waits(n.GetName()) {
				return false
			}
		}
	}
	return true
}
