package table

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// maxNPZ is the most bytes of an archive of arrays, which is read into memory: its list is at its end.
const maxNPZ = 2 << 30

// npzRows are the arrays of NumPy's .npz, a row for each index of their first axes. Rows are JSON objects
// of the selected arrays, whose elements are numbers, texts, or arrays of them.
type npzRows struct {
	jsonRows
	files []*zip.File
	begun bool
	read  []*npyReader // of the selected arrays
	count int64        // rows
	at    int64        // rows read
	row   []byte
}

func newNPZRows(in io.Reader, path string) (*npzRows, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxNPZ+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(data) > maxNPZ {
		return nil, fault.Usagef("%s has more than %d bytes; expected several files for the split", path, int64(maxNPZ))
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fault.Usagef("%s is no archive of arrays, as numpy.savez writes (%v)", path, err)
	}
	return &npzRows{jsonRows: jsonRows{lines: lines{path: path}}, files: archive.File}, nil
}

// begin opens the arrays that are selected.
func (r *npzRows) begin() error {
	r.begun = true
	var names []string
	for _, f := range r.files {
		names = append(names, strings.TrimSuffix(f.Name, ".npy"))
	}
	for _, c := range r.columns {
		i := slices.Index(names, c.Name)
		if i < 0 && (c.Name == "" || c.Optional) {
			continue
		}
		if i < 0 {
			return fault.Usagef("%s has no array %q; expected one of %s%s", r.path, c.Name, List(names), DidYouMean(c.Name, names))
		}
		if slices.ContainsFunc(r.read, func(a *npyReader) bool { return a.name == c.Name }) {
			continue
		}
		a, err := openNPY(r.files[i], c.Name)
		if err != nil {
			return fault.Usagef("%s: array %q %w", r.path, c.Name, err)
		}
		if len(r.read) > 0 && a.shape[0] != r.count {
			return fault.Usagef("%s: array %q has %d rows and %q has %d; expected as many", r.path, c.Name, a.shape[0], r.read[0].name, r.count)
		}
		r.count, r.read = a.shape[0], append(r.read, a)
	}
	return nil
}

// next implements rowReader. The line of a row is its number, from 1.
func (r *npzRows) next() ([]byte, int64, error) {
	if !r.begun {
		if err := r.begin(); err != nil {
			return nil, 0, err
		}
	}
	if r.at >= r.count {
		return nil, 0, io.EOF
	}
	r.at++
	r.row = append(r.row[:0], '{')
	for i, a := range r.read {
		if i > 0 {
			r.row = append(r.row, ',')
		}
		name, _ := json.Marshal(a.name) // a string can always be written
		r.row = append(append(r.row, name...), ':')
		var err error
		if r.row, err = a.element(r.row); err != nil {
			return nil, 0, fmt.Errorf("%s: row %d of array %q: %w", r.path, r.at, a.name, err)
		}
	}
	r.row = append(r.row, '}')
	return r.row, r.at, nil
}

// npyReader reads the elements of the first axis of an array in NumPy's .npy format.
type npyReader struct {
	name  string
	in    io.Reader
	order binary.ByteOrder
	kind  byte // f, i, u, b, U or S
	size  int  // bytes of a value
	shape []int64
	buf   []byte // an element
}

var npyHeader = regexp.MustCompile(`^\{'descr': '([<>|=])([a-zA-Z])(\d+)', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \}\s*$`)

// maxElement is the most bytes of an element of an array.
const maxElement = 1 << 28

func openNPY(f *zip.File, name string) (*npyReader, error) {
	in, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	head := make([]byte, 8)
	if _, err := io.ReadFull(in, head); err != nil || string(head[:6]) != "\x93NUMPY" {
		return nil, errors.New("is not in NumPy's format")
	}
	width := 2 // of the header's length
	if head[6] > 1 {
		width = 4
	}
	length := make([]byte, 4)
	if _, err := io.ReadFull(in, length[:width]); err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	text := make([]byte, min(binary.LittleEndian.Uint32(length), 1<<16))
	if _, err := io.ReadFull(in, text); err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	m := npyHeader.FindSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("has the header %s; expected an array of numbers, bool or text (no objects and no records)", Clip(strings.TrimSpace(string(text))))
	}
	a := &npyReader{name: name, in: in, order: binary.LittleEndian, kind: m[2][0]}
	if m[1][0] == '>' {
		a.order = binary.BigEndian
	}
	if string(m[4]) == "True" {
		return nil, errors.New("is in the order of Fortran; expected numpy.ascontiguousarray of it")
	}
	if a.size, err = strconv.Atoi(string(m[3])); err != nil || !a.known() {
		return nil, fmt.Errorf("has the dtype %s%s; expected float16 to float64, integers, bool or text", m[2], m[3])
	}
	if a.kind == 'U' {
		a.size *= 4
	}
	bytes := int64(a.size)
	for part := range strings.SplitSeq(string(m[5]), ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || len(a.shape) > 0 && (n < 1 || n > maxElement/bytes) {
			return nil, fmt.Errorf("has the shape (%s); expected rows of 1 to %d bytes", m[5], maxElement)
		}
		if len(a.shape) > 0 {
			bytes *= n
		}
		a.shape = append(a.shape, n)
	}
	if len(a.shape) == 0 {
		return nil, errors.New("is a single value; expected a value for each row")
	}
	a.buf = make([]byte, bytes)
	return a, nil
}

// known reports whether values of the kind and size can be read.
func (a *npyReader) known() bool {
	switch a.kind {
	case 'f':
		return a.size == 2 || a.size == 4 || a.size == 8
	case 'i', 'u':
		return a.size == 1 || a.size == 2 || a.size == 4 || a.size == 8
	case 'b':
		return a.size == 1
	case 'U', 'S':
		return a.size >= 1 && a.size <= 1<<20
	}
	return false
}

// element appends the next element as JSON.
func (a *npyReader) element(out []byte) ([]byte, error) {
	if _, err := io.ReadFull(a.in, a.buf); err != nil {
		return nil, err
	}
	if len(a.buf) == a.size { // columns of a single value are numbers, too
		return a.value(out, a.buf)
	}
	out, _, err := a.array(out, a.shape[1:], a.buf)
	return out, err
}

// array appends the values of an array as JSON, and returns the bytes after them.
func (a *npyReader) array(out []byte, shape []int64, b []byte) ([]byte, []byte, error) {
	if len(shape) == 0 {
		out, err := a.value(out, b[:a.size])
		return out, b[a.size:], err
	}
	out = append(out, '[')
	for i := range shape[0] {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, b, err = a.array(out, shape[1:], b); err != nil {
			return nil, nil, err
		}
	}
	return append(out, ']'), b, nil
}

func (a *npyReader) value(out, b []byte) ([]byte, error) {
	switch a.kind {
	case 'f':
		return a.float(out, b)
	case 'i', 'u':
		u := a.unsigned(b)
		if a.kind == 'u' {
			return strconv.AppendUint(out, u, 10), nil
		}
		shift := 64 - 8*a.size
		return strconv.AppendInt(out, int64(u<<shift)>>shift, 10), nil
	case 'b':
		return strconv.AppendBool(out, b[0] != 0), nil
	}
	text := bytes.TrimRight(b, "\x00")
	if a.kind == 'U' {
		text = nil
		for i := 0; i < len(b); i += 4 {
			r := rune(a.order.Uint32(b[i:]))
			if r == 0 && len(bytes.Trim(b[i:], "\x00")) == 0 {
				break
			}
			text = utf8.AppendRune(text, r)
		}
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%q is not UTF-8", Clip(string(text)))
	}
	quoted, err := json.Marshal(string(text))
	return append(out, quoted...), err
}

func (a *npyReader) float(out, b []byte) ([]byte, error) {
	x, bits := 0.0, 64
	switch a.size {
	case 2:
		x, bits = float64(dtype.FromHalf(a.order.Uint16(b))), 32
	case 4:
		x, bits = float64(math.Float32frombits(a.order.Uint32(b))), 32
	default:
		x = math.Float64frombits(a.order.Uint64(b))
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return strconv.AppendQuote(out, strconv.FormatFloat(x, 'g', -1, 64)), nil // which readers of numbers refuse
	}
	return strconv.AppendFloat(out, x, 'g', -1, bits), nil
}

func (a *npyReader) unsigned(b []byte) uint64 {
	switch a.size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(a.order.Uint16(b))
	case 4:
		return uint64(a.order.Uint32(b))
	}
	return a.order.Uint64(b)
}
