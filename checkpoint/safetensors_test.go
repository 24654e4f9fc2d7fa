package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/fault"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// safeFile makes a safetensors file of a header and data.
func safeFile(header string, data []byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

func openSafe(t testing.TB, content []byte) *Safetensors {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.safetensors")
	writeFile(t, path, content)
	s, err := OpenSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func le(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

func TestSafetensorsTypes(t *testing.T) {
	for _, test := range []struct {
		dtype string
		data  []byte
		want  any       // as a tensor; nil where it cannot be one
		real  []float32 // as real numbers; nil where it has none
	}{
		{"F32", le([]float32{1.5, -2}), []float32{1.5, -2}, []float32{1.5, -2}},
		{"F64", le([]float64{1.5, 1e300}), []float64{1.5, 1e300}, []float32{1.5, float32(math.Inf(1))}},
		{"F16", le([]uint16{0x3e00, 0xc000}), []float32{1.5, -2}, []float32{1.5, -2}},
		{"BF16", le([]uint16{0x3fc0, 0xc000}), []float32{1.5, -2}, []float32{1.5, -2}},
		{"I64", le([]int64{-1, 1 << 40}), []int64{-1, 1 << 40}, []float32{-1, 1 << 40}},
		{"I32", le([]int32{-1, 7}), []int32{-1, 7}, []float32{-1, 7}},
		{"I16", le([]int16{-1, 7}), []int16{-1, 7}, []float32{-1, 7}},
		{"I8", le([]int8{-1, 7}), []int8{-1, 7}, []float32{-1, 7}},
		{"U64", le([]uint64{1, 1 << 63}), nil, []float32{1, 1 << 63}},
		{"U32", le([]uint32{1, 1 << 31}), nil, []float32{1, 1 << 31}},
		{"U16", le([]uint16{1, 65535}), []uint16{1, 65535}, []float32{1, 65535}},
		{"U8", []byte{1, 255}, []uint8{1, 255}, []float32{1, 255}},
		{"BOOL", []byte{0, 3}, []bool{false, true}, []float32{0, 1}},
		{"C64", le([]float32{1, 2, 3, 4}), nil, nil},
		{"F8_E4M3", []byte{1, 2}, nil, nil},
		{"F4", []byte{1}, nil, nil},
		{"NEW9", []byte{1, 2, 3}, nil, nil},
	} {
		s := openSafe(t, safeFile(fmt.Sprintf(`{"x":{"dtype":%q,"shape":[2],"data_offsets":[0,%d]}}`, test.dtype, len(test.data)), test.data))
		got, err := s.Read(background)
		switch {
		case test.want == nil:
			if err == nil || !strings.Contains(err.Error(), test.dtype) {
				t.Errorf("%s: read %v, error %v", test.dtype, got, err)
			}
		case err != nil:
			t.Errorf("%s: %v", test.dtype, err)
		default:
			if want := tensor(t, test.want); want.DataType() != got["x"].DataType() || !bytes.Equal(rawBytes(t, want), rawBytes(t, got["x"])) {
				t.Errorf("%s: %v, want %v", test.dtype, got["x"].Value(), test.want)
			}
		}
		floats, shape, err := s.Float32("x")
		if test.real == nil {
			if err == nil {
				t.Errorf("%s: %v", test.dtype, floats)
			}
		} else if err != nil || !slices.Equal(floats, test.real) || !slices.Equal(shape, []int64{2}) {
			t.Errorf("%s: %v of shape %v, want %v, error %v", test.dtype, floats, shape, test.real, err)
		}
	}
}

func TestSafetensorsHeader(t *testing.T) {
	const a = `"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`
	data := make([]byte, 16)
	s := openSafe(t, safeFile(`{"__metadata__":{"format":"pt"},"s":{"dtype":"I8","shape":[],"data_offsets":[8,9]},"z":{"dtype":"F32","shape":[3,0],"data_offsets":[8,8]},`+a+"}   ", data[:9]))
	if s.Metadata()["format"] != "pt" || len(s.Entries()) != 3 {
		t.Errorf("metadata %v, entries %v", s.Metadata(), s.Entries())
	}
	if got, err := s.Read(background); err != nil || len(got) != 3 || len(got["s"].Shape()) != 0 || !slices.Equal(got["z"].Shape(), []int64{3, 0}) {
		t.Errorf("read %v, error %v", got, err)
	}
	var mismatch *MismatchError
	if _, err := s.Read(background, "a", "none"); !errors.As(err, &mismatch) || !slices.Equal(mismatch.Missing, []string{"none"}) {
		t.Errorf("a missing tensor: %v", err)
	}
	cancelled, cancel := context.WithCancel(background)
	cancel()
	if _, err := s.Read(cancelled, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	empty := openSafe(t, safeFile("{}", nil))
	if len(empty.Entries()) != 0 {
		t.Errorf("entries %v", empty.Entries())
	}

	for _, test := range []struct {
		name    string
		content []byte
		want    string
	}{
		{"empty", nil, "too few"},
		{"short", []byte{1, 2, 3}, "too few"},
		{"text", []byte("<html>404 not found</html>"), "not a safetensors file"},
		{"length of everything", binary.LittleEndian.AppendUint64(nil, math.MaxUint64), "not a safetensors file"},
		{"header beyond the file", append(binary.LittleEndian.AppendUint64(nil, 99), '{', '}'), "header has 99 bytes in a file of 10"},
		{"no JSON", safeFile("hello", nil), "not JSON"},
		{"broken JSON", safeFile(`{"a":`, nil), "header: "},
		{"list", safeFile(`[1]`, nil), "not JSON"},
		{"more after it", safeFile(`{} {}`, nil), "text after"},
		{"tensor is a number", safeFile(`{"a":7}`, nil), `tensor "a"`},
		{"no type", safeFile(`{"a":{"shape":[2],"data_offsets":[0,8]}}`, data), "has no valid type, shape or position"},
		{"no shape", safeFile(`{"a":{"dtype":"F32","data_offsets":[0,8]}}`, data), "has no valid type, shape or position"},
		{"no place", safeFile(`{"a":{"dtype":"F32","shape":[2]}}`, data), "has no valid type, shape or position"},
		{"three offsets", safeFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}}`, data), "has no valid type, shape or position"},
		{"ends before it begins", safeFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, data), "has no valid type, shape or position"},
		{"negative", safeFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}}`, data), "has no valid type, shape or position"},
		{"too large a number", safeFile(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,99999999999999999999]}}`, data), `tensor "a"`},
		{"beyond the file", safeFile(`{"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}}`, data), "bytes 0 to 32 of 16"},
		{"wrong size", safeFile(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, data[:8]), "F32[3] takes 12 bytes, stored are 8"},
		{"negative dimension", safeFile(`{"a":{"dtype":"F32","shape":[-2,-1],"data_offsets":[0,8]}}`, data[:8]), "bad shape [-2,-1]"},
		{"shape overflows", safeFile(`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}}`, data[:8]), "bad shape"},
		{"overlap", safeFile("{"+a+`,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, data[:12]), "begins at"},
		{"same bytes twice", safeFile("{"+a+`,"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, data[:8]), "begins at"},
		{"gap", safeFile("{"+a+`,"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}}`, data), "begins at"},
		{"left over", safeFile("{"+a+"}", data), "8 bytes belong to no tensor"},
		{"twice", safeFile("{"+a+","+a+"}", data[:8]), `tensor "a" is declared twice`},
		{"metadata of numbers", safeFile(`{"__metadata__":{"a":1}}`, nil), "metadata"},
		{"metadata twice", safeFile(`{"__metadata__":{},"__metadata__":{}}`, nil), "metadata is declared twice"},
	} {
		path := filepath.Join(t.TempDir(), "bad.safetensors")
		writeFile(t, path, test.content)
		_, err := OpenSafetensors(path)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || corrupt.Path != path || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want a CorruptError with %q", test.name, err, test.want)
		}
	}
	if _, err := OpenSafetensors(t.TempDir()); err == nil {
		t.Error("a folder was opened")
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(safeFile(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}}`, make([]byte, 14)))
	f.Add(safeFile(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}} `, make([]byte, 2)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSafetensors(bytes.NewReader(data), int64(len(data)), "x")
		if err != nil {
			return
		}
		total := int64(0)
		for _, e := range s.Entries() {
			total += e.Size
			if e.Offset < 8 || e.Offset+e.Size > int64(len(data)) {
				t.Errorf("accepted %+v of %d bytes", e, len(data))
			}
		}
		if n := int64(binary.LittleEndian.Uint64(data)); total != int64(len(data))-8-n {
			t.Errorf("%d bytes of tensors in a file of %d with a header of %d", total, len(data), n)
		}
	})
}

func miniLM(t testing.TB) string {
	t.Helper()
	path := filepath.Join(testkit.Root(), ".cache", "minilm", "model.safetensors")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the MiniLM weights are not there: %v", err)
	}
	return path
}

// bertWanted lists the encoder of a BERT as an export would, with the names that
// Hugging Face gives its tensors.
func bertWanted(layers, hidden int64) []Wanted {
	var list []Wanted
	add := func(name string, transpose bool, foreign string, shape ...int64) {
		list = append(list, Wanted{Name: "model/" + name, DType: tf.Float, Shape: shape, Foreign: []Candidate{{foreign, transpose, false}}})
	}
	norm := func(name, foreign string) {
		add(name+"/gamma", false, foreign+".weight", hidden)
		add(name+"/beta", false, foreign+".bias", hidden)
	}
	dense := func(name, foreign string, in, out int64) {
		add(name+"/kernel", true, foreign+".weight", in, out)
		add(name+"/bias", false, foreign+".bias", out)
	}
	add("embeddings/word", false, "embeddings.word_embeddings.weight", 30522, hidden)
	add("embeddings/position", false, "embeddings.position_embeddings.weight", 512, hidden)
	add("embeddings/type", false, "embeddings.token_type_embeddings.weight", 2, hidden)
	norm("embeddings/norm", "embeddings.LayerNorm")
	for i := range layers {
		at, from := fmt.Sprintf("layers/%d/", i), fmt.Sprintf("encoder.layer.%d.", i)
		for _, part := range []string{"query", "key", "value"} {
			dense(at+part, from+"attention.self."+part, hidden, hidden)
		}
		dense(at+"output", from+"attention.output.dense", hidden, hidden)
		norm(at+"attention_norm", from+"attention.output.LayerNorm")
		dense(at+"up", from+"intermediate.dense", hidden, 4*hidden)
		dense(at+"down", from+"output.dense", 4*hidden, hidden)
		norm(at+"norm", from+"output.LayerNorm")
	}
	dense("classifier", "classifier", hidden, 2)
	return list
}

// Real weights of a BERT encoder, without a classifier.
func TestLoadMiniLM(t *testing.T) {
	s, err := OpenSafetensors(miniLM(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := bertWanted(6, 384)
	got, report, err := Load(background, s, want)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Matched) != len(want)-2 || len(report.Missing) != 2 || len(report.Mismatched) != 0 || report.Prefix != "" {
		t.Errorf("%s", report)
	}
	const name = "model/layers/3/up/kernel"
	stored, shape, err := s.Float32("encoder.layer.3.intermediate.dense.weight")
	if err != nil {
		t.Fatal(err)
	}
	kernel := got[name].Value().([][]float32)
	if len(kernel) != int(shape[1]) || len(kernel[0]) != int(shape[0]) {
		t.Fatalf("kernel of %d by %d", len(kernel), len(kernel[0]))
	}
	for i := range kernel {
		for j := range kernel[i] {
			if kernel[i][j] != stored[j*int(shape[1])+i] {
				t.Fatalf("kernel[%d][%d] is not the transposed weight", i, j)
			}
		}
	}
}

// TestSafetensorsSums changes a file that WriteSafetensors wrote: each byte of the values, and what the header
// says of them.
func TestSafetensorsSums(t *testing.T) {
	matrix, err := tf.NewTensor([][]float32{{1, 2, 3}, {4, 5, 6}})
	if err != nil {
		t.Fatal(err)
	}
	scalar, err := tf.NewTensor(int64(7))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := WriteSafetensors(&out, []SafeTensor{{Name: "w", Value: matrix, Transpose: true}, {Name: "n", Value: scalar}}, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	read := func(content []byte) (*Safetensors, error) {
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		s, err := OpenSafetensors(path)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if _, err = s.Read(t.Context()); err == nil {
			_, _, err = s.Float32("w")
		}
		if verify := s.Verify(t.Context()); (verify == nil) != (err == nil) {
			t.Errorf("reading: %v; Verify: %v", err, verify)
		}
		return s, err
	}
	whole := out.Bytes()
	s, err := read(whole)
	if err != nil || !s.Summed() || len(s.Metadata()) != 1 {
		t.Fatalf("as written: %v, metadata %v", err, s.Metadata())
	}
	for i := len(whole) - (8 + 6*4); i < len(whole); i++ { // the values
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1
		if _, err := read(damaged); !errors.Is(err, fault.Damaged) {
			t.Errorf("byte %d is changed: %v; expected an error of damage", i, err)
		}
	}
	for _, change := range [][2]string{{`[3,2]`, `[2,3]`}, {`"F32"`, `"I32"`}, {`"n":{`, `"m":{`}, {`\"n\":`, `\"m\":`}, {`:"{`, `:"?`}} {
		damaged := bytes.Replace(whole, []byte(change[0]), []byte(change[1]), 1)
		if _, err := read(damaged); bytes.Equal(damaged, whole) || !errors.Is(err, fault.Damaged) {
			t.Errorf("%s for %s: %v; expected an error of damage", change[1], change[0], err)
		}
	}

	// A file without checksums is read, and the report of what it fills says so.
	other := bytes.Replace(whole, []byte(sumsKey), []byte("xorbit.crc32c"), 1)
	other[len(other)-1] ^= 1
	if s, err = read(other); err != nil || s.Summed() {
		t.Errorf("without checksums: %v", err)
	}
	if report := Compare(s, nil); !strings.Contains(report.String(), "  unverified  the file has no checksums") {
		t.Errorf("the report is %s", report)
	}
}
