package checkpoint

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/dtype"
)

// DTypeName returns TensorFlow's name of a type, such as "float32", "int64" or "string".
func DTypeName(t tf.DataType) string { return dtype.DType(t).String() }

// Entry describes one stored tensor.
type Entry struct {
	Name  string
	DType tf.DataType // 0 for a type of a safetensors file that TensorFlow lacks
	Shape []int64

	// The position of the tensor: Size bytes at Offset of data file number Shard (0 for
	// a safetensors file without an index). A tensor of a bundle that was saved in slices has no position
	// of its own; Slices is the number of its slices.
	Shard  int
	Offset int64
	Size   int64
	Slices int

	// CRC32C is the unmasked checksum of the bytes in the index of a bundle.
	CRC32C uint32

	// Later is for Manager.Restore alone: it leaves the value to Restored.Read.
	Later bool
}

// typeString formats the type and shape, for instance as float32[2,384].
func (e Entry) typeString() string { return DTypeName(e.DType) + shapeString(e.Shape) }

// String formats the entry, for instance as name float32[2,384].
func (e Entry) String() string { return plain(e.Name) + " " + e.typeString() }

// memory is what a tensor takes when it is read: numbers of less than 4 bytes become float32.
func (e Entry) memory() int64 {
	if n, ok := elements(e.Shape); ok && isFloat(e.DType) {
		return max(e.Size, 4*n)
	}
	return e.Size
}

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
