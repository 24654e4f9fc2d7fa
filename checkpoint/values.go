package checkpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/crc32c"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Values reads the numbers of a stored tensor one after the other, as float64, without TensorFlow and
// without holding the tensor in memory. The checksum of a tensor of a bundle is verified when its last
// number has been read.
type Values struct {
	ctx     context.Context
	path    string
	entry   Entry
	closing func() error
	section io.Reader
	decode  func([]byte) float64
	width   int64
	left    int64
	raw     []byte
	sum     uint32
	checked bool // whether the entry has a checksum
	damage  func(error) error
}

// Numeric reports whether Values can read the tensor: a real number of a type that TensorFlow has, not
// saved in slices.
func (e Entry) Numeric() bool {
	decode, _ := numberReader(e.DType, binary.LittleEndian)
	return decode != nil && e.Slices == 0
}

// OpenValues opens the numbers of an entry of a source.
func OpenValues(ctx context.Context, src Source, e Entry) (*Values, error) {
	if !e.Numeric() {
		return nil, fmt.Errorf("%s: tensor %s cannot be read number by number", src.Path(), e)
	}
	v := &Values{ctx: ctx, entry: e}
	var order binary.ByteOrder = binary.LittleEndian
	switch s := src.(type) {
	case *Bundle:
		v.path, order, v.checked = s.dataPath(e.Shard), s.order, true
		if err := s.eachStored([]Entry{e}, func(vfs.File, Entry) error { return nil }); err != nil {
			return nil, err
		}
		f, err := vfs.Open(v.path)
		if err != nil {
			return nil, err
		}
		v.closing, v.section = f.Close, io.NewSectionReader(f, e.Offset, e.Size)
		v.damage = func(err error) error { return s.damage(e, err) }
	case *Safetensors:
		v.path, v.closing = s.path, func() error { return nil }
		v.section = io.NewSectionReader(s.files[e.Shard], e.Offset, e.Size)
		v.damage = func(err error) error { return fmt.Errorf("%s: tensor %q: %w", s.path, e.Name, err) }
	case *GGUF:
		in, err := s.numbers(s.byName[e.Name])
		if err != nil {
			return nil, fmt.Errorf("%s: tensor %q: %w", s.path, e.Name, err)
		}
		v.path, v.section, v.closing = s.path, in, func() error { return nil }
		v.damage = func(err error) error { return fmt.Errorf("%s: tensor %q: %w", s.path, e.Name, err) }
		n, _ := elements(e.Shape)
		e.Size = 4 * n // of the float32 that it is read as
	default:
		return nil, fmt.Errorf("%s: a %T cannot be read number by number", src.Path(), src)
	}
	v.decode, v.width = numberReader(e.DType, order)
	v.left = e.Size / v.width
	return v, nil
}

// Next fills out with the next numbers and returns how many there are; io.EOF after the last one.
func (v *Values) Next(out []float64) (int, error) {
	if err := v.ctx.Err(); err != nil {
		return 0, err
	}
	n := min(int64(len(out)), v.left)
	if n == 0 {
		return 0, io.EOF
	}
	if int64(cap(v.raw)) < n*v.width {
		v.raw = make([]byte, n*v.width)
	}
	raw := v.raw[:n*v.width]
	if _, err := io.ReadFull(v.section, raw); err != nil {
		return 0, v.damage(err)
	}
	v.sum = crc32.Update(v.sum, crc32c.Table, raw)
	for i := range n {
		out[i] = v.decode(raw[i*v.width:])
	}
	if v.left -= n; v.left == 0 && v.checked && v.sum != v.entry.CRC32C {
		return 0, v.damage(fmt.Errorf("checksum is %08x, the index says %08x", v.sum, v.entry.CRC32C))
	}
	return int(n), nil
}

// Close closes the file.
func (v *Values) Close() error { return v.closing() }

// numberReader returns the function that reads an element of a type as float64, and the element's size
// in bytes; nil for types that are no real numbers. Integers beyond 2^53 are rounded.
func numberReader(t tf.DataType, order binary.ByteOrder) (decode func([]byte) float64, width int64) {
	switch t {
	case tf.Float:
		return func(b []byte) float64 { return float64(math.Float32frombits(order.Uint32(b))) }, 4
	case tf.Double:
		return func(b []byte) float64 { return math.Float64frombits(order.Uint64(b)) }, 8
	case tf.Half:
		return func(b []byte) float64 { return float64(dtype.FromHalf(order.Uint16(b))) }, 2
	case tf.Bfloat16:
		return func(b []byte) float64 { return float64(math.Float32frombits(uint32(order.Uint16(b)) << 16)) }, 2
	case tf.Int64:
		return func(b []byte) float64 { return float64(int64(order.Uint64(b))) }, 8
	case tf.Uint64:
		return func(b []byte) float64 { return float64(order.Uint64(b)) }, 8
	case tf.Int32:
		return func(b []byte) float64 { return float64(int32(order.Uint32(b))) }, 4
	case tf.Uint32:
		return func(b []byte) float64 { return float64(order.Uint32(b)) }, 4
	case tf.Int16:
		return func(b []byte) float64 { return float64(int16(order.Uint16(b))) }, 2
	case tf.Uint16:
		return func(b []byte) float64 { return float64(order.Uint16(b)) }, 2
	case tf.Int8:
		return func(b []byte) float64 { return float64(int8(b[0])) }, 1
	case tf.Uint8:
		return func(b []byte) float64 { return float64(b[0]) }, 1
	case tf.Bool:
		return func(b []byte) float64 { return float64(min(b[0], 1)) }, 1
	}
	return nil, 0
}
