package kernels

// #cgo CFLAGS: -O3 -Wall
// #cgo LDFLAGS: -ltensorflow -ltensorflow_framework -lm -lpthread
// #include <stdlib.h>
// #include "tensorflow/c/tf_status.h"
// void gorbit_register(TF_Status* status);
// const char* gorbit_instructions(void);
// const char* gorbit_op(int op, int kind, int i);
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs"
)

// Squares is the operation that sums the squares of all elements of N float32
// tensors.
const Squares = "GorbitSquares"

// Register makes the operations known to TensorFlow. It may be called again.
func Register() error { return register() }

var register = sync.OnceValue(func() error {
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	C.gorbit_register(status)
	if C.TF_GetCode(status) != C.TF_OK {
		return fmt.Errorf("register kernels: %w", errors.New(C.GoString(C.TF_Message(status))))
	}
	return nil
})

// Instructions names the instruction set that the kernels use on this processor:
// avx512, avx2 or generic.
func Instructions() string { return C.GoString(C.gorbit_instructions()) }

// Ops lists the operations that stand for functions of an export.
func Ops() []graphs.Op {
	var ops []graphs.Op
	for i := 0; ; i++ {
		name := C.gorbit_op(C.int(i), 0, 0)
		if name == nil {
			return ops
		}
		op := graphs.Op{Name: C.GoString(name), Inputs: args(i, 1), Outputs: args(i, 2)}
		if op.Name == Squares {
			continue
		}
		op.Implements = "gorbit." + snake(strings.TrimPrefix(op.Name, "Gorbit"))
		ops = append(ops, op)
	}
}

// args returns the inputs (1) or outputs (2) of an operation.
func args(op, kind int) []graphs.Arg {
	var out []graphs.Arg
	for i := 0; ; i++ {
		spec := C.gorbit_op(C.int(op), C.int(kind), C.int(i))
		if spec == nil {
			return out
		}
		name, dtype, _ := strings.Cut(C.GoString(spec), ": ")
		out = append(out, graphs.Arg{Name: name, DType: dtpb.DataType(dtpb.DataType_value["DT_"+strings.ToUpper(dtype)])})
	}
}

// snake makes "residual_norm" of "ResidualNorm".
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}
