// Tests from outside: a package with tests inside is compiled twice, and the kernels take longest.
package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/exec/kernels"
)

func TestRegister(t *testing.T) {
	for range 2 {
		if err := kernels.Register(); err != nil {
			t.Fatal(err)
		}
	}
	if name := kernels.Instructions(); !slices.Contains([]string{"avx512", "avx2", "neon", "generic"}, name) {
		t.Errorf("instructions %q", name)
	}
}

func TestUse(t *testing.T) {
	defer kernels.Use("")
	if err := kernels.Use("generic"); err != nil || kernels.Instructions() != "generic" {
		t.Errorf("%v, instructions %s", err, kernels.Instructions())
	}
	if err := kernels.Use("mmx"); err == nil || !strings.Contains(err.Error(), `"mmx"`) {
		t.Errorf("got %v", err)
	}
	if kernels.Instructions() != "generic" {
		t.Errorf("instructions %s after a refusal", kernels.Instructions())
	}
}

func TestOps(t *testing.T) {
	seen := make(map[string]bool)
	for _, op := range kernels.Ops() {
		seen[op.Implements] = true
		if len(op.Inputs) == 0 {
			t.Errorf("%s has no inputs", op.Name)
		}
		for _, a := range append(op.Inputs, op.Outputs...) {
			if a.Name == "" || a.DType == "DT_" {
				t.Errorf("%s: argument %q of dtype %s", op.Name, a.Name, a.DType)
			}
		}
	}
	for _, name := range []string{"gorbit.gelu", "gorbit.residual_norm_dropout_gradient", "gorbit.attention", "gorbit.adamw", "gorbit.sgd", "gorbit.lion"} {
		if !seen[name] {
			t.Errorf("no operation for %s", name)
		}
	}
}

// TestNarrowAttention holds attention on bfloat16 numbers against that on the same numbers in
// float32, rounded by TensorFlow: both compute in float32, so the results are equal.
func TestNarrowAttention(t *testing.T) {
	if err := kernels.Register(); err != nil {
		t.Fatal(err)
	}
	defer kernels.Use("")
	for _, instructions := range []string{"avx512", "avx2", "neon", "generic"} {
		if err := kernels.Use(instructions); err != nil {
			t.Run(instructions, func(t *testing.T) { t.Skip(err) })
			continue
		}
		for _, kind := range []string{"Attention", "CausalAttention", "LocalAttention"} {
			for _, width := range []int64{24, 64} {
				t.Run(fmt.Sprintf("%s, %s, width %d", instructions, kind, width), func(t *testing.T) {
					narrowAttention(t, "Gorbit"+kind, width)
				})
			}
		}
	}
}

func narrowAttention(t *testing.T, kind string, width int64) {
	t.Helper()
	c := &calls{b: t, graph: tf.NewGraph()}
	ids := sequences(t, "5,30,1;36;2,3;17,16,2")
	positions := int64(len(ids) * len(ids[0]))
	qkv, dy := c.random(1, positions, 3*width), c.random(2, positions, width)
	// A number that is no number stays none.
	wild := make([]float32, positions*width)
	wild[3] = float32(math.NaN())
	dy = c.add(tf.OpSpec{Type: "Add", Input: []tf.Input{dy, c.shaped(wild, positions, width)}}).Output(0)
	more := []tf.Input{c.constant(ids), c.constant(int32(2))}
	local := kind == "GorbitLocalAttention"
	if local {
		more = append(more, c.constant(int32(7)))
	}
	drawn := c.drawn()
	var results [2][]tf.Output
	for i, suffix := range []string{"Bf16", ""} {
		x, dx := c.cast(qkv, tf.Bfloat16), c.cast(dy, tf.Bfloat16)
		if suffix == "" {
			x, dx = c.cast(x, tf.Float), c.cast(dx, tf.Float)
		}
		in := append([]tf.Input{x}, more...)
		plain := c.add(tf.OpSpec{Type: kind + suffix, Input: in})
		in = append(in, drawn...)
		forward := c.add(tf.OpSpec{Type: kind + "Dropout" + suffix, Input: in})
		context := forward.Output(0)
		if suffix == "" {
			// The gradient takes the context as it was kept: rounded.
			context = c.cast(c.cast(context, tf.Bfloat16), tf.Float)
		}
		in = append(append([]tf.Input{dx}, in...), context)
		for k := 1; k < 6; k++ {
			in = append(in, forward.Output(k))
		}
		gradient := c.add(tf.OpSpec{Type: kind + "DropoutGradient" + suffix, Input: in})
		for _, out := range []tf.Output{plain.Output(0), forward.Output(0), gradient.Output(0)} {
			results[i] = append(results[i], c.cast(c.cast(out, tf.Bfloat16), tf.Float))
		}
		if !local {
			results[i] = append(results[i], gradient.Output(1))
		}
	}
	session := c.session()
	defer session.Close()
	got, err := session.Run(nil, slices.Concat(results[0], results[1]), nil)
	if err != nil {
		t.Fatal(err)
	}
	n := len(results[0])
	for i, name := range []string{"prediction", "context", "gradient", "bias' gradient"}[:n] {
		narrow, wide := flat(got[i]), flat(got[n+i])
		if len(narrow) == 0 || slices.Max(narrow) == 0 {
			t.Errorf("%s has no numbers", name)
		}
		equal := func(x, y float32) bool { return x == y || x != x && y != y }
		if !slices.EqualFunc(narrow, wide, equal) {
			t.Errorf("%s differs:\n%v\n%v", name, narrow, wide)
		}
		if nans := slices.ContainsFunc(narrow, func(x float32) bool { return x != x }); nans != (i > 1) {
			t.Errorf("%s has numbers that are none: %v", name, nans)
		}
	}
}

func flat(t *tf.Tensor) []float32 {
	switch rows := t.Value().(type) {
	case []float32:
		return rows
	case [][]float32:
		return slices.Concat(rows...)
	}
	return nil
}

// random returns normal numbers, the same for a seed.
func (c *calls) random(seed uint64, rows, width int64) tf.Output {
	return c.shaped(flatNoise(seed, rows*width), rows, width)
}

func (c *calls) shaped(values []float32, shape ...int64) tf.Output {
	return c.add(tf.OpSpec{Type: "Reshape", Input: []tf.Input{c.constant(values), c.constant(shape)}}).Output(0)
}

func (c *calls) cast(x tf.Output, to tf.DataType) tf.Output {
	if x.DataType() == to {
		return x
	}
	return c.add(tf.OpSpec{Type: "Cast", Input: []tf.Input{x}, Attrs: map[string]any{"SrcT": x.DataType(), "DstT": to, "Truncate": false}}).Output(0)
}

// TestNarrowProducts holds GELU and norms that take and give bfloat16 numbers against those of float32
// whose inputs and results TensorFlow casts: both compute in float32, so the results are equal.
func TestNarrowProducts(t *testing.T) {
	if err := kernels.Register(); err != nil {
		t.Fatal(err)
	}
	defer kernels.Use("")
	for _, instructions := range []string{"avx512", "avx2", "neon", "generic"} {
		if err := kernels.Use(instructions); err != nil {
			t.Run(instructions, func(t *testing.T) { t.Skip(err) })
			continue
		}
		for _, width := range []int64{3, 16, 37, 64} {
			t.Run(fmt.Sprintf("%s, width %d", instructions, width), func(t *testing.T) { narrowProducts(t, width) })
		}
	}
}

func narrowProducts(t *testing.T, width int64) {
	t.Helper()
	const rows = 70
	c := &calls{b: t, graph: tf.NewGraph()}
	wild := make([]float32, rows*width)
	wild[2*width+1], wild[4*width] = float32(math.NaN()), float32(math.Inf(1)) // stay what they are
	x := c.add(tf.OpSpec{Type: "Add", Input: []tf.Input{c.random(1, rows, width), c.shaped(wild, rows, width)}}).Output(0)
	dy, residual := c.random(2, rows, width), c.random(3, rows, width)
	scale, offset := c.constant(flatNoise(4, width)), c.constant(flatNoise(5, width))
	drawn := c.drawn()
	var results [2][]tf.Output
	for i, suffix := range []string{"Bf16", ""} {
		x, dx := c.cast(x, tf.Bfloat16), c.cast(dy, tf.Bfloat16)
		if suffix == "" {
			x, dx = c.cast(x, tf.Float), c.cast(dx, tf.Float)
		}
		norm := []tf.Input{x, residual, scale, offset, c.constant(float32(1e-6))}
		plain := c.add(tf.OpSpec{Type: "GorbitResidualNorm" + suffix, Input: norm})
		forward := c.add(tf.OpSpec{Type: "GorbitResidualNormDropout" + suffix, Input: append(norm, drawn...)})
		in := append([]tf.Input{dy, scale}, drawn...)
		for k := 1; k < 4; k++ {
			in = append(in, forward.Output(k))
		}
		backward := c.add(tf.OpSpec{Type: "GorbitResidualNormDropoutGradient" + suffix, Input: in})
		gelu := c.add(tf.OpSpec{Type: "GorbitGelu" + suffix, Input: []tf.Input{x}})
		gradient := c.add(tf.OpSpec{Type: "GorbitGeluGradient" + suffix, Input: []tf.Input{dx, x}})
		tanh := c.add(tf.OpSpec{Type: "GorbitGeluTanh" + suffix, Input: []tf.Input{x}})
		slope := c.add(tf.OpSpec{Type: "GorbitGeluTanhGradient" + suffix, Input: []tf.Input{dx, x}})
		for _, out := range []tf.Output{gelu.Output(0), gradient.Output(0), gradient.Output(2), backward.Output(0), tanh.Output(0), slope.Output(0), slope.Output(2)} {
			results[i] = append(results[i], c.cast(c.cast(out, tf.Bfloat16), tf.Float))
		}
		results[i] = append(results[i], gradient.Output(1), slope.Output(1), plain.Output(0), forward.Output(0), forward.Output(1), forward.Output(2))
		for k := 1; k < 5; k++ {
			results[i] = append(results[i], backward.Output(k))
		}
	}
	session := c.session()
	defer session.Close()
	got, err := session.Run(nil, slices.Concat(results[0], results[1]), nil)
	if err != nil {
		t.Fatal(err)
	}
	equal := func(x, y float32) bool { return x == y || x != x && y != y }
	n := len(results[0])
	for i := range n {
		narrow, wide := flat(got[i]), flat(got[n+i])
		if len(narrow) == 0 || !slices.EqualFunc(narrow, wide, equal) {
			t.Errorf("result %d differs:\n%v\n%v", i, narrow, wide)
		}
	}
}

// flatNoise returns normal numbers, the same for a seed.
func flatNoise(seed uint64, n int64) []float32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	return values
}
