// Package dtype has the types of elements that TensorFlow knows: one table of their numbers, names and
// sizes. It does not depend on TensorFlow; each of its bindings has types with the same numbers.
package dtype

import "fmt"

// DType is the number of a type in TensorFlow's types.proto
// (tensorflow/core/framework/types.proto). A binding's own type is converted to and from it.
type DType int32

// The types that features and variables have.
const (
	Float32  DType = 1
	Float64  DType = 2
	Int32    DType = 3
	Uint8    DType = 4
	Int64    DType = 9
	Bool     DType = 10
	Bfloat16 DType = 14
	Float16  DType = 19
	// Resource and Variant are handles and values of TensorFlow's own; the bindings have no names for
	// them.
	Resource DType = 20
	Variant  DType = 21
)

// known are the names, as tf.DType.name has them, and the bytes of an element: 0 where elements differ
// in size.
var known = map[DType]struct {
	name string
	size int64
}{
	Float32:  {"float32", 4},
	Float64:  {"float64", 8},
	Int32:    {"int32", 4},
	Uint8:    {"uint8", 1},
	5:        {"int16", 2},
	6:        {"int8", 1},
	7:        {"string", 0},
	8:        {"complex64", 8},
	Int64:    {"int64", 8},
	Bool:     {"bool", 1},
	11:       {"qint8", 1},
	12:       {"quint8", 1},
	13:       {"qint32", 4},
	Bfloat16: {"bfloat16", 2},
	15:       {"qint16", 2},
	16:       {"quint16", 2},
	17:       {"uint16", 2},
	18:       {"complex128", 16},
	Float16:  {"float16", 2},
	Resource: {"resource", 0},
	Variant:  {"variant", 0},
	22:       {"uint32", 4},
	23:       {"uint64", 8},
	24:       {"float8_e5m2", 1},
	25:       {"float8_e4m3fn", 1},
	29:       {"int4", 1},
	30:       {"uint4", 1},
}

var byName = func() map[string]DType {
	m := make(map[string]DType, len(known))
	for t, k := range known {
		m[k.name] = t
	}
	return m
}()

// Of returns the type with a name, or 0 if there is none.
func Of(name string) DType { return byName[name] }

// String returns the name, such as "float32", or the number of a type that is not known.
func (t DType) String() string {
	if k, ok := known[t]; ok {
		return k.name
	}
	return fmt.Sprintf("dtype(%d)", int32(t))
}

// Known returns whether the type is one of the table.
func (t DType) Known() bool { _, ok := known[t]; return ok }

// Size returns the bytes of an element, or 0 where elements differ in size or the type is not known.
func (t DType) Size() int64 { return known[t].size }
