// Package kernelops has the operations of package kernels in the form in which package build puts them
// into graphs. Package kernels itself works with every binding of TensorFlow.
package kernelops

import (
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// Ops returns the operations that can replace functions of an export, as kernels.Ops.
func Ops() []build.Op {
	var ops []build.Op
	for _, op := range kernels.Ops() {
		ops = append(ops, of(op))
	}
	return ops
}

// MappedUpdate returns an update in mapped memory, as kernels.MappedUpdate.
func MappedUpdate(update build.Op, all bool) build.Op {
	return of(kernels.MappedUpdate(update.Name, all))
}

func of(op kernels.Op) build.Op {
	return build.Op{Name: op.Name, Implements: op.Implements, Inputs: args(op.Inputs), Outputs: args(op.Outputs)}
}

func args(of []kernels.Arg) []graphs.Arg {
	var out []graphs.Arg
	for _, a := range of {
		out = append(out, graphs.Arg{Name: a.Name, DType: dtpb.DataType(dtpb.DataType_value[a.DType])})
	}
	return out
}
