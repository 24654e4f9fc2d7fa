package strategy

import (
	"bytes"
	"fmt"
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

// floats returns the values of a numeric tensor as float64, flat.
func floats(t *tf.Tensor) ([]float64, error) {
	n := int64(1)
	for _, d := range t.Shape() {
		n *= d
	}
	out := make([]float64, 0, n)
	return flatten(out, t.Value())
}

func flatten(out []float64, v any) ([]float64, error) {
	switch v := v.(type) {
	case float32:
		return append(out, float64(v)), nil
	case []float32:
		for _, x := range v {
			out = append(out, float64(x))
		}
		return out, nil
	case [][]float32:
		for _, x := range v {
			out, _ = flatten(out, x)
		}
		return out, nil
	case float64:
		return append(out, v), nil
	case int64:
		return append(out, float64(v)), nil
	case []int64:
		for _, x := range v {
			out = append(out, float64(x))
		}
		return out, nil
	case []bool:
		for _, x := range v {
			out, _ = flatten(out, x)
		}
		return out, nil
	case bool:
		if v {
			return append(out, 1), nil
		}
		return append(out, 0), nil
	}
	return nil, fmt.Errorf("value is a %T; expected a number, a vector or a matrix", v)
}
