// Package gguf reads files of GGUF, the format in which llama.cpp keeps models: metadata, and tensors
// whose numbers are often quantized by blocks. Every length is checked before memory is taken for it.
// Sources: ggml, docs/gguf.md, ggml-common.h and ggml-quants.c.
package gguf

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// Magic is how a file begins.
const Magic = "GGUF"

const (
	defaultAlignment = 32
	mostAxes         = 4 // of a tensor, as in ggml
	// minKey and minTensor are the bytes that a value of the metadata and the description of a tensor
	// take at least.
	minKey    = 8 + 4 + 1
	minTensor = 8 + 4 + 4 + 8
)

// File is the header of a file, and where its tensors lie.
type File struct {
	// Keys are the names of Values in the order of the file.
	Keys []string
	// Values are the metadata: int64, float64, bool, string, or a list of one of these, such as []string.
	// A float32 is the float64 of its shortest decimal form, so that 1e-5 is 1e-5.
	Values map[string]any
	// Tensors are in the order of the file.
	Tensors []Tensor
}

// Tensor is a stored tensor.
type Tensor struct {
	Name string
	// Shape has the outermost axis first, the other way round than the file.
	Shape []int64
	Type  Type
	// Offset is where the tensor begins in the file, and Size the bytes that it takes.
	Offset, Size int64
}

// Error says where a file is not as the format demands.
type Error struct {
	Offset int64
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("offset %d: %s", e.Offset, e.Reason) }

// Is reports whether the target is the error's class, fault.Damaged.
func (e *Error) Is(target error) bool { return target == fault.Damaged }

// Looks reports whether a file begins as one of GGUF. One that cannot be read does not.
func Looks(path string) bool {
	f, err := vfs.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [len(Magic)]byte
	_, err = io.ReadFull(f, head[:])
	return err == nil && string(head[:]) == Magic
}

// Parse reads the header of a file of the given size.
func Parse(r io.ReaderAt, size int64) (*File, error) {
	p := &parser{in: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 1<<16), size: size}
	f := &File{Values: map[string]any{}}
	if err := f.parse(p); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) parse(p *parser) error {
	magic, err := p.bytes(uint64(len(Magic)))
	if err != nil {
		return err
	}
	if string(magic) != Magic {
		return p.fail("not a GGUF file: it begins with %q", magic)
	}
	version, err := p.uint32()
	switch {
	case err != nil:
		return err
	case bits.ReverseBytes32(version) < 1<<16 && version >= 1<<16:
		return p.fail("the file is big-endian; expected a little-endian one")
	case version != 2 && version != 3:
		return p.fail("version is %d; expected 2 or 3", version)
	}
	tensors, err := p.count(minTensor, "tensors")
	if err != nil {
		return err
	}
	keys, err := p.count(minKey, "values")
	if err != nil {
		return err
	}
	for range keys {
		if err := f.value(p); err != nil {
			return err
		}
	}
	for range tensors {
		t, err := p.tensor()
		if err != nil {
			return err
		}
		f.Tensors = append(f.Tensors, t)
	}
	return f.place(p)
}

// value reads a key of the metadata with its value.
func (f *File) value(p *parser) error {
	key, err := p.text()
	if err != nil {
		return err
	}
	if _, twice := f.Values[key]; twice {
		return p.fail("key %.64q is there twice", key)
	}
	kind, err := p.uint32()
	if err != nil {
		return err
	}
	if kind == kindList {
		f.Values[key], err = p.list()
	} else {
		f.Values[key], err = p.scalar(kind)
	}
	if err != nil {
		return fmt.Errorf("key %.64q: %w", key, err)
	}
	f.Keys = append(f.Keys, key)
	return nil
}

// place checks where the tensors lie, and makes their offsets those in the file.
func (f *File) place(p *parser) error {
	alignment := int64(defaultAlignment)
	if v, ok := f.Values["general.alignment"]; ok {
		if alignment, ok = v.(int64); !ok || alignment < 8 || alignment%8 != 0 || alignment > 1<<20 {
			return p.fail("general.alignment is %v; expected a multiple of 8", v)
		}
	}
	start := (p.at + alignment - 1) / alignment * alignment
	names := make(map[string]bool, len(f.Tensors))
	order := make([]*Tensor, len(f.Tensors))
	for i := range f.Tensors {
		t := &f.Tensors[i]
		order[i] = t
		if names[t.Name] {
			return p.fail("tensor %q is there twice", t.Name)
		}
		names[t.Name] = true
		if t.Offset%alignment != 0 || t.Offset > p.size-start || t.Size > p.size-start-t.Offset {
			return p.fail("tensor %q: %d bytes from %d of %d; expected them inside the file, from a multiple of %d",
				t.Name, t.Size, t.Offset, max(p.size-start, 0), alignment)
		}
		t.Offset += start
	}
	slices.SortFunc(order, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size))
	})
	for i, t := range order[min(1, len(order)):] {
		if before := order[i]; t.Offset < before.Offset+before.Size {
			return p.fail("tensors %q and %q share bytes", before.Name, t.Name)
		}
	}
	return nil
}

// parser reads numbers and texts from the beginning of a file.
type parser struct {
	in       *bufio.Reader
	at, size int64
}

func (p *parser) fail(format string, args ...any) error {
	return &Error{p.at, fmt.Sprintf(format, args...)}
}

// bytes reads n bytes, if there are so many.
func (p *parser) bytes(n uint64) ([]byte, error) {
	if n > uint64(p.size-p.at) {
		return nil, p.fail("%d bytes are expected, and the file has %d more", n, p.size-p.at)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(p.in, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, p.fail("the file ends here")
		}
		return nil, err
	}
	p.at += int64(n)
	return b, nil
}

func (p *parser) uint32() (uint32, error) {
	b, err := p.bytes(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (p *parser) uint64() (uint64, error) {
	b, err := p.bytes(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// count reads the number of things that take at least each bytes.
func (p *parser) count(each int64, what string) (int64, error) {
	n, err := p.uint64()
	if err != nil {
		return 0, err
	}
	if n > uint64((p.size-p.at)/each) {
		return 0, p.fail("%d %s in the %d bytes that the file has more", n, what, p.size-p.at)
	}
	return int64(n), nil
}

func (p *parser) text() (string, error) {
	n, err := p.uint64()
	if err != nil {
		return "", err
	}
	b, err := p.bytes(n)
	if err == nil && !utf8.Valid(b) {
		return "", p.fail("the text %.64q is not valid UTF-8", b)
	}
	return string(b), err
}

// The kinds of values that are not numbers.
const (
	kindBool   = 7
	kindString = 8
	kindList   = 9
)

// numbers are the kinds of numbers: the bytes that one takes, and how it is read.
var numbers = map[uint32]struct {
	size uint64
	read func([]byte) any
}{
	0:  {1, func(b []byte) any { return int64(b[0]) }},
	1:  {1, func(b []byte) any { return int64(int8(b[0])) }},
	2:  {2, func(b []byte) any { return int64(binary.LittleEndian.Uint16(b)) }},
	3:  {2, func(b []byte) any { return int64(int16(binary.LittleEndian.Uint16(b))) }},
	4:  {4, func(b []byte) any { return int64(binary.LittleEndian.Uint32(b)) }},
	5:  {4, func(b []byte) any { return int64(int32(binary.LittleEndian.Uint32(b))) }},
	6:  {4, func(b []byte) any { return shortest(math.Float32frombits(binary.LittleEndian.Uint32(b))) }},
	10: {8, func(b []byte) any { return int64(min(binary.LittleEndian.Uint64(b), math.MaxInt64)) }},
	11: {8, func(b []byte) any { return int64(binary.LittleEndian.Uint64(b)) }},
	12: {8, func(b []byte) any { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }},
}

// shortest returns the number that the shortest decimal form of v means.
func shortest(v float32) float64 {
	out, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
	if err != nil {
		return float64(v)
	}
	return out
}

// scalar reads a value that is no list.
func (p *parser) scalar(kind uint32) (any, error) {
	switch kind {
	case kindString:
		return p.text()
	case kindBool:
		b, err := p.bytes(1)
		if err != nil {
			return nil, err
		}
		if b[0] > 1 {
			return nil, p.fail("a bool is %d; expected 0 or 1", b[0])
		}
		return b[0] == 1, nil
	}
	number, ok := numbers[kind]
	if !ok {
		return nil, p.fail("a value of kind %d; expected 0 to 12", kind)
	}
	b, err := p.bytes(number.size)
	if err != nil {
		return nil, err
	}
	return number.read(b), nil
}

// list reads a list of values of one kind.
func (p *parser) list() (any, error) {
	kind, err := p.uint32()
	if err != nil {
		return nil, err
	}
	if kind == kindList {
		return nil, p.fail("a list of lists, which cannot be read")
	}
	each := int64(1)
	if kind == kindString {
		each = 8
	} else if number, ok := numbers[kind]; ok {
		each = int64(number.size)
	}
	n, err := p.count(each, "elements")
	if err != nil {
		return nil, err
	}
	switch kind {
	case kindString:
		return listOf[string](p, kind, n)
	case kindBool:
		return listOf[bool](p, kind, n)
	case 6, 12:
		return listOf[float64](p, kind, n)
	}
	return listOf[int64](p, kind, n)
}

func listOf[T any](p *parser, kind uint32, n int64) (any, error) {
	out := []T{}
	for range n {
		v, err := p.scalar(kind)
		if err != nil {
			return nil, err
		}
		out = append(out, v.(T))
	}
	return out, nil
}

// tensor reads the description of a tensor, whose offset is that in the data.
func (p *parser) tensor() (t Tensor, err error) {
	if t.Name, err = p.text(); err != nil {
		return t, err
	}
	axes, err := p.uint32()
	if err != nil {
		return t, err
	}
	if axes > mostAxes {
		return t, p.fail("tensor %.64q has %d axes; expected at most %d", t.Name, axes, mostAxes)
	}
	t.Shape = make([]int64, axes)
	elements := uint64(1)
	for i := range t.Shape {
		d, err := p.uint64()
		if err != nil {
			return t, err
		}
		hi, lo := bits.Mul64(elements, d)
		if d == 0 || hi != 0 || lo > math.MaxInt64/16 {
			return t, p.fail("tensor %.64q has an axis of %d; expected a shape that a file can have", t.Name, d)
		}
		elements = lo
		t.Shape[len(t.Shape)-1-i] = int64(d)
	}
	kind, err := p.uint32()
	if err != nil {
		return t, err
	}
	t.Type = Type(kind)
	layout, ok := layouts[t.Type]
	if !ok {
		return t, p.fail("tensor %.64q has type %d, which is not known", t.Name, kind)
	}
	if row := t.row(); row%layout.elements != 0 {
		return t, p.fail("tensor %.64q has rows of %d; expected a multiple of %d for type %s", t.Name, row, layout.elements, t.Type)
	}
	t.Size = int64(elements) / layout.elements * layout.bytes
	offset, err := p.uint64()
	if err != nil {
		return t, err
	}
	if offset > uint64(p.size) {
		return t, p.fail("tensor %.64q begins at %d, after the end of the file", t.Name, offset)
	}
	t.Offset = int64(offset)
	return t, nil
}

// row is the number of elements of the innermost axis.
func (t Tensor) row() int64 {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[len(t.Shape)-1]
}

// String returns the name of the type as ggml has it, such as Q4_1.
func (t Type) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Rows returns a reader of the tensor's numbers as the bytes of float32. order gives the row of the file
// that is the i-th of the reader; nil for the order of the file.
func (t Tensor) Rows(r io.ReaderAt, order func(i int64) int64) (io.Reader, error) {
	layout := layouts[t.Type]
	if layout.decode == nil {
		return nil, fmt.Errorf("type %s cannot be read; expected one of %s", t.Type, strings.Join(readable(), ", "))
	}
	if t.row()%layout.elements != 0 {
		return nil, fmt.Errorf("rows of %d numbers of type %s; expected a multiple of %d", t.row(), t.Type, layout.elements)
	}
	stored := t.row() / layout.elements * layout.bytes
	out := &rows{tensor: t, in: r, order: order, layout: layout, raw: make([]byte, stored), numbers: make([]float32, t.row())}
	out.count = t.Size / stored
	return out, nil
}

// rows reads a tensor row by row.
type rows struct {
	tensor      Tensor
	in          io.ReaderAt
	order       func(int64) int64
	layout      layout
	next, count int64
	raw         []byte
	numbers     []float32
	left        bytes.Buffer
}

// Read implements io.Reader.
func (r *rows) Read(p []byte) (int, error) {
	if r.left.Len() == 0 {
		if r.next == r.count {
			return 0, io.EOF
		}
		at := r.next
		if r.order != nil {
			at = r.order(at)
		}
		if n, err := r.in.ReadAt(r.raw, r.tensor.Offset+at*int64(len(r.raw))); n < len(r.raw) {
			return 0, fmt.Errorf("row %d: %w", at, err)
		}
		r.next++
		blocks := len(r.raw) / int(r.layout.bytes)
		for i := range blocks {
			b, e := int(r.layout.bytes), int(r.layout.elements)
			r.layout.decode(r.raw[i*b:(i+1)*b], r.numbers[i*e:(i+1)*e])
		}
		for _, v := range r.numbers {
			r.left.Write(binary.LittleEndian.AppendUint32(r.left.AvailableBuffer(), math.Float32bits(v)))
		}
	}
	return r.left.Read(p)
}
