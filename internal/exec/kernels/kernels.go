package kernels

// #cgo CFLAGS: -O3 -Wall
// #cgo LDFLAGS: -ltensorflow -ltensorflow_framework -lm -lpthread
// #if !__has_include("tensorflow/c/c_api.h")
// #error TensorFlow is not set up for Go: run "go run github.com/gorbit-ml/gorbit/cmd/gorbit-setup@latest", or in a checkout of gorbit "make setup" and "source .tf/env"
// #endif
// #include <stdbool.h>
// #include <stdlib.h>
// #include "tensorflow/c/tf_status.h"
// bool gorbit_use(const char* name);
// void gorbit_threads(int n, int update);
// void gorbit_running(int n);
// void gorbit_register(TF_Status* status);
// const char* gorbit_instructions(void);
// void gorbit_drop_all(void);
// bool gorbit_available(int op);
// const char* gorbit_op(int op, int kind, int i);
// void gorbit_int8_plain(bool plain);
// double gorbit_log_sum_exp(const float* x, long long n);
import "C"

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// Op is an operation. Package kernelops has the same for the binding of training.
type Op struct {
	// Name is the name of the operation, for example "GorbitGelu".
	Name string
	// Implements is the _implements attribute of the functions that it can replace, for example
	// "gorbit.gelu".
	Implements string
	// Inputs and Outputs are in the order of the function's.
	Inputs, Outputs []Arg
}

// Arg is an input or output of an operation.
type Arg struct {
	Name string
	// DType is the name of TensorFlow's type, such as "DT_FLOAT".
	DType string
}

// Squares is the operation that sums the squares of all elements of N float32
// tensors.
const Squares = "GorbitSquares"

// WithinSequences reports whether attention to a sequence's own tokens is among operations. Its cost depends
// on the lengths of the sequences, not on those of the rows that hold them.
func WithinSequences(ops []string) bool {
	return slices.ContainsFunc(ops, func(name string) bool {
		return strings.HasPrefix(name, "GorbitAttention") || strings.HasPrefix(name, "GorbitCausalAttention")
	})
}

// Mapped is the operation that takes a value, or a scalar for all elements, and a shape, and returns a
// tensor of them whose memory is that of a file in the folder of the attribute "folder". The file has no
// name; it is there until nothing uses the tensor, or the process ends.
const Mapped = "GorbitMapped"

// Operations on tensors whose memory is that of a file. They write into it whatever else uses the tensor,
// and have few of its pages in the memory of the process at once.
const (
	// StoreMapped sets such a tensor to a value, and AddMapped adds one to it. Both return the tensor.
	StoreMapped = "GorbitStoreMapped"
	AddMapped   = "GorbitAddMapped"
	// AverageMapped makes of an average keep times itself plus take times a value, with the roundings of
	// TensorFlow's operations for that. It returns nothing.
	AverageMapped = "GorbitAverageMapped"
)

// mapped ends the names of operations on mapped memory; of updates, those with whole before it have the
// variable and its gradient there, too, and the others its slots alone.
const mapped, whole = "Mapped", "Whole"

// narrow ends the names of operations on bfloat16 numbers.
const narrow = "Bf16"

// InstructionsVariable is the environment variable that sets the kernels' instruction set: avx512,
// avx2, neon or generic. Machines with different processors get the same rounding only if they use the
// same one.
const InstructionsVariable = "GORBIT_KERNELS"

// Register registers the operations with TensorFlow. Further calls do nothing.
func Register() error { return register() }

var register = sync.OnceValue(func() error {
	if err := Use(os.Getenv(InstructionsVariable)); err != nil {
		return fmt.Errorf("%s: %w", InstructionsVariable, err)
	}
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	C.gorbit_register(status)
	if C.TF_GetCode(status) != C.TF_OK {
		return fmt.Errorf("register kernels: %w", errors.New(C.GoString(C.TF_Message(status))))
	}
	return nil
})

// LogSumExp returns the logarithm of the sum of the exponentials of numbers, with an error of about 1e-7 of
// the sum. It is NaN if one of them is NaN or +Inf, and -Inf if there are none. Register must have been called.
func LogSumExp(x []float32) float64 {
	return float64(C.gorbit_log_sum_exp((*C.float)(unsafe.SliceData(x)), C.longlong(len(x))))
}

// Threads sets the number of threads that each kernel of this process may use from now on: n for
// most kernels, update for those of the update, which run one at a time with nothing else. 0 means
// one per core. Results do not depend on it.
func Threads(n, update int) { C.gorbit_threads(C.int(n), C.int(update)) }

// Run runs a graph that shares the cores with others that are run so: the kernels of each use an equal
// part of the threads that they may use, those of one alone all of them. Results do not depend on it.
func Run(run func() error) error {
	C.gorbit_running(1)
	defer C.gorbit_running(-1)
	return run()
}

// Use sets the kernels' instruction set; "" means the widest that the processor supports. It must
// not be called while kernels run.
func Use(instructions string) error {
	name := C.CString(instructions)
	defer C.free(unsafe.Pointer(name))
	if !C.gorbit_use(name) {
		return fmt.Errorf("this processor does not support instruction set %q; expected avx512, avx2, neon or generic", instructions)
	}
	return nil
}

// Instructions returns the instruction set of the kernels. They must be registered.
func Instructions() string { return C.GoString(C.gorbit_instructions()) }

// PlainInt8 sets whether products of int8 numbers do without the extensions of the instruction set that
// are for them, such as AVX512_VNNI. Results do not depend on it.
func PlainInt8(plain bool) { C.gorbit_int8_plain(C.bool(plain)) }

// Ops returns the operations that can replace functions of an export; those of updates only
// in releases of TensorFlow whose C API lets a kernel reach a variable.
func Ops() []Op {
	var ops []Op
	for i := 0; ; i++ {
		op, ok := operation(i)
		if !ok {
			return ops
		}
		if op.Name == Squares || strings.HasSuffix(op.Name, mapped) || !bool(C.gorbit_available(C.int(i))) {
			continue
		}
		op.Implements = "gorbit." + snake(strings.TrimSuffix(strings.TrimPrefix(op.Name, "Gorbit"), narrow))
		ops = append(ops, op)
	}
}

// MappedUpdate returns the operation that makes the same update as one of Ops, by its name, of slots in
// mapped memory or, if all is set, with the variable and its gradient in it as well. Its inputs are values
// in place of variables. It writes into their memory whatever else uses them, and has few of their pages in
// the memory of the process at once.
func MappedUpdate(update string, all bool) Op {
	name := update + mapped
	if all {
		name = update + whole + mapped
	}
	for i := 0; ; i++ {
		op, ok := operation(i)
		if !ok || op.Name == name {
			return op
		}
	}
}

// DropMapped takes the pages of all mapped memory out of the memory of the process. What it holds stays
// the same, and who uses it next reads it from the files, or from where the system has it.
func DropMapped() { C.gorbit_drop_all() }

// operation returns operation i; ok is false after the last one.
func operation(i int) (op Op, ok bool) {
	name := C.gorbit_op(C.int(i), 0, 0)
	if name == nil {
		return Op{}, false
	}
	return Op{Name: C.GoString(name), Inputs: args(i, 1), Outputs: args(i, 2)}, true
}

// args returns the inputs (1) or outputs (2) of an operation.
func args(op, kind int) []Arg {
	var out []Arg
	for i := 0; ; i++ {
		spec := C.gorbit_op(C.int(op), C.int(kind), C.int(i))
		if spec == nil {
			return out
		}
		name, dtype, _ := strings.Cut(C.GoString(spec), ": ")
		out = append(out, Arg{Name: name, DType: "DT_" + strings.ToUpper(dtype)})
	}
}

// snake converts "ResidualNorm" to "residual_norm".
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
