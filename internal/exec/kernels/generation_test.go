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
			for _, sizes := range [][3]int{{1, 64, 96}, {3, 50, 101}, {16, 200, 300}, {17, 200, 300}, {140, 37, 113}} {
				nextLayer(t, sizes[0], sizes[1], sizes[2])
			}
			for _, sizes := range [][3]int{{1, 64, 96}, {3, 50, 101}, {16, 200, 300}, {17, 300, 300}, {140, 37, 113}} {
				maps(t, sizes[0], sizes[1], sizes[2])
			}
			logSumExp(t)
			for _, sizes := range [][2]int{{1, 1}, {1, 70}, {5, 19}, {40, 70}} {
				cachedAttention(t, sizes[0], sizes[1])
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
	x, w := drawnNumbers(1, m*k), rounded(drawnNumbers(2, k*n))
	for i := range 4 {
		transposed, narrow := i%2 == 1, i > 1
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
			matrix := c.shaped(w, shape...)
			if narrow {
				matrix = c.cast(matrix, tf.Bfloat16)
			}
			return ranOp(t, c, op+suffix(narrow), c.shaped(x[(m-rows)*k:], int64(rows), int64(k)), matrix)
		}
		got, name := product(m), fmt.Sprintf("%s%s %dx%dx%d", op, suffix(narrow), m, k, n)
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
	gated, gate := make([]float64, len(x)), make([]float32, len(x))
	for i, v := range x {
		gate[i] = 30 * v
		g := float64(gate[i])
		gated[i] = g / (1 + math.Exp(-g)) * float64(y[i])
	}
	c := &calls{b: t, graph: tf.NewGraph()}
	near(t, "GorbitSwiglu", ranOp(t, c, "GorbitSwiglu", c.shaped(gate, shape...), c.shaped(y, shape...)), gated)
	near(t, "GorbitRmsNorm", ranOp(t, c, "GorbitRmsNorm", c.shaped(x, shape...), c.constant(y[:width]), c.constant(float32(0.5))), normed(wide(x), y[:width], 0.5))
}

// nextLayer checks what a layer of generation computes before attention and after it: rows of a width, and
// a feed-forward network of another.
func nextLayer(t *testing.T, rows, width, inner int) {
	t.Helper()
	const epsilon = 0.5
	x, scale, context := drawnNumbers(11, rows*width), drawnNumbers(12, width), drawnNumbers(13, rows*inner)
	output, gate, up, down := drawnMatrix(14, inner, width), drawnMatrix(15, width, inner), drawnMatrix(16, width, inner), drawnMatrix(17, inner, width)
	ran := func(op string, narrow bool, from, result int) []float32 {
		c := &calls{b: t, graph: tf.NewGraph()}
		matrix := func(x []float32, columns int) tf.Output { return c.shaped(x, int64(len(x)/columns), int64(columns)) }
		inputs := []tf.Input{matrix(x[from*width:], width), c.constant(scale), c.constant(float32(epsilon))}
		if op == "GorbitNextFeedForward" {
			inputs = []tf.Input{inputs[0], matrix(context[from*inner:], inner), matrix(output, width), inputs[1], inputs[2]}
		}
		inputs = append(inputs, matrix(gate, inner), matrix(up, inner), matrix(down, width))
		if op == "GorbitNextNormedProducts" {
			inputs[5] = matrix(output[:width*width], width)
		}
		for i, v := range inputs {
			if narrow && (i > 4 || i == 2 && len(inputs) == 8 || i > 2 && len(inputs) == 6) {
				inputs[i] = c.cast(v.(tf.Output), tf.Bfloat16)
			}
		}
		session := c.session()
		defer session.Close()
		got, err := session.Run(nil, []tf.Output{c.add(tf.OpSpec{Type: op + suffix(narrow), Input: inputs}).Output(result)}, nil)
		if err != nil {
			t.Fatalf("%s: %v", op, err)
		}
		return flat(got[0])
	}
	check := func(op string, result int, want []float64) {
		t.Helper()
		for _, narrow := range []bool{false, true} {
			got := ran(op, narrow, 0, result)
			near(t, fmt.Sprintf("%s%s %dx%dx%d, output %d", op, suffix(narrow), rows, width, inner, result), got, want)
			if last := ran(op, narrow, rows-1, result); !slices.Equal(last, got[len(got)-len(last):]) {
				t.Errorf("%s%s: the last row has other bits when it is alone", op, suffix(narrow))
			}
		}
	}
	begun := normed(wide(x), scale, epsilon)
	for i, w := range [][]float32{gate, up, output[:width*width]} {
		check("GorbitNextNormedProducts", i, product(begun, w, rows))
	}
	sum := product(wide(context), output, rows)
	for i, v := range x {
		sum[i] += float64(v)
	}
	n := normed(sum, scale, epsilon)
	gates, ups := product(n, gate, rows), product(n, up, rows)
	for i, g := range gates {
		gates[i] = g / (1 + math.Exp(-g)) * ups[i]
	}
	want := product(gates, down, rows)
	for i := range want {
		want[i] += sum[i]
	}
	check("GorbitNextFeedForward", 0, want)
}

// drawnMatrix returns a matrix whose products with rows are as large as these.
func drawnMatrix(seed uint64, inner, width int) []float32 {
	out := drawnNumbers(seed, inner*width)
	for i := range out {
		out[i] /= float32(math.Sqrt(float64(inner)))
	}
	return rounded(out)
}

// rounded makes numbers to those nearer to 0 that bfloat16 has.
func rounded(x []float32) []float32 {
	for i, v := range x {
		x[i] = math.Float32frombits(math.Float32bits(v) &^ 0xffff)
	}
	return x
}

// suffix ends the names of operations with matrices in bfloat16.
func suffix(narrow bool) string {
	if narrow {
		return "Bf16"
	}
	return ""
}

// wide returns numbers in float64.
func wide(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// product multiplies rows by a matrix.
func product(x []float64, w []float32, rows int) []float64 {
	inner := len(x) / rows
	width := len(w) / inner
	out := make([]float64, rows*width)
	for i := range out {
		for k := range inner {
			out[i] += x[i/width*inner+k] * float64(w[k*width+i%width])
		}
	}
	return out
}

// normed divides rows by the root of the mean of their squares, and multiplies them by a scale.
func normed(x []float64, scale []float32, epsilon float64) []float64 {
	width := len(scale)
	out := make([]float64, len(x))
	for i, v := range x {
		square := 0.0
		for _, u := range x[i/width*width : (i/width+1)*width] {
			square += u * u / float64(width)
		}
		out[i] = v / math.Sqrt(square+epsilon) * float64(scale[i%width])
	}
	return out
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
