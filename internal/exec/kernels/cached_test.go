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

// mapCase is an operation that maps rows: what it gives, and its inputs for the rows from one on, by functions
// for rows of float32 numbers and for matrices of a type.
type mapCase struct {
	op     string
	result int
	want   []float64
	inputs func(c *calls, from int, matrix func([]float32, int) tf.Output) []tf.Input
}

// maps checks maps of rows with biases, of a width to another, and norms of the rows.
func maps(t *testing.T, rows, inner, width int) {
	t.Helper()
	x, w, bias, context := drawnNumbers(21, rows*width), drawnMatrix(22, inner, width), drawnNumbers(23, width), drawnNumbers(24, rows*inner)
	sum, added, table := product(wide(context), w, rows), make([]float64, rows*width), make([]float32, len(w))
	for i := range sum {
		sum[i] += float64(bias[i%width])
		added[i] = sum[i] + float64(x[i])
	}
	for i, v := range w {
		table[i%width*inner+i/width] = v
	}
	at := func(c *calls, x []float32, columns, from int) tf.Output {
		return c.shaped(x[from*columns:], int64(len(x)/columns-from), int64(columns))
	}
	cases := []mapCase{{"GorbitNextMapTransposed", 0, sum, func(c *calls, from int, matrix func([]float32, int) tf.Output) []tf.Input {
		return []tf.Input{at(c, context, inner, from), matrix(table, inner), c.constant(bias)}
	}}, {"GorbitNextMapAdd", 0, added, func(c *calls, from int, matrix func([]float32, int) tf.Output) []tf.Input {
		return []tf.Input{at(c, x, width, from), at(c, context, inner, from), matrix(w, width), c.constant(bias)}
	}}}
	for i, act := range []func(float64) float64{
		func(x float64) float64 { return x },
		func(x float64) float64 { return max(x, 0) },
		func(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) },
		func(x float64) float64 { return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) },
	} {
		want := make([]float64, len(sum))
		for k, v := range sum {
			want[k] = act(v)
		}
		cases = append(cases, mapCase{"GorbitNextMap", 0, want, func(c *calls, from int, matrix func([]float32, int) tf.Output) []tf.Input {
			return []tf.Input{at(c, context, inner, from), matrix(w, width), c.constant(bias), c.constant(int32(i))}
		}})
	}
	for result := range 3 {
		cases = append(cases, mapCase{"GorbitNextMaps", result, sum, func(c *calls, from int, matrix func([]float32, int) tf.Output) []tf.Input {
			in := []tf.Input{at(c, context, inner, from)}
			for i := range 3 {
				if i == result {
					in = append(in, matrix(w, width), c.constant(bias))
				} else {
					in = append(in, matrix(drawnMatrix(25, inner, 30), 30), c.constant(drawnNumbers(26, 30)))
				}
			}
			return in
		}})
	}
	for _, m := range cases {
		for _, narrow := range []bool{false, true} {
			m.check(t, narrow, rows)
		}
	}
	c, scale := &calls{b: t, graph: tf.NewGraph()}, drawnNumbers(27, width)
	got := ranOp(t, c, "GorbitNextNorm", at(c, x, width, 0), c.constant(scale), c.constant(bias), c.constant(float32(0.5)))
	near(t, "GorbitNextNorm", got, centered(wide(x), scale, bias, 0.5))
}

// check holds an operation against what it should give, and the bits of the last row against those of it alone.
func (m mapCase) check(t *testing.T, narrow bool, rows int) {
	t.Helper()
	ran := func(from int) []float32 {
		c := &calls{b: t, graph: tf.NewGraph()}
		in := m.inputs(c, from, func(x []float32, columns int) tf.Output {
			y := c.shaped(x, int64(len(x)/columns), int64(columns))
			if narrow {
				y = c.cast(y, tf.Bfloat16)
			}
			return y
		})
		session := c.session()
		defer session.Close()
		got, err := session.Run(nil, []tf.Output{c.add(tf.OpSpec{Type: m.op + suffix(narrow), Input: in}).Output(m.result)}, nil)
		if err != nil {
			t.Fatalf("%s: %v", m.op, err)
		}
		return flat(got[0])
	}
	got := ran(0)
	near(t, fmt.Sprintf("%s%s, %d rows", m.op, suffix(narrow), rows), got, m.want)
	if last := ran(rows - 1); !slices.Equal(last, got[len(got)-len(last):]) {
		t.Errorf("%s%s, %d rows: the last row has other bits when it is alone", m.op, suffix(narrow), rows)
	}
}

// centered is layer normalization.
func centered(x []float64, scale, offset []float32, epsilon float64) []float64 {
	width, out := len(scale), make([]float64, len(x))
	for from := 0; from < len(x); from += width {
		mean, square := 0.0, 0.0
		for _, v := range x[from : from+width] {
			mean += v / float64(width)
		}
		for _, v := range x[from : from+width] {
			square += (v - mean) * (v - mean) / float64(width)
		}
		for i, v := range x[from : from+width] {
			out[from+i] = (v-mean)/math.Sqrt(square+epsilon)*float64(scale[i]) + float64(offset[i])
		}
	}
	return out
}

// logSumExp checks sums of exponentials of many numbers, of few, and of some that are not finite.
func logSumExp(t *testing.T) {
	t.Helper()
	for _, n := range []int{0, 1, 15, 16, 17, 1000, 50257} {
		x, sum := drawnNumbers(31, n), 0.0
		for i := range x {
			x[i] = 20*x[i] + 300
			sum += math.Exp(float64(x[i]) - 300)
		}
		if n > 1 {
			sum -= math.Exp(float64(x[1]) - 300)
			x[1] = float32(math.Inf(-1))
		}
		want := 300 + math.Log(sum)
		if got := kernels.LogSumExp(x); !(math.Abs(got-want) < 1e-6) && got != want {
			t.Errorf("the sum of %d numbers is %v; expected %v", n, got, want)
		}
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
			for i := 0; i < n; i += max(1, n-1) {
				y := slices.Clone(x)
				if y[i] = bad; kernels.LogSumExp(y) == kernels.LogSumExp(y) {
					t.Errorf("%v among %d numbers is not told", bad, n)
				}
			}
		}
	}
}

// cachedCase is attention of some new tokens, the last of rows in caches, whose slots follow each other in the
// first row and not in the second. The first is shorter if there are columns enough; the second's first new
// token is padding if there are others.
type cachedCase struct {
	tokens, columns           int
	context, slots, positions []int32
	keys, values              []float32 // what was in the caches
	query, key, value, bias   []float32
}

const cachedRows, cachedHeads, cachedShared, cachedWidth, cachedSlots = 2, 6, 2, 20, 200

func newCachedCase(tokens, columns int) cachedCase {
	const kept = cachedShared * cachedWidth
	n := cachedRows * tokens
	k := cachedCase{tokens: tokens, columns: columns, context: make([]int32, cachedRows*columns), slots: make([]int32, n), positions: make([]int32, n),
		keys: drawnNumbers(41, cachedSlots*kept), values: drawnNumbers(42, cachedSlots*kept),
		query: drawnNumbers(43, n*cachedHeads*cachedWidth), key: drawnNumbers(44, n*kept), value: drawnNumbers(45, n*kept),
		bias: drawnNumbers(46, n*cachedHeads*columns)}
	order := rand.New(rand.NewPCG(47, 9)).Perm(cachedSlots - 100)
	for i := range columns {
		k.context[i], k.context[columns+i] = int32(i+1), int32(100+order[i])
	}
	if columns > tokens+3 {
		clear(k.context[columns-3 : columns])
	}
	for i := range k.slots {
		row, length := i/tokens, columns
		for k.context[row*columns+length-1] == 0 {
			length--
		}
		if at := length - tokens + i%tokens; row == 0 || i%tokens > 0 || tokens == 1 {
			k.slots[i], k.positions[i] = k.context[row*columns+at], int32(at)
		}
	}
	return k
}

// gathered returns the entries of a cache in the order of the columns, with new ones written, and the cache.
func (k cachedCase) gathered(cache, entries []float32) (columns, written []float32) {
	const kept = cachedShared * cachedWidth
	written = slices.Clone(cache)
	for i, slot := range k.slots {
		if slot != 0 {
			copy(written[int(slot)*kept:][:kept], entries[i*kept:])
		}
	}
	for _, slot := range k.context {
		columns = append(columns, written[int(slot)*kept:][:kept]...)
	}
	return columns, written
}

// seen tells which columns each new token sees.
func (k cachedCase) seen(window int) [][][]bool {
	out := make([][][]bool, cachedRows)
	for i, p := range k.positions {
		row := make([]bool, k.columns)
		for j := range row {
			row[j] = j <= int(p) && (window == 0 || int(p)-j < window)
		}
		out[i/k.tokens] = append(out[i/k.tokens], row)
	}
	return out
}

// cachedAttention checks attention to tokens in caches against that to keys and values side by side.
func cachedAttention(t *testing.T, tokens, columns int) {
	t.Helper()
	const kept, width = cachedShared * cachedWidth, cachedHeads * cachedWidth
	k, rows := newCachedCase(tokens, columns), int64(cachedRows)
	key, keys := k.gathered(k.keys, k.key)
	value, values := k.gathered(k.values, k.value)
	for _, biased := range []bool{false, true} {
		for _, window := range []int{0, 1, 7} {
			c := &calls{b: t, graph: tf.NewGraph()}
			numbers := []tf.Input{c.constant(int32(cachedHeads)), c.constant(int32(cachedShared)), c.constant(float32(0.3))}
			bias := c.shaped(k.bias, rows, cachedHeads, int64(tokens), int64(columns))
			in := append([]tf.Input{c.shaped(k.query, rows, int64(tokens), width), c.shaped(key, rows, int64(columns), kept), c.shaped(value, rows, int64(columns), kept), c.constant(k.seen(window))}, numbers...)
			places := func(x []int32, n int) tf.Output {
				return c.add(tf.OpSpec{Type: "Reshape", Input: []tf.Input{c.constant(x), c.constant([]int64{rows, int64(n)})}}).Output(0)
			}
			handles := []tf.Input{c.variable(c.shaped(k.keys, cachedSlots, kept)), c.variable(c.shaped(k.values, cachedSlots, kept))}
			own := append([]tf.Input{c.shaped(k.query, rows*int64(tokens), width), c.shaped(k.key, rows*int64(tokens), kept), c.shaped(k.value, rows*int64(tokens), kept),
				places(k.slots, tokens), places(k.context, columns), places(k.positions, tokens)}, numbers...)
			own = append(append(own, c.constant(int32(window))), handles...)
			names := []string{"GorbitNextAttention", "GorbitNextCachedAttention"}
			if biased {
				names[0], names[1], in, own = names[0]+"Biased", names[1]+"Biased", append(in, bias), append(own, bias)
			}
			want := c.add(tf.OpSpec{Type: names[0], Input: in}).Output(0)
			op := c.add(tf.OpSpec{Type: names[1], Input: own})
			var read []tf.Output
			for _, h := range handles {
				read = append(read, c.add(tf.OpSpec{Type: "ReadVariableOp", Input: []tf.Input{h}, ControlDependencies: []*tf.Operation{op}, Attrs: map[string]any{"dtype": tf.Float}}).Output(0))
			}
			got := c.ran(append([]tf.Output{want, op.Output(0)}, read...))
			name := fmt.Sprintf("%s of %d tokens and %d columns, window %d", names[1], tokens, columns, window)
			near(t, name, got[1], wide(got[0]))
			if !slices.Equal(got[2], keys) || !slices.Equal(got[3], values) {
				t.Errorf("%s: the caches have other entries than were written", name)
			}
		}
	}
	sourceAttention(t, k, key, value)
}

// ran returns what outputs hold once the variables have their values.
func (c *calls) ran(outputs []tf.Output) [][]float32 {
	session := c.session()
	defer session.Close()
	if _, err := session.Run(nil, nil, c.assign); err != nil {
		c.b.Fatal(err)
	}
	got, err := session.Run(nil, outputs, nil)
	if err != nil {
		c.b.Fatal(err)
	}
	var out [][]float32
	for _, v := range got {
		out = append(out, flat(v))
	}
	return out
}

// sourceAttention checks attention to the rows of a case as to sources.
func sourceAttention(t *testing.T, k cachedCase, key, value []float32) {
	t.Helper()
	const kept, width = cachedShared * cachedWidth, cachedHeads * cachedWidth
	rows, tokens, columns := int64(cachedRows), int64(k.tokens), int64(k.columns)
	_, keys := k.gathered(k.keys, k.key)
	_, values := k.gathered(k.values, k.value)
	seen := make([][][]bool, rows)
	for i := range k.positions {
		row := make([]bool, columns)
		for j := range row {
			row[j] = k.context[i/k.tokens*k.columns+j] != 0
		}
		seen[i/k.tokens] = append(seen[i/k.tokens], row)
	}
	c := &calls{b: t, graph: tf.NewGraph()}
	numbers := []tf.Input{c.constant(int32(cachedHeads)), c.constant(int32(cachedShared)), c.constant(float32(0.3))}
	in := append([]tf.Input{c.shaped(k.query, rows, tokens, width), c.shaped(key, rows, columns, kept), c.shaped(value, rows, columns, kept), c.constant(seen)}, numbers...)
	source := c.add(tf.OpSpec{Type: "Reshape", Input: []tf.Input{c.constant(k.context), c.constant([]int64{rows, columns})}}).Output(0)
	own := append([]tf.Input{c.shaped(k.query, rows*tokens, width), source}, numbers...)
	own = append(own, c.variable(c.shaped(keys, cachedSlots, kept)), c.variable(c.shaped(values, cachedSlots, kept)))
	want := c.add(tf.OpSpec{Type: "GorbitNextAttention", Input: in}).Output(0)
	got := c.ran([]tf.Output{want, c.add(tf.OpSpec{Type: "GorbitNextSourceAttention", Input: own}).Output(0)})
	near(t, fmt.Sprintf("GorbitNextSourceAttention of %d tokens and %d columns", tokens, columns), got[1], wide(got[0]))
}

// TestSlotsOutside has slots that no cache has.
func TestSlotsOutside(t *testing.T) {
	if err := kernels.Register(); err != nil {
		t.Fatal(err)
	}
	const kept, width = cachedShared * cachedWidth, cachedHeads * cachedWidth
	for _, bad := range []int32{-1, cachedSlots} {
		k := newCachedCase(1, 2)
		k.context[1] = bad
		c := &calls{b: t, graph: tf.NewGraph()}
		source := c.add(tf.OpSpec{Type: "Reshape", Input: []tf.Input{c.constant(k.context), c.constant([]int64{2, 2})}}).Output(0)
		op := c.add(tf.OpSpec{Type: "GorbitNextSourceAttention", Input: []tf.Input{c.shaped(k.query, 2, width), source, c.constant(int32(cachedHeads)), c.constant(int32(cachedShared)), c.constant(float32(1)),
			c.variable(c.shaped(k.keys, cachedSlots, kept)), c.variable(c.shaped(k.values, cachedSlots, kept))}})
		session := c.session()
		defer session.Close()
		if _, err := session.Run(nil, nil, c.assign); err != nil {
			t.Fatal(err)
		}
		if _, err := session.Run(nil, []tf.Output{op.Output(0)}, nil); err == nil {
			t.Errorf("slot %d of %d is taken; expected an error", bad, cachedSlots)
		}
	}
}
