package altstack_test

import (
	"io"
	"runtime/pprof"
	"testing"

	_ "github.com/gorbit-ml/gorbit/internal/exec/altstack"
	tf "github.com/wamuir/graft/tensorflow"
)

// TestProfiledProducts crashes without the package on a processor with AVX2 or AVX-512: some of the
// profiler's signals reach TensorFlow's threads in the middle of a product.
func TestProfiledProducts(t *testing.T) {
	const terms = 4096
	graph := tf.NewGraph()
	add := func(spec tf.OpSpec) tf.Output {
		t.Helper()
		op, err := graph.AddOperation(spec)
		if err != nil {
			t.Fatal(err)
		}
		return op.Output(0)
	}
	x := add(tf.OpSpec{Type: "Placeholder", Attrs: map[string]any{"dtype": tf.Float}})
	product := add(tf.OpSpec{Type: "MatMul", Input: []tf.Input{x, x}, Attrs: map[string]any{"transpose_a": true}})
	session, err := tf.NewSession(graph, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	rows := make([][]float32, terms)
	for i := range rows {
		rows[i] = make([]float32, 256)
		for j := range rows[i] {
			rows[i][j] = 1
		}
	}
	value, err := tf.NewTensor(rows)
	if err != nil {
		t.Fatal(err)
	}
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Fatal(err)
	}
	defer pprof.StopCPUProfile()
	for range 50 {
		got, err := session.Run(map[tf.Output]*tf.Tensor{x: value}, []tf.Output{product}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if y := got[0].Value().([][]float32)[255][255]; y != terms {
			t.Fatalf("a sum of %d ones is %v", terms, y)
		}
	}
}
