package checkpoint

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
)

// mostHeader is the safetensors format's limit for the size of the header.
const mostHeader = 100_000_000

// safeDTypes maps the format's types to TensorFlow's and to the bits of an element. Types
// that TensorFlow does not have are listed and checked, but not read.
var safeDTypes = map[string]struct {
	dtype tf.DataType
	bits  int64
}{
	"BOOL": {tf.Bool, 8},
	"U8":   {tf.Uint8, 8}, "I8": {tf.Int8, 8},
	"U16": {tf.Uint16, 16}, "I16": {tf.Int16, 16},
	"U32": {tf.Uint32, 32}, "I32": {tf.Int32, 32},
	"U64": {tf.Uint64, 64}, "I64": {tf.Int64, 64},
	"F16": {tf.Half, 16}, "BF16": {tf.Bfloat16, 16},
	"F32": {tf.Float, 32}, "F64": {tf.Double, 64},
	"C64":     {tf.Complex64, 64},
	"F8_E5M2": {0, 8}, "F8_E4M3": {0, 8}, "F8_E8M0": {0, 8},
	"F6_E2M3": {0, 6}, "F6_E3M2": {0, 6}, "F4": {0, 4},
}

// Safetensors is an opened safetensors file, or the files of an index. It is safe for concurrent use.
type Safetensors struct {
	path     string
	files    []vfs.File // of an index there may be several: see Entry.Shard
	entries  []Entry
	types    []string // the format's type of each entry
	byName   map[string]int
	metadata map[string]string
	sums     map[string]string // checksums by name; nil if there are none
}

// OpenSafetensors opens a safetensors file and checks its header: each tensor must be
// inside the file, have the size of its shape and type, and not overlap another. As the
// format requires, there must be no gaps between tensors. Of the index of a model in several files
// (model.safetensors.index.json) it opens these files.
func OpenSafetensors(path string) (*Safetensors, error) {
	if strings.HasSuffix(path, shardsSuffix) {
		return openShards(path)
	}
	f, err := vfs.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	s, err := newSafetensors(f, path)
	if err != nil {
		f.Close()
		return nil, err
	}
	s.files = []vfs.File{f}
	return s, nil
}

func newSafetensors(f vfs.File, path string) (*Safetensors, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open weights: %s is not a file", path)
	}
	return parseSafetensors(f, info.Size(), path)
}

// parseSafetensors reads the header of a file of the given size.
func parseSafetensors(r io.ReaderAt, size int64, path string) (*Safetensors, error) {
	s := &Safetensors{path: path, byName: map[string]int{}}
	corrupt := func(offset int64, tensor, format string, args ...any) error {
		return &CorruptError{Path: path, Tensor: tensor, Offset: offset, Reason: fmt.Sprintf(format, args...)}
	}
	var length [8]byte
	if n, err := r.ReadAt(length[:], 0); n < len(length) {
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return nil, corrupt(0, "", "the file has %d bytes, which are too few for a safetensors file", size)
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > mostHeader:
		return nil, corrupt(0, "", "not a safetensors file: header has %d bytes; expected at most %d", n, mostHeader)
	case n > uint64(size-8):
		return nil, corrupt(0, "", "header has %d bytes in a file of %d", n, size)
	}
	header := make([]byte, n)
	if _, err := r.ReadAt(header, 8); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: header: %w", path, err)
	}
	if !bytes.HasPrefix(header, []byte("{")) {
		return nil, corrupt(8, "", "not a safetensors file: the header is not JSON")
	}
	if err := s.parseHeader(header); err != nil {
		return nil, corrupt(8, "", "header: %v", err)
	}
	if err := s.readSums(); err != nil {
		return nil, corrupt(8, "", "header: %v", err)
	}
	start := 8 + int64(n)
	order := make([]int, len(s.entries))
	for i := range s.entries {
		e := &s.entries[i]
		order[i] = i
		if e.Offset < 0 || e.Size < 0 || e.Offset > size-start || e.Size > size-start-e.Offset {
			return nil, corrupt(8, e.Name, "bytes %d to %d of %d", e.Offset, e.Offset+e.Size, size-start)
		}
		elems, ok := elements(e.Shape)
		if !ok {
			return nil, corrupt(8, e.Name, "bad shape %s", shapeString(e.Shape))
		}
		if d, ok := safeDTypes[s.types[i]]; ok && (elems*d.bits+7)/8 != e.Size {
			return nil, corrupt(8, e.Name, "%s%s takes %d bytes, stored are %d",
				s.types[i], shapeString(e.Shape), (elems*d.bits+7)/8, e.Size)
		}
		e.Offset += start
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := s.entries[i], s.entries[j]
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size))
	})
	at := start
	for _, i := range order {
		e := s.entries[i]
		if e.Offset != at {
			return nil, corrupt(e.Offset, e.Name, "the tensor begins at %d; expected %d, the end of the previous one", e.Offset, at)
		}
		at += e.Size
	}
	if at != size {
		return nil, corrupt(at, "", "%d bytes belong to no tensor", size-at)
	}
	return s, nil
}

// parseHeader reads the JSON object of tensors, in file order.
func (s *Safetensors) parseHeader(header []byte) error {
	dec := json.NewDecoder(bytes.NewReader(header))
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		if name == "__metadata__" {
			if s.metadata != nil {
				return errors.New("metadata is declared twice")
			}
			if err := dec.Decode(&s.metadata); err != nil {
				return fmt.Errorf("metadata: %w", err)
			}
			continue
		}
		var t struct {
			DType   string  `json:"dtype"`
			Shape   []int64 `json:"shape"`
			Offsets []int64 `json:"data_offsets"`
		}
		if err := dec.Decode(&t); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		if _, twice := s.byName[name]; twice {
			return fmt.Errorf("tensor %q is declared twice", name)
		}
		if len(t.Offsets) != 2 || t.Offsets[1] < t.Offsets[0] || t.Offsets[0] < 0 || t.DType == "" || t.Shape == nil {
			return fmt.Errorf("tensor %q has no valid type, shape or position", name)
		}
		s.byName[name] = len(s.entries)
		s.types = append(s.types, t.DType)
		s.entries = append(s.entries, Entry{
			Name: name, DType: safeDTypes[t.DType].dtype, Shape: t.Shape,
			Offset: t.Offsets[0], Size: t.Offsets[1] - t.Offsets[0],
		})
	}
	if _, err := dec.Token(); err != nil {
		return err
	}
	if rest := header[dec.InputOffset():]; len(bytes.TrimSpace(rest)) > 0 {
		return errors.New("text after the object of tensors")
	}
	return nil
}

// Path returns the file's path; it is part of [Source].
func (s *Safetensors) Path() string { return s.path }

// Entries lists the tensors in the order of the header; it is part of [Source]. The caller
// must not change it.
func (s *Safetensors) Entries() []Entry { return s.entries }

// Metadata returns the free-form strings of the header, such as "format": "pt", for callers
// who must know which library wrote the file. Checksums are left out.
func (s *Safetensors) Metadata() map[string]string { return s.metadata }

// FormatType returns the format's name of a tensor's type, such as "F8_E4M3", which TensorFlow need
// not have; "" if there is no such tensor.
func (s *Safetensors) FormatType(name string) string {
	i, ok := s.byName[name]
	if !ok {
		return ""
	}
	return s.types[i]
}

// Resolve finds a tensor by its name, or by PyTorch's current name for a tensor stored as
// in BERT's first releases: gamma for weight, beta for bias.
func (s *Safetensors) Resolve(name string) (string, bool) {
	if _, ok := s.byName[name]; ok {
		return name, true
	}
	for now, once := range map[string]string{".weight": ".gamma", ".bias": ".beta"} {
		if stem, ok := strings.CutSuffix(name, now); ok {
			if _, ok := s.byName[stem+once]; ok {
				return stem + once, true
			}
		}
	}
	return "", false
}

// Close closes the files.
func (s *Safetensors) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Read reads tensors, or all tensors if no name is given. F16 and BF16 are converted to
// float32, exactly; other types do not change.
func (s *Safetensors) Read(ctx context.Context, names ...string) (map[string]*tf.Tensor, error) {
	if len(names) == 0 {
		for _, e := range s.entries {
			names = append(names, e.Name)
		}
	}
	out := make(map[string]*tf.Tensor, len(names))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", s.path, err)
		}
		t, err := s.tensor(name)
		if err != nil {
			return nil, err
		}
		out[name] = t
	}
	return out, nil
}

func (s *Safetensors) find(name string) (int, error) {
	key, ok := s.Resolve(name)
	if !ok {
		return 0, &MismatchError{Path: s.path, Missing: []string{name}}
	}
	return s.byName[key], nil
}

func (s *Safetensors) tensor(name string) (*tf.Tensor, error) {
	i, err := s.find(name)
	if err != nil {
		return nil, err
	}
	e := s.entries[i]
	var t *tf.Tensor
	section, check := s.section(i)
	switch e.DType {
	case tf.Float, tf.Double, tf.Int64, tf.Int32, tf.Int16, tf.Uint16, tf.Int8, tf.Uint8:
		t, err = tf.ReadTensor(e.DType, e.Shape, section)
	case tf.Bool:
		// Any byte other than 0 and 1 would be undefined behaviour in TensorFlow.
		t, err = tf.ReadTensor(e.DType, e.Shape, boolReader{section})
	case tf.Half, tf.Bfloat16:
		t, err = tf.ReadTensor(tf.Float, e.Shape, &widener{in: bufio.NewReaderSize(section, 1<<16), half: e.DType == tf.Half})
	default:
		return nil, fmt.Errorf("%s: tensor %q has type %s, which cannot be read", s.path, name, s.types[i])
	}
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %q: %w", s.path, name, err)
	}
	return t, check()
}

// Float32 reads a tensor of real numbers of any type as float32, in row-major order.
// Values are rounded to the nearest float32. It is for callers who compute with the values
// in Go, and the only way to read U32 and U64.
func (s *Safetensors) Float32(name string) ([]float32, []int64, error) {
	i, err := s.find(name)
	if err != nil {
		return nil, nil, err
	}
	e := s.entries[i]
	value, width := scalarReader(e.DType)
	if value == nil {
		return nil, nil, fmt.Errorf("%s: tensor %q has type %s, which is not a real number", s.path, name, s.types[i])
	}
	out := make([]float32, e.Size/width)
	section, check := s.section(i)
	r := bufio.NewReaderSize(section, 1<<16)
	var b [8]byte
	for k := range out {
		if _, err := io.ReadFull(r, b[:width]); err != nil {
			return nil, nil, fmt.Errorf("%s: tensor %q: %w", s.path, name, err)
		}
		out[k] = value(b[:])
	}
	if err := check(); err != nil {
		return nil, nil, err
	}
	return out, e.Shape, nil
}

// scalarReader returns the function that reads an element of a type as float32, and the
// element's size in bytes.
func scalarReader(t tf.DataType) (value func([]byte) float32, width int64) {
	le := binary.LittleEndian
	switch t {
	case tf.Float:
		return func(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) }, 4
	case tf.Double:
		return func(b []byte) float32 { return float32(math.Float64frombits(le.Uint64(b))) }, 8
	case tf.Half:
		return func(b []byte) float32 { return dtype.FromHalf(le.Uint16(b)) }, 2
	case tf.Bfloat16:
		return func(b []byte) float32 { return math.Float32frombits(uint32(le.Uint16(b)) << 16) }, 2
	case tf.Int64:
		return func(b []byte) float32 { return float32(int64(le.Uint64(b))) }, 8
	case tf.Uint64:
		return func(b []byte) float32 { return float32(le.Uint64(b)) }, 8
	case tf.Int32:
		return func(b []byte) float32 { return float32(int32(le.Uint32(b))) }, 4
	case tf.Uint32:
		return func(b []byte) float32 { return float32(le.Uint32(b)) }, 4
	case tf.Int16:
		return func(b []byte) float32 { return float32(int16(le.Uint16(b))) }, 2
	case tf.Uint16:
		return func(b []byte) float32 { return float32(le.Uint16(b)) }, 2
	case tf.Int8:
		return func(b []byte) float32 { return float32(int8(b[0])) }, 1
	case tf.Uint8:
		return func(b []byte) float32 { return float32(b[0]) }, 1
	case tf.Bool:
		return func(b []byte) float32 { return float32(min(b[0], 1)) }, 1
	}
	return nil, 0
}

// widener reads 16-bit floating-point numbers and returns the bytes of float32 numbers.
type widener struct {
	in   *bufio.Reader
	half bool
}

func (w *widener) Read(p []byte) (int, error) {
	if len(p) < 4 {
		return 0, io.ErrShortBuffer
	}
	n := 0
	for ; n+4 <= len(p); n += 4 {
		var b [2]byte
		if _, err := io.ReadFull(w.in, b[:]); err != nil {
			if n > 0 {
				err = nil
			}
			return n, err
		}
		h := binary.LittleEndian.Uint16(b[:])
		bits := uint32(h) << 16
		if w.half {
			bits = math.Float32bits(dtype.FromHalf(h))
		}
		binary.LittleEndian.PutUint32(p[n:], bits)
	}
	return n, nil
}

// boolReader returns every nonzero byte as one.
type boolReader struct{ in io.Reader }

func (r boolReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	for i := range p[:n] {
		p[i] = min(p[i], 1)
	}
	return n, err
}
