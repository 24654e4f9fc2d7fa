package shardinput

// #cgo LDFLAGS: -ltensorflow -ltensorflow_framework
// #include <stdint.h>
// #include "tensorflow/c/tf_status.h"
// void gorbit_input_register(TF_Status* status);
// void* gorbit_input_output(void* call, int i, int type, int64_t n);
// void gorbit_input_fail(void* call, const char* text, int64_t n);
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/dtype"
)

// Names of the operations.
const (
	Draw = "GorbitDraw"
	Take = "GorbitTake"
)

// TakeLayout is the output of Take with the layout.
const TakeLayout = 2

// takeOutputs are the outputs of Take with the values of a dtype.
var takeOutputs = map[dtype.DType]int{dtype.Int32: 0, dtype.Float32: 1, dtype.Int64: 3, dtype.Uint8: 4, dtype.Bool: 5}

// TakeOutput returns the output of Take with the values of a dtype.
func TakeOutput(name string) int { return takeOutputs[dtype.Of(name)] }

// here is the state shared by the operations of this process: TensorFlow cannot pass Go values to
// them.
var here host

// Serve sets the options of this process. It must be called before the first draw.
func Serve(o Options) {
	here.mu.Lock()
	defer here.mu.Unlock()
	here.options = o
}

// Register registers the operations with TensorFlow. Further calls do nothing.
func Register() error { return register() }

var register = sync.OnceValue(func() error {
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	C.gorbit_input_register(status)
	if C.TF_GetCode(status) != C.TF_OK {
		return fmt.Errorf("register local input: %w", errors.New(C.GoString(C.TF_Message(status))))
	}
	return nil
})

//export gorbitInputDraw
func gorbitInputDraw(call unsafe.Pointer, config *C.char, size C.int64_t, request *C.int64_t, n C.int64_t) {
	respond(call, func() error {
		numbers, rows, err := here.draw(view[byte](unsafe.Pointer(config), size), view[int64](unsafe.Pointer(request), n))
		if err != nil {
			return err
		}
		give(call, 0, tf.Int64, numbers)
		give(call, 1, tf.Int32, rows)
		return nil
	})
}

//export gorbitInputTake
func gorbitInputTake(call unsafe.Pointer, request *C.int64_t, n C.int64_t, place *C.int64_t, m C.int64_t) {
	respond(call, func() error {
		made, err := here.take(view[int64](unsafe.Pointer(request), n), view[int64](unsafe.Pointer(place), m))
		if err != nil {
			return err
		}
		give(call, TakeLayout, tf.Int64, made.layout)
		for kind, index := range takeOutputs {
			giveBytes(call, index, tf.DataType(kind), int(kind.Size()), made.values[kind.String()])
		}
		return nil
	})
}

// respond runs an operation. Errors and panics become the operation's error.
func respond(call unsafe.Pointer, do func() error) {
	var err error
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("local input: %v", p)
		}
		if err != nil {
			text := []byte(mark(err))
			C.gorbit_input_fail(call, (*C.char)(unsafe.Pointer(&text[0])), C.int64_t(len(text)))
		}
	}()
	err = do()
}

// view returns the memory of an input.
func view[T any](at unsafe.Pointer, n C.int64_t) []T {
	if at == nil || n <= 0 {
		return nil
	}
	return unsafe.Slice((*T)(at), int(n))
}

// give sets an output. If there is no memory for it, the call has already failed.
func give[T any](call unsafe.Pointer, i int, dtype tf.DataType, values []T) {
	at := C.gorbit_input_output(call, C.int(i), C.int(dtype), C.int64_t(len(values)))
	if at != nil {
		copy(unsafe.Slice((*T)(at), len(values)), values)
	}
}

// giveBytes sets an output to values of so many bytes each.
func giveBytes(call unsafe.Pointer, i int, dtype tf.DataType, size int, values []byte) {
	at := C.gorbit_input_output(call, C.int(i), C.int(dtype), C.int64_t(len(values)/size))
	if at != nil {
		copy(unsafe.Slice((*byte)(at), len(values)), values)
	}
}
