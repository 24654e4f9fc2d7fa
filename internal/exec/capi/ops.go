package capi

// #include "tensorflow/c/c_api.h"
import "C"

import (
	"fmt"
	"unsafe"

	opb "github.com/wamuir/graft/tensorflow/core/framework/op_def_go_proto"
	"google.golang.org/protobuf/proto"
)

// Ops returns the definitions of all operations that are registered in this process, by name.
func Ops() (map[string]*opb.OpDef, error) {
	buffer := C.TF_GetAllOpList()
	defer C.TF_DeleteBuffer(buffer)
	list := new(opb.OpList)
	if err := proto.Unmarshal(unsafe.Slice((*byte)(buffer.data), buffer.length), list); err != nil {
		return nil, fmt.Errorf("list of TensorFlow's operations: %w", err)
	}
	out := make(map[string]*opb.OpDef, len(list.GetOp()))
	for _, op := range list.GetOp() {
		out[op.GetName()] = op
	}
	return out, nil
}
