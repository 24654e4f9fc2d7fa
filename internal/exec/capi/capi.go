// Package capi has what the binding lacks of TensorFlow's C API: calls of sessions that are traced, and the
// definitions of operations. It makes the calls with the pointers that the binding holds.
package capi

// #include <stdlib.h>
// #include "tensorflow/c/c_api.h"
import "C"

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"unsafe"

	tf "github.com/wamuir/graft/tensorflow"
	sspb "github.com/wamuir/graft/tensorflow/core/framework/step_stats_go_proto"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"
)

// Traced is tf.Session.Run with a trace of the call (RunOptions.FULL_TRACE): which operations ran, on which
// device and when. It computes the same. Outputs of dtype string are not supported. The session must not be closed before
// it returns.
func Traced(s *tf.Session, feeds map[tf.Output]*tf.Tensor, fetches []tf.Output, targets []*tf.Operation) ([]*tf.Tensor, *sspb.StepStats, error) {
	session, err := pointer(s)
	if err != nil {
		return nil, nil, err
	}
	a, err := newArguments(feeds, fetches, targets)
	if err != nil {
		return nil, nil, err
	}
	options, err := proto.Marshal(&cpb.RunOptions{TraceLevel: cpb.RunOptions_FULL_TRACE})
	if err != nil {
		return nil, nil, err
	}
	said := C.CBytes(options)
	defer C.free(said)
	config := C.TF_NewBufferFromString(said, C.size_t(len(options)))
	defer C.TF_DeleteBuffer(config)
	metadata := C.TF_NewBuffer()
	defer C.TF_DeleteBuffer(metadata)
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	C.TF_SessionRun((*C.TF_Session)(session), config,
		unsafe.SliceData(a.inputs), unsafe.SliceData(a.values), C.int(len(a.inputs)),
		unsafe.SliceData(a.outputs), unsafe.SliceData(a.fetched), C.int(len(a.outputs)),
		unsafe.SliceData(a.targets), C.int(len(a.targets)), metadata, status)
	runtime.KeepAlive(s)
	runtime.KeepAlive(feeds)
	if C.TF_GetCode(status) != C.TF_OK {
		return nil, nil, errors.New(C.GoString(C.TF_Message(status)))
	}
	out, err := a.taken(fetches)
	if err != nil {
		return nil, nil, err
	}
	run := new(cpb.RunMetadata)
	if err := proto.Unmarshal(unsafe.Slice((*byte)(metadata.data), metadata.length), run); err != nil {
		return nil, nil, fmt.Errorf("trace of a call: %w", err)
	}
	return out, run.GetStepStats(), nil
}

// arguments are those of TF_SessionRun.
type arguments struct {
	inputs, outputs []C.TF_Output
	values, fetched []*C.TF_Tensor
	targets         []*C.TF_Operation
}

func newArguments(feeds map[tf.Output]*tf.Tensor, fetches []tf.Output, targets []*tf.Operation) (*arguments, error) {
	a := &arguments{fetched: make([]*C.TF_Tensor, len(fetches))}
	// TensorFlow looks for what it has prepared by the order of the feeds, and then by their names.
	order := slices.SortedFunc(maps.Keys(feeds), func(a, b tf.Output) int {
		return cmp.Or(cmp.Compare(a.Op.Name(), b.Op.Name()), a.Index-b.Index)
	})
	for _, to := range order {
		input, err := output(to)
		if err != nil {
			return nil, err
		}
		value, err := pointer(feeds[to])
		if err != nil {
			return nil, err
		}
		a.inputs, a.values = append(a.inputs, input), append(a.values, (*C.TF_Tensor)(value))
	}
	for _, from := range fetches {
		fetch, err := output(from)
		if err != nil {
			return nil, err
		}
		a.outputs = append(a.outputs, fetch)
	}
	for _, target := range targets {
		op, err := pointer(target)
		if err != nil {
			return nil, err
		}
		a.targets = append(a.targets, (*C.TF_Operation)(op))
	}
	return a, nil
}

// taken returns the fetched tensors as those of the binding, and frees TensorFlow's.
func (a *arguments) taken(fetches []tf.Output) ([]*tf.Tensor, error) {
	out := make([]*tf.Tensor, len(a.fetched))
	var failed error
	for i, t := range a.fetched {
		shape := make([]int64, C.TF_NumDims(t))
		for d := range shape {
			shape[d] = int64(C.TF_Dim(t, C.int(d)))
		}
		content := unsafe.Slice((*byte)(C.TF_TensorData(t)), C.TF_TensorByteSize(t))
		var err error
		if out[i], err = tf.ReadTensor(tf.DataType(C.TF_TensorType(t)), shape, bytes.NewReader(content)); err != nil {
			failed = cmp.Or(failed, fmt.Errorf("output %s:%d: %w", fetches[i].Op.Name(), fetches[i].Index, err))
		}
		C.TF_DeleteTensor(t)
	}
	return out, failed
}

func output(of tf.Output) (C.TF_Output, error) {
	op, err := pointer(of.Op)
	return C.TF_Output{oper: (*C.TF_Operation)(op), index: C.int(of.Index)}, err
}

// pointer returns TensorFlow's pointer in one of the binding's values.
func pointer(of any) (unsafe.Pointer, error) {
	field := reflect.ValueOf(of).Elem().FieldByName("c")
	if field.Kind() != reflect.Pointer || field.IsNil() {
		return nil, fmt.Errorf("a %T has no pointer of TensorFlow's; expected an open one of the binding that gorbit is built with", of)
	}
	return field.UnsafePointer(), nil
}
