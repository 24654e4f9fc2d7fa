package kernels_test

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"
	fpb "github.com/wamuir/graft/tensorflow/core/framework/function_go_proto"
	dtpb "github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"

	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/internal/exec/dense"
	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

//go:embed testdata/int8.py
var int8Script string

// TestDenseInt8 holds products of int8 numbers against numpy's, with every instruction set that there is:
// the bits are the same, but for GELU.
func TestDenseInt8(t *testing.T) {
	if err := kernels.Register(); err != nil {
		t.Fatal(err)
	}
	defer kernels.Use("")
	defer kernels.PlainInt8(false)
	for _, shape := range [][]int64{{1, 16, 16}, {5, 384, 1152}, {53, 384, 384}, {101, 1536, 48}, {7, 4096, 32}} {
		folder := t.TempDir()
		testkit.RunPython(t, int8Script, folder, fmt.Sprint(shape[0]), fmt.Sprint(shape[1]), fmt.Sprint(shape[2]))
		packed, ok := dense.Pack(floatsOf(t, folder, "w"), shape[1:])
		if want := bytesOf(t, folder, "packed"); !ok || !bytes.Equal(packed, want) {
			t.Fatalf("shape %v: the packed matrix differs from numpy's", shape)
		}
		for _, instructions := range []string{"avx512", "avx2", "neon", "generic"} {
			for _, plain := range []bool{false, true} {
				kernels.PlainInt8(plain)
				t.Run(fmt.Sprintf("%v, %s, without extensions %v", shape, instructions, plain), func(t *testing.T) {
					if err := kernels.Use(instructions); err != nil {
						t.Skip(err)
					}
					alone := func() error { denseInt8(t, folder, shape, packed); return nil }
					both := func() error { return kernels.Run(alone) } // while another divides the cores with it
					for _, run := range []func() error{alone, both} {
						if err := kernels.Run(run); err != nil {
							t.Fatal(err)
						}
					}
				})
			}
		}
		t.Run(fmt.Sprintf("%v, TensorFlow's operations", shape), func(t *testing.T) { functionInt8(t, folder, shape, packed) })
	}
}

func denseInt8(t *testing.T, folder string, shape []int64, packed []byte) {
	t.Helper()
	c := &calls{b: t, graph: tf.NewGraph()}
	w, err := tf.ReadTensor(tf.Int32, dense.PackedShape(shape[1:]), bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	x := c.shaped(floatsOf(t, folder, "x"), shape[0], shape[1])
	bias := c.constant(floatsOf(t, folder, "bias"))
	var out []tf.Output
	for _, name := range []string{"GorbitDenseInt8", "GorbitDenseBiasInt8", "GorbitDenseGeluInt8"} {
		in := []tf.Input{x, c.held(w), bias}
		if name == "GorbitDenseInt8" {
			in = in[:2]
		}
		out = append(out, c.add(tf.OpSpec{Type: name, Input: in}).Output(0))
	}
	session := c.session()
	defer session.Close()
	got, err := session.Run(nil, out, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"y", "biased", "gelu"} {
		equal := func(a, b float32) bool {
			return a == b || a != a && b != b || name == "gelu" && math.Abs(float64(a-b)) < 1e-6*max(1, math.Abs(float64(b)))
		}
		if y, want := flat(got[i]), floatsOf(t, folder, name); !slices.EqualFunc(y, want, equal) {
			k := slices.IndexFunc(slices.Collect(seq(len(y))), func(i int) bool { return !equal(y[i], want[i]) })
			t.Errorf("%s: element %d is %v; expected %v, as numpy's", name, k, y[k], want[k])
		}
	}
}

// functionInt8 holds the function that the kernel stands for against numpy's results: the bits are the same.
func functionInt8(t *testing.T, folder string, shape []int64, packed []byte) {
	t.Helper()
	const name, float = "dense_bias_int8", dtpb.DataType_DT_FLOAT
	b := build.New(&fpb.FunctionDefLibrary{Function: []*fpb.FunctionDef{dense.Function("f", name, shape[1], "")}}, nil)
	in := []build.Ref{b.Placeholder("x", float, shape[:2]), b.Placeholder("w", dense.PackedType, dense.PackedShape(shape[1:])), b.Placeholder("bias", float, shape[2:])}
	b.CallNamed("y", "f", in, []dtpb.DataType{float, dense.PackedType, float}, []dtpb.DataType{float}, false)
	def, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	c := &calls{b: t, graph: tf.NewGraph()}
	if err := c.graph.Import(def, ""); err != nil {
		t.Fatal(err)
	}
	feeds := make(map[tf.Output]*tf.Tensor)
	for _, f := range []struct {
		name  string
		dtype tf.DataType
		shape []int64
		data  []byte
	}{{"x", tf.Float, shape[:2], bytesOf(t, folder, "x")}, {"w", tf.Int32, dense.PackedShape(shape[1:]), packed}, {"bias", tf.Float, shape[2:], bytesOf(t, folder, "bias")}} {
		if feeds[c.graph.Operation(f.name).Output(0)], err = tf.ReadTensor(f.dtype, f.shape, bytes.NewReader(f.data)); err != nil {
			t.Fatal(err)
		}
	}
	session := c.session()
	defer session.Close()
	got, err := session.Run(feeds, []tf.Output{c.graph.Operation("y").Output(0)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	equal := func(a, b float32) bool { return a == b || a != a && b != b }
	y, want := flat(got[0]), floatsOf(t, folder, "biased")
	if k := slices.IndexFunc(slices.Collect(seq(len(want))), func(i int) bool { return !equal(y[i], want[i]) }); k >= 0 {
		t.Errorf("element %d is %v; expected %v, as numpy's", k, y[k], want[k])
	}
}

func seq(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := 0; i < n && yield(i); i++ {
		}
	}
}

// TestDenseInt8Refuses gives a matrix of another size.
func TestDenseInt8Refuses(t *testing.T) {
	if err := kernels.Register(); err != nil {
		t.Fatal(err)
	}
	c := &calls{b: t, graph: tf.NewGraph()}
	w, err := tf.ReadTensor(tf.Int32, dense.PackedShape([]int64{32, 16}), bytes.NewReader(make([]byte, 10*64)))
	if err != nil {
		t.Fatal(err)
	}
	y := c.add(tf.OpSpec{Type: "GorbitDenseInt8", Input: []tf.Input{c.random(1, 3, 48), c.held(w)}}).Output(0)
	session := c.session()
	defer session.Close()
	if out, err := session.Run(nil, []tf.Output{y}, nil); err == nil {
		t.Errorf("got %v; expected an error", out[0].Shape())
	}
}

// held returns a constant of any type.
func (c *calls) held(value *tf.Tensor) tf.Output {
	return c.add(tf.OpSpec{Type: "Const", Attrs: map[string]any{"dtype": value.DataType(), "value": value}}).Output(0)
}

func bytesOf(t *testing.T, folder, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func floatsOf(t *testing.T, folder, name string) []float32 {
	t.Helper()
	data := bytesOf(t, folder, name)
	out := make([]float32, len(data)/4)
	if _, err := binary.Decode(data, binary.LittleEndian, out); err != nil {
		t.Fatal(err)
	}
	return out
}
