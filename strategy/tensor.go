package strategy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	tf "github.com/wamuir/graft/tensorflow"
)

// raw returns the memory of a slice of numbers.
func raw[T int32 | int64 | float32](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

// newTensor copies the concatenated parts into a tensor.
func newTensor(dtype tf.DataType, shape []int64, parts ...[]byte) (*tf.Tensor, error) {
	if len(parts) == 1 {
		return tf.ReadTensor(dtype, shape, bytes.NewReader(parts[0]))
	}
	return tf.ReadTensor(dtype, shape, &chain{parts: parts})
}

// chain reads byte slices one after the other.
type chain struct{ parts [][]byte }

func (c *chain) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) && len(c.parts) > 0 {
		k := copy(p[n:], c.parts[0])
		n += k
		if c.parts[0] = c.parts[0][k:]; len(c.parts[0]) == 0 {
			c.parts = c.parts[1:]
		}
	}
	return n, nil
}

// floats returns the values of a numeric tensor of any shape as float64, flat.
func floats(t *tf.Tensor) ([]float64, error) {
	var b bytes.Buffer
	switch t.DataType() {
	case tf.Float, tf.Double, tf.Int32, tf.Int64, tf.Uint8, tf.Bool:
		if _, err := t.WriteContentsTo(&b); err != nil {
			return nil, err
		}
	}
	data := b.Bytes()
	switch t.DataType() {
	case tf.Float:
		return decode(data, 4, func(b []byte) float64 { return float64(math.Float32frombits(binary.NativeEndian.Uint32(b))) }), nil
	case tf.Double:
		return decode(data, 8, func(b []byte) float64 { return math.Float64frombits(binary.NativeEndian.Uint64(b)) }), nil
	case tf.Int32:
		return decode(data, 4, func(b []byte) float64 { return float64(int32(binary.NativeEndian.Uint32(b))) }), nil
	case tf.Int64:
		return decode(data, 8, func(b []byte) float64 { return float64(int64(binary.NativeEndian.Uint64(b))) }), nil
	case tf.Uint8, tf.Bool:
		return decode(data, 1, func(b []byte) float64 { return float64(b[0]) }), nil
	}
	return nil, fmt.Errorf("value is a %T; expected float32, float64, int32, int64, uint8 or bool", t.Value())
}

// Float32s returns the elements of a float32 tensor.
func Float32s(t *tf.Tensor) ([]float32, error) {
	if t.DataType() != tf.Float {
		return nil, fmt.Errorf("dtype is %d; expected float32", t.DataType())
	}
	var content bytes.Buffer
	if _, err := t.WriteContentsTo(&content); err != nil {
		return nil, err
	}
	out := make([]float32, content.Len()/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.NativeEndian.Uint32(content.Bytes()[4*i:]))
	}
	return out, nil
}

// decode returns values of so many bytes each.
func decode(data []byte, size int, value func([]byte) float64) []float64 {
	out := make([]float64, len(data)/size)
	for i := range out {
		out[i] = value(data[i*size:])
	}
	return out
}
