package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestValues(t *testing.T) {
	data := read(t, "types.gguf")
	f, err := Parse(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"general.architecture": "llama",
		"kind.uint8":           int64(200), "kind.int8": int64(-3), "kind.uint16": int64(60000), "kind.int16": int64(-300),
		"kind.uint32": int64(4000000000), "kind.int32": int64(-70000), "kind.uint64": int64(1) << 40, "kind.int64": -int64(1) << 40,
		"kind.float32": 1e-5, "kind.float64": 1e-300, "kind.bool": true, "kind.string": "grüße",
		"list.strings": []string{"a", "", "ĠÄ"}, "list.int32": []int64{1, -2, 3}, "list.float32": []float64{0.1, -2.5},
	} {
		if got := f.Values[key]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %#v; expected %#v", key, got, want)
		}
	}
}

// The numbers of each type are those of the gguf package, to the bit.
func TestRows(t *testing.T) {
	data, want := read(t, "types.gguf"), read(t, "types.f32")
	f, err := Parse(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Tensors) != 11 {
		t.Fatalf("%d tensors; expected 11", len(f.Tensors))
	}
	for _, tensor := range f.Tensors {
		if "of."+tensor.Type.String() != tensor.Name || len(tensor.Shape) != 2 || tensor.Shape[0] != 2 {
			t.Errorf("%s is %v of type %s", tensor.Name, tensor.Shape, tensor.Type)
		}
		part := want[:8*tensor.Shape[1]]
		want = want[len(part):]
		got := numbers32(t, tensor, data, nil)
		for i, v := range got {
			if bits := binary.LittleEndian.Uint32(part[4*i:]); math.Float32bits(v) != bits {
				t.Errorf("%s: number %d is %v; expected %v", tensor.Name, i, v, math.Float32frombits(bits))
				break
			}
		}
		turned := numbers32(t, tensor, data, func(i int64) int64 { return 1 - i })
		half := len(got) / 2
		if !reflect.DeepEqual(turned, append(append([]float32{}, got[half:]...), got[:half]...)) {
			t.Errorf("%s: rows in the other order are not the same", tensor.Name)
		}
	}
	if len(want) != 0 {
		t.Errorf("%d bytes of numbers are left", len(want))
	}
}

func numbers32(t *testing.T, tensor Tensor, data []byte, order func(int64) int64) []float32 {
	t.Helper()
	in, err := tensor.Rows(bytes.NewReader(data), order)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// file makes a file of one value and one tensor.
type file struct {
	version         uint32
	tensors, values uint64
	key             string
	kind            uint32
	value           []byte
	name            string
	shape           []uint64
	tensorKind      uint32
	offset          uint64
	data            int
}

func (f file) bytes() []byte {
	le := binary.LittleEndian
	out := le.AppendUint32([]byte(Magic), f.version)
	out = le.AppendUint64(le.AppendUint64(out, f.tensors), f.values)
	out = append(le.AppendUint64(out, uint64(len(f.key))), f.key...)
	out = append(le.AppendUint32(out, f.kind), f.value...)
	for range f.tensors {
		out = append(le.AppendUint64(out, uint64(len(f.name))), f.name...)
		out = le.AppendUint32(out, uint32(len(f.shape)))
		for _, d := range f.shape {
			out = le.AppendUint64(out, d)
		}
		out = le.AppendUint64(le.AppendUint32(out, f.tensorKind), f.offset)
	}
	for len(out)%32 != 0 {
		out = append(out, 0)
	}
	return append(out, make([]byte, f.data)...)
}

func whole() file {
	return file{version: 3, tensors: 1, values: 1, key: "k", kind: 4, value: []byte{1, 0, 0, 0}, name: "t", shape: []uint64{2, 3}, data: 24}
}

func TestRefused(t *testing.T) {
	if _, err := parse(whole().bytes()); err != nil {
		t.Fatal(err)
	}
	huge := binary.LittleEndian.AppendUint64(nil, math.MaxUint64)
	for want, change := range map[string]func(*file){
		"version is 1; expected 2 or 3":                 func(f *file) { f.version = 1 },
		"the file is big-endian":                        func(f *file) { f.version = 3 << 24 },
		"18446744073709551615 bytes are expected":       func(f *file) { f.kind, f.value = 8, huge },
		"18446744073709551615 elements in the":          func(f *file) { f.kind, f.value = 9, append([]byte{4, 0, 0, 0}, huge...) },
		"a list of lists":                               func(f *file) { f.kind, f.value = 9, []byte{9, 0, 0, 0} },
		"a value of kind 13":                            func(f *file) { f.kind = 13 },
		`the text "\xff" is not valid UTF-8`:            func(f *file) { f.key = "\xff" },
		"a bool is 2":                                   func(f *file) { f.kind, f.value = 7, []byte{2} },
		"general.alignment is 12":                       func(f *file) { f.key, f.value = "general.alignment", []byte{12, 0, 0, 0} },
		"has 5 axes; expected at most 4":                func(f *file) { f.shape = []uint64{1, 1, 1, 1, 1} },
		"has an axis of 0":                              func(f *file) { f.shape = []uint64{0} },
		"has an axis of 4611686018427387904":            func(f *file) { f.shape = []uint64{4, 1 << 62} },
		"has type 99, which is not known":               func(f *file) { f.tensorKind = 99 },
		"rows of 2; expected a multiple of 32":          func(f *file) { f.tensorKind = 2 },
		"expected them inside the file":                 func(f *file) { f.data = 23 },
		"from a multiple of 32":                         func(f *file) { f.offset, f.data = 8, 64 },
		"after the end of the file":                     func(f *file) { f.offset = 1 << 40 },
		`tensor "t" is there twice`:                     func(f *file) { f.tensors = 2 },
		"1000000000000 values in the":                   func(f *file) { f.values = 1e12 },
		"1000000000000 tensors in the":                  nil,
		"not a GGUF file: it begins with \"GGML\"":      nil,
		"4 bytes are expected, and the file has 2 more": nil,
	} {
		f := whole()
		var data []byte
		switch {
		case change != nil:
			change(&f)
			data = f.bytes()
		case strings.Contains(want, "tensors in"):
			data = f.bytes()
			binary.LittleEndian.PutUint64(data[8:], 1e12)
		case strings.Contains(want, "GGML"):
			data = append([]byte("GGML"), f.bytes()[4:]...)
		default:
			data = f.bytes()[:2]
		}
		_, err := parse(data)
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, fault.Damaged) {
			t.Errorf("error %v; expected %q, of class damaged", err, want)
		}
	}
}

func parse(data []byte) (*File, error) { return Parse(bytes.NewReader(data), int64(len(data))) }

func FuzzParse(f *testing.F) {
	f.Add(whole().bytes())
	f.Add(read(f, "types.gguf"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parse(data)
		if err != nil {
			return
		}
		for _, tensor := range file.Tensors {
			if tensor.Offset < 0 || tensor.Size < 0 || tensor.Offset+tensor.Size > int64(len(data)) {
				t.Fatalf("tensor %q has %d bytes from %d of %d", tensor.Name, tensor.Size, tensor.Offset, len(data))
			}
			in, err := tensor.Rows(bytes.NewReader(data), nil)
			if err != nil {
				continue
			}
			want := int64(4)
			for _, d := range tensor.Shape {
				want *= d
			}
			if n, err := io.Copy(io.Discard, in); err != nil || n != want {
				t.Fatalf("tensor %q gives %d bytes; expected %d, error %v", tensor.Name, n, want, err)
			}
		}
	})
}
