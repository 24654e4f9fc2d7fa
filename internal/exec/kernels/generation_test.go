package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

// TestGeneration holds the kernels of generation against sums in float64.
func TestGeneration(t *testing.T) {
	if err := kernels.Register(); err != nil {
		t.Fatal(err)
	}
	defer kernels.Use("")
	for _, instructions := range []string{"avx512", "avx2", "neon", "generic"} {
		t.Run(instructions, func(t *testing.T) {
			if err := kernels.Use(instructions); err != nil {
				t.Skip(err)
			}
			for _, sizes := range [][3]int{{1, 64, 96}, {2, 65, 97}, {3, 37, 200}, {5, 300, 7}, {16, 130, 100}, {150, 33, 113}, {2, 0, 5}} {
				nextProduct(t, sizes[0], sizes[1], sizes[2])
			}
			for _, width := range []int{16, 50} {
				elementwise(t, 37, width)
			}
			for _, sizes := range [][2]int{{1, 1}, {1, 70}, {5, 19}, {40, 70}} {
				for _, biased := range []bool{false, true} {
					nextAttention(t, sizes[0], sizes[1], biased)
				}
			}
		})
	}
}

// drawnNumbers returns normal numbers.
func drawnNumbers(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 2))
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64())
	}
	return out
}

// ranOp returns what an operation gives.
func ranOp(t *testing.T, c *calls, name string, inputs ...tf.Input) []float32 {
	t.Helper()
	session := c.session()
	defer session.Close()
	got, err := session.Run(nil, []tf.Output{c.add(tf.OpSpec{Type: name, Input: inputs}).Output(0)}, nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return flat(got[0])
}

// near fails unless all numbers are what they are expected to be, in float64.
func near(t *testing.T, name string, got []float32, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers; expected %d", name, len(got), len(want))
	}
	for i, x := range got {
		if d := math.Abs(float64(x) - want[i]); !(d <= 1e-4*max(1, math.Abs(want[i]))) {
			t.Fatalf("%s: number %d is %v; expected %v", name, i, x, want[i])
		}
	}
}

func nextProduct(t *testing.T, m, k, n int) {
	t.Helper()
	x, w := drawnNumbers(1, m*k), drawnNumbers(2, k*n)
	for _, transposed := range []bool{false, true} {
		want := make([]float64, m*n)
		for i := range want {
			for j := range k {
				at := j*n + i%n
				if transposed {
					at = i%n*k + j
				}
				want[i] += float64(x[i/n*k+j]) * float64(w[at])
			}
		}
		op, shape := "GorbitNextProduct", []int64{int64(k), int64(n)}
		if transposed {
			op, shape = op+"Transposed", []int64{int64(n), int64(k)}
		}
		product := func(rows int) []float32 {
			c := &calls{b: t, graph: tf.NewGraph()}
			return ranOp(t, c, op, c.shaped(x[(m-rows)*k:], int64(rows), int64(k)), c.shaped(w, shape...))
		}
		got, name := product(m), fmt.Sprintf("%s %dx%dx%d", op, m, k, n)
		near(t, name, got, want)
		// A sequence does not see which others share its call.
		if !slices.Equal(product(1), got[(m-1)*n:]) {
			t.Errorf("%s: the last row has other bits when it is alone", name)
		}
	}
}

func elementwise(t *testing.T, rows, width int) {
	t.Helper()
	x, y := drawnNumbers(3, rows*width), drawnNumbers(4, rows*width)
	shape := []int64{int64(rows), int64(width)}
	gated, normed := make([]float64, len(x)), make([]float64, len(x))
	for i, g := range x {
		g := 30 * float64(g)
		gated[i] = g / (1 + math.Exp(-g)) * float64(y[i])
		square := 0.0
		for _, v := range x[i/width*width : (i/width+1)*width] {
			square += float64(v) * float64(v) / float64(width)
		}
		normed[i] = float64(x[i]) / math.Sqrt(square+0.5) * float64(y[i%width])
	}
	wide := make([]float32, len(x))
	for i, v := range x {
		wide[i] = 30 * v
	}
	c := &calls{b: t, graph: tf.NewGraph()}
	near(t, "GorbitSwiglu", ranOp(t, c, "GorbitSwiglu", c.shaped(wide, shape...), c.shaped(y, shape...)), gated)
	near(t, "GorbitRmsNorm", ranOp(t, c, "GorbitRmsNorm", c.shaped(x, shape...), c.constant(y[:width]), c.constant(float32(0.5))), normed)
}

// nextAttention checks attention of two rows, six heads of queries and two of keys.
func nextAttention(t *testing.T, tokens, columns int, biased bool) {
	t.Helper()
	const rows, heads, shared, d = 2, 6, 2, 20
	query, key, value := drawnNumbers(5, rows*tokens*heads*d), drawnNumbers(6, rows*columns*shared*d), drawnNumbers(7, rows*columns*shared*d)
	bias, rng := drawnNumbers(8, rows*heads*tokens*columns), rand.New(rand.NewPCG(9, 9))
	allowed, seen := make([][][]bool, rows), func(b, q, j int) bool { return q%7 != 3 && (j == 0 || rng.IntN(3) > 0) }
	for b := range allowed {
		allowed[b] = make([][]bool, tokens)
		for q := range allowed[b] {
			allowed[b][q] = make([]bool, columns)
			for j := range allowed[b][q] {
				allowed[b][q][j] = seen(b, q, j)
			}
		}
	}
	want := make([]float64, len(query))
	for i := range rows * tokens * heads {
		b, q, h := i/heads/tokens, i/heads%tokens, i%heads
		kv, sum, weights := h/(heads/shared), 0.0, make([]float64, columns)
		for j := range columns {
			score := 0.0
			for k := range d {
				score += float64(query[i*d+k]) * float64(key[((b*columns+j)*shared+kv)*d+k])
			}
			score *= 0.3
			if biased {
				score += float64(bias[((b*heads+h)*tokens+q)*columns+j])
			}
			if allowed[b][q][j] {
				weights[j] = math.Exp(score)
			}
			sum += weights[j]
		}
		for j, w := range weights {
			for k := range d {
				if sum > 0 { // what sees nothing gets zeros
					want[i*d+k] += w / sum * float64(value[((b*columns+j)*shared+kv)*d+k])
				}
			}
		}
	}
	c := &calls{b: t, graph: tf.NewGraph()}
	in := []tf.Input{c.shaped(query, rows, int64(tokens), heads*d), c.shaped(key, rows, int64(columns), shared*d), c.shaped(value, rows, int64(columns), shared*d),
		c.constant(allowed), c.constant(int32(heads)), c.constant(int32(shared)), c.constant(float32(0.3))}
	op := "GorbitNextAttention"
	if biased {
		op, in = op+"Biased", append(in, c.shaped(bias, rows, heads, int64(tokens), int64(columns)))
	}
	near(t, fmt.Sprintf("%s of %d tokens and %d columns", op, tokens, columns), ranOp(t, c, op, in...), want)
}
