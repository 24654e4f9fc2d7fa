package checkpoint

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"
)

// variant is DT_VARIANT of TensorFlow's types.proto, for which the binding has no name.
// Bundles may contain such tensors; they are listed and verified but not read.
const variant tf.DataType = 21

// dtypes holds TensorFlow's names of the types that a bundle may contain, and the bytes
// of one element in a data file: 0 if elements differ in size.
var dtypes = map[tf.DataType]struct {
	name string
	size int64
}{
	tf.Float:        {"float32", 4},
	tf.Double:       {"float64", 8},
	tf.Int32:        {"int32", 4},
	tf.Uint8:        {"uint8", 1},
	tf.Int16:        {"int16", 2},
	tf.Int8:         {"int8", 1},
	tf.String:       {"string", 0},
	tf.Complex64:    {"complex64", 8},
	tf.Int64:        {"int64", 8},
	tf.Bool:         {"bool", 1},
	tf.Qint8:        {"qint8", 1},
	tf.Quint8:       {"quint8", 1},
	tf.Qint32:       {"qint32", 4},
	tf.Bfloat16:     {"bfloat16", 2},
	tf.Qint16:       {"qint16", 2},
	tf.Quint16:      {"quint16", 2},
	tf.Uint16:       {"uint16", 2},
	tf.Complex128:   {"complex128", 16},
	tf.Half:         {"float16", 2},
	variant:         {"variant", 0},
	tf.Uint32:       {"uint32", 4},
	tf.Uint64:       {"uint64", 8},
	tf.Float8e5m2:   {"float8_e5m2", 1},
	tf.Float8e4m3fn: {"float8_e4m3fn", 1},
	tf.Int4:         {"int4", 1},
	tf.Uint4:        {"uint4", 1},
}

// DTypeName returns TensorFlow's name of a type, such as "float32", "int64" or "string".
func DTypeName(t tf.DataType) string {
	if d, ok := dtypes[t]; ok {
		return d.name
	}
	return fmt.Sprintf("dtype(%d)", int(t))
}

// Entry describes one stored tensor.
type Entry struct {
	Name  string
	DType tf.DataType // 0 for a type of a safetensors file that TensorFlow lacks
	Shape []int64

	// The position of the tensor: Size bytes at Offset of data file number Shard (0 for
	// a safetensors file). A tensor of a bundle that was saved in slices has no position
	// of its own; Slices is the number of its slices.
	Shard  int
	Offset int64
	Size   int64
	Slices int

	// CRC32C is the unmasked checksum of the bytes in the index of a bundle.
	CRC32C uint32
}

// typeString formats the type and shape, for instance as float32[2,384].
func (e Entry) typeString() string { return DTypeName(e.DType) + shapeString(e.Shape) }

// String formats the entry, for instance as name float32[2,384].
func (e Entry) String() string { return plain(e.Name) + " " + e.typeString() }

func shapeString(shape []int64) string {
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ",")
}

// elements returns the number of elements of a shape, or false for a negative dimension
// or a number that is too large for any file.
func elements(shape []int64) (int64, bool) {
	n, zero := uint64(1), false
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > math.MaxInt64/16 {
			return 0, false
		}
		n = lo
	}
	if zero {
		return 0, true
	}
	return int64(n), true
}
