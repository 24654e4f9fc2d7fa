package build

import (
	"slices"

	apb "github.com/wamuir/graft/tensorflow/core/framework/attr_value_go_proto"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	npb "github.com/wamuir/graft/tensorflow/core/framework/node_def_go_proto"
	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/graphs"
)

// NarrowSuffix ends the names of the captures that Narrow adds.
const NarrowSuffix = "/narrow"

// Narrow makes a function of the export read copies of its variables. Where it casts what it reads of one
// from float32 to dtype at once, it reads a variable of that dtype instead, which the caller makes. It
// returns the function with a capture for each of these, its name that of the variable and NarrowSuffix,
// and the names of the variables. f is not changed.
func (b *Builder) Narrow(f *graphs.Function, dtype dtpb.DataType) (*graphs.Function, []string) {
	i := slices.IndexFunc(b.def.GetLibrary().GetFunction(), func(def *fpb.FunctionDef) bool {
		return def.GetSignature().GetName() == f.GraphName
	})
	if i < 0 {
		return f, nil
	}
	def := proto.CloneOf(b.def.Library.Function[i])
	b.def.Library.Function[i] = def
	casts := make(map[string][]*npb.NodeDef) // by the arguments whose values they cast
	read := make(map[string]string)          // what is read of an argument, by the tensor
	args := def.GetSignature().GetInputArg()[len(f.Inputs):]
	for _, n := range def.GetNodeDef() {
		if n.GetOp() == "ReadVariableOp" && n.GetAttr()["dtype"].GetType() == dtpb.DataType_DT_FLOAT {
			read[n.GetName()+":value:0"] = n.GetInput()[0]
		}
	}
	for _, n := range def.GetNodeDef() {
		if n.GetOp() == "Cast" && n.GetAttr()["DstT"].GetType() == dtype && len(n.GetInput()) == 1 {
			if arg := read[n.GetInput()[0]]; arg != "" {
				casts[arg] = append(casts[arg], n)
			}
		}
	}
	made := *f
	made.Captures = slices.Clone(f.Captures)
	var names []string
	for k, arg := range args {
		if len(casts[arg.GetName()]) == 0 {
			continue
		}
		own := arg.GetName() + "_narrow"
		names = append(names, f.Captures[k])
		made.Captures = append(made.Captures, f.Captures[k]+NarrowSuffix)
		def.Signature.InputArg = append(def.Signature.InputArg, &opb.OpDef_ArgDef{Name: own, Type: dtpb.DataType_DT_RESOURCE})
		for _, n := range casts[arg.GetName()] {
			n.Op, n.Input = "ReadVariableOp", []string{own}
			n.Attr = map[string]*apb.AttrValue{"dtype": Type("dtype", dtype).Value}
			renameOutput(def, n.GetName()+":y:0", n.GetName()+":value:0")
		}
	}
	return &made, names
}

// renameOutput changes the name of a tensor wherever a function takes it.
func renameOutput(def *fpb.FunctionDef, from, to string) {
	for _, n := range def.GetNodeDef() {
		for i, input := range n.GetInput() {
			if input == from {
				n.Input[i] = to
			}
		}
	}
	for name, ref := range def.GetRet() {
		if ref == from {
			def.Ret[name] = to
		}
	}
}
