package checkpoint

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"
)

// helpers are programs that a test starts this binary as; see TestMain.
var helpers = map[string]func(){}

func TestMain(m *testing.M) {
	if run := helpers[os.Getenv("GORBIT_TEST_HELPER")]; run != nil {
		run()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// golden is a tensor as testdata/generate.py describes it.
type golden struct {
	DType   string
	Shape   []int64
	Bytes   []byte
	Strings []string
}

func loadGoldens(t testing.TB) map[string]struct{ Entries, Paths map[string]golden } {
	t.Helper()
	data, err := os.ReadFile("testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]struct{ Entries, Paths map[string]golden }
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// rawBytes returns the elements of a numeric tensor in little-endian order.
func rawBytes(t testing.TB, x *tf.Tensor) []byte {
	t.Helper()
	var b bytes.Buffer
	var err error
	switch x.DataType() {
	case tf.Uint32, tf.Uint64: // the binding cannot write these out
		n, _ := elements(x.Shape())
		if err = x.Reshape([]int64{n}); err == nil {
			err = binary.Write(&b, binary.LittleEndian, x.Value())
		}
	default:
		_, err = x.WriteContentsTo(&b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func checkTensor(t testing.TB, name string, x *tf.Tensor, want golden) {
	t.Helper()
	if x == nil {
		t.Errorf("%s: no tensor", name)
		return
	}
	if got := DTypeName(x.DataType()); got != want.DType {
		t.Errorf("%s: type %s, want %s", name, got, want.DType)
		return
	}
	if !slices.Equal(x.Shape(), want.Shape) {
		t.Errorf("%s: shape %v, want %v", name, x.Shape(), want.Shape)
		return
	}
	if x.DataType() == tf.String {
		if got, wanted := flatStrings(x.Value()), decodeStrings(t, want.Strings); !slices.Equal(got, wanted) {
			t.Errorf("%s: %q, want %q", name, got, wanted)
		}
		return
	}
	if got := rawBytes(t, x); !bytes.Equal(got, want.Bytes) {
		t.Errorf("%s: %x, want %x", name, got, want.Bytes)
	}
}

func flatStrings(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []string:
		return v
	case [][]string:
		return slices.Concat(v...)
	}
	panic(fmt.Sprintf("strings of type %T", v))
}

func decodeStrings(t testing.TB, list []string) []string {
	t.Helper()
	var out []string
	for _, s := range list {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	return out
}

func tensor(t testing.TB, v any) *tf.Tensor {
	t.Helper()
	x, err := tf.NewTensor(v)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// model returns variables whose values are a function of step alone.
func model(step int64) ([]NamedTensor, error) {
	rng := rand.New(rand.NewPCG(uint64(step), 1))
	list := []NamedTensor{
		{Name: "model/embeddings/table"}, {Name: "model/layers/0/kernel"}, {Name: "model/layers/1/kernel"},
		{Name: "optimizer/m/model/layers/0/kernel"},
	}
	for i := range list {
		v := make([][]float32, 8)
		for j := range v {
			v[j] = make([]float32, 16*(i+1))
			for k := range v[j] {
				v[j][k] = rng.Float32()
			}
		}
		x, err := tf.NewTensor(v)
		if err != nil {
			return nil, err
		}
		list[i].Value = x
	}
	x, err := tf.NewTensor(step)
	return append(list, NamedTensor{"optimizer/iterations", x}), err
}

func mustModel(t testing.TB, step int64) []NamedTensor {
	t.Helper()
	list, err := model(step)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// checkModel holds what was restored against model(step).
func checkModel(t testing.TB, r *Restored) {
	t.Helper()
	for _, want := range mustModel(t, r.Step) {
		got := r.Tensors[want.Name]
		if got == nil {
			t.Errorf("step %d: %s is missing", r.Step, want.Name)
		} else if !bytes.Equal(rawBytes(t, got), rawBytes(t, want.Value)) {
			t.Errorf("step %d: %s differs", r.Step, want.Name)
		}
	}
	if want := fmt.Sprintf("state of %d", r.Step); string(r.State) != want {
		t.Errorf("step %d: state is %q, want %q", r.Step, r.State, want)
	}
}

func entriesOf(list []NamedTensor) []Entry {
	var out []Entry
	for _, n := range list {
		out = append(out, Entry{Name: n.Name, DType: n.Value.DataType(), Shape: n.Value.Shape()})
	}
	return out
}

// writeSmall writes a bundle of some types to a fresh folder.
func writeSmall(t testing.TB) string {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "small")
	err := WriteBundle(context.Background(), prefix, []NamedTensor{
		{"a/matrix", tensor(t, [][]float32{{1, 2, 3}, {4, 5, 6}})},
		{"b/text", tensor(t, []string{"one", "", "three"})},
		{"c/count", tensor(t, int64(9))},
	})
	if err != nil {
		t.Fatal(err)
	}
	return prefix
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func newFloats(n int) (*tf.Tensor, error) { return tf.NewTensor(make([]float32, n)) }
