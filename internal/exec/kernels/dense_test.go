package kernels_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// denseOps are the products with packed matrices.
var denseOps = []string{"GorbitDense", "GorbitDenseBias", "GorbitDenseGelu"}

// denseCalls adds the products of x and w, and TensorFlow's own.
func (c *calls) denseCalls(x, w, bias tf.Output) (ours, theirs []tf.Output) {
	packed := c.add(tf.OpSpec{Type: "GorbitDensePack", Input: []tf.Input{w}}).Output(0)
	for _, name := range denseOps {
		in := []tf.Input{x, packed, bias}
		if name == "GorbitDense" {
			in = in[:2]
		}
		ours = append(ours, c.add(tf.OpSpec{Type: name, Input: in}).Output(0))
	}
	two := func(op string, a, b tf.Output) tf.Output {
		return c.add(tf.OpSpec{Type: op, Input: []tf.Input{a, b}}).Output(0)
	}
	product := two("MatMul", x, w)
	biased := two("AddV2", product, bias)
	erf := c.add(tf.OpSpec{Type: "Erf", Input: []tf.Input{two("Mul", biased, c.constant(float32(math.Sqrt(0.5))))}}).Output(0)
	gelu := two("Mul", two("Mul", biased, c.constant(float32(0.5))), two("AddV2", erf, c.constant(float32(1))))
	return ours, []tf.Output{product, biased, gelu}
}

// TestDense holds products with packed matrices against TensorFlow's, with every instruction set that there is.
func TestDense(t *testing.T) {
	if err := kernels.Register(); err != nil {
		t.Fatal(err)
	}
	defer kernels.Use("")
	for _, shape := range [][]int64{{1, 1, 16}, {1, 384, 384}, {5, 384, 1152}, {53, 1537, 48}, {101, 770, 112}, {7, 4096, 32}, {0, 32, 32}} {
		rows, inputs, outputs := shape[0], shape[1], shape[2]
		for _, instructions := range []string{"avx512", "avx2", "neon", "generic"} {
			t.Run(fmt.Sprintf("%v, %s", shape, instructions), func(t *testing.T) {
				if err := kernels.Use(instructions); err != nil {
					t.Skip(err)
				}
				c := &calls{b: t, graph: tf.NewGraph()}
				ours, theirs := c.denseCalls(c.random(1, rows, inputs), c.random(2, inputs, outputs), c.constant(flatNoise(3, outputs)))
				session := c.session()
				defer session.Close()
				got, err := session.Run(nil, slices.Concat(ours, theirs), nil)
				if err != nil {
					t.Fatal(err)
				}
				for i, name := range denseOps {
					y, want := flat(got[i]), flat(got[i+len(denseOps)])
					if len(y) != int(rows*outputs) {
						t.Fatalf("%s: %d elements", name, len(y))
					}
					for k := range y {
						if d := math.Abs(float64(y[k] - want[k])); !(d <= 4e-6*math.Sqrt(float64(inputs))*max(1, math.Abs(float64(want[k])))) {
							t.Fatalf("%s: element %d is %v; expected %v, as TensorFlow's", name, k, y[k], want[k])
						}
					}
				}
			})
		}
	}
}

// TestDenseLaws holds that a row's results have the same bits whatever rows are with it, and however many
// threads compute them.
func TestDenseLaws(t *testing.T) {
	if err := kernels.Register(); err != nil {
		t.Fatal(err)
	}
	defer kernels.Threads(0, 0)
	const rows, inputs, outputs = 197, 400, 176
	x := flatNoise(1, rows*inputs)
	run := func(x []float32, n int64) []float32 {
		c := &calls{b: t, graph: tf.NewGraph()}
		ours, _ := c.denseCalls(c.shaped(x, n, inputs), c.random(2, inputs, outputs), c.constant(flatNoise(3, outputs)))
		session := c.session()
		defer session.Close()
		got, err := session.Run(nil, ours[2:], nil)
		if err != nil {
			t.Fatal(err)
		}
		return flat(got[0])
	}
	kernels.Threads(1, 1)
	want := run(x, rows)
	kernels.Threads(3, 3)
	for _, part := range [][2]int64{{0, rows}, {0, 1}, {5, 12}, {95, 98}, {100, 196}} {
		if got := run(x[part[0]*inputs:part[1]*inputs], part[1]-part[0]); !slices.Equal(got, want[part[0]*outputs:part[1]*outputs]) {
			t.Errorf("rows %v differ from those of all", part)
		}
	}
}

// TestDenseRefuses gives matrices of other sizes.
func TestDenseRefuses(t *testing.T) {
	if err := kernels.Register(); err != nil {
		t.Fatal(err)
	}
	c := &calls{b: t, graph: tf.NewGraph()}
	pack := func(rows, width int64) tf.Output {
		return c.add(tf.OpSpec{Type: "GorbitDensePack", Input: []tf.Input{c.random(1, rows, width)}}).Output(0)
	}
	outs := []tf.Output{pack(16, 24), c.add(tf.OpSpec{Type: "GorbitDense", Input: []tf.Input{c.random(1, 3, 48), pack(32, 16)}}).Output(0)}
	session := c.session()
	defer session.Close()
	for _, y := range outs {
		if out, err := session.Run(nil, []tf.Output{y}, nil); err == nil {
			t.Errorf("got %v; expected an error", out[0].Shape())
		}
	}
}

// BenchmarkDense makes products of so many rows with matrices of minilm and of a BERT of 768 columns, packed
// and by TensorFlow.
func BenchmarkDense(b *testing.B) {
	if err := kernels.Register(); err != nil {
		b.Fatal(err)
	}
	for _, shape := range [][]int64{{384, 384}, {384, 1536}, {1536, 384}, {768, 3072}} {
		for _, rows := range []int64{8, 53, 256} {
			for _, name := range []string{"GorbitDense", "MatMul"} {
				b.Run(fmt.Sprintf("%s/%dx%dx%d", name, rows, shape[0], shape[1]), func(b *testing.B) {
					c := &calls{b: b, graph: tf.NewGraph()}
					x, w := c.noise([]int64{rows, shape[0]}), c.noise(shape)
					if name == "GorbitDense" {
						w = c.noise([]int64{shape[1] / 16, shape[0], 16})
					}
					for range 10 {
						c.call(name, x, w)
					}
					c.run(b)
					b.ReportMetric(2*float64(10*rows*shape[0]*shape[1]*int64(b.N))/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
				})
			}
		}
	}
}
