package dataset

import "unsafe"

// DType is the type of a feature's values, by the name that TensorFlow and the contract of an
// export give it.
type DType string

// The types of values.
const (
	Uint8   DType = "uint8"
	Int32   DType = "int32"
	Int64   DType = "int64"
	Float32 DType = "float32"
	Bool    DType = "bool"
)

// Size returns the bytes of a value, and 0 for an unknown type.
func (d DType) Size() int {
	switch d {
	case Uint8, Bool:
		return 1
	case Int32, Float32:
		return 4
	case Int64:
		return 8
	}
	return 0
}

// Feature is a named tensor. Exactly one of the slices is set; it is flat, in row-major order.
type Feature struct {
	Name    string
	Shape   []int
	Int32   []int32
	Float32 []float32
	Int64   []int64
	Uint8   []uint8
	Bool    []bool
}

// DType returns the type of the slice that is set, and "" if none is. A slice of no values is set
// unless it is nil.
func (f *Feature) DType() DType {
	switch {
	case f.Int32 != nil:
		return Int32
	case f.Float32 != nil:
		return Float32
	case f.Int64 != nil:
		return Int64
	case f.Uint8 != nil:
		return Uint8
	case f.Bool != nil:
		return Bool
	}
	return ""
}

// Dims returns the shape as bindings of TensorFlow take it.
func (f *Feature) Dims() []int64 {
	dims := make([]int64, len(f.Shape))
	for i, d := range f.Shape {
		dims[i] = int64(d)
	}
	return dims
}

// Len returns the number of values.
func (f *Feature) Len() int {
	return len(f.Int32) + len(f.Float32) + len(f.Int64) + len(f.Uint8) + len(f.Bool)
}

// Size returns the number of values that the shape says.
func (f *Feature) Size() int {
	n := 1
	for _, d := range f.Shape {
		n *= d
	}
	return n
}

// Part returns the feature of the examples from one number up to another, which shares its memory. The
// first axis must be the examples.
func (f *Feature) Part(from, to int) Feature {
	each := 1
	for _, d := range f.Shape[1:] {
		each *= d
	}
	p := Feature{Name: f.Name, Shape: append([]int{to - from}, f.Shape[1:]...)}
	from, to = from*each, to*each
	switch f.DType() {
	case Int32:
		p.Int32 = f.Int32[from:to:to]
	case Float32:
		p.Float32 = f.Float32[from:to:to]
	case Int64:
		p.Int64 = f.Int64[from:to:to]
	case Uint8:
		p.Uint8 = f.Uint8[from:to:to]
	case Bool:
		p.Bool = f.Bool[from:to:to]
	}
	return p
}

// Raw returns the memory of the values, which the feature and the result share. Numbers have the
// byte order of the machine, and a bool is one byte, 0 or 1.
func (f *Feature) Raw() []byte {
	switch f.DType() {
	case Int32:
		return raw(f.Int32)
	case Float32:
		return raw(f.Float32)
	case Int64:
		return raw(f.Int64)
	case Uint8:
		return f.Uint8
	case Bool:
		return raw(f.Bool)
	}
	return nil
}

func raw[T any](values []T) []byte {
	if len(values) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), len(values)*int(unsafe.Sizeof(values[0])))
}
