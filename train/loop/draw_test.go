package loop_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// TestGenerator holds what is drawn against the distributions, and against what runs began with.
func TestGenerator(t *testing.T) {
	for _, i := range []graphs.Initializer{{Kind: graphs.TruncatedNormal, Scale: 0.5}, {Kind: graphs.Uniform, Scale: 0.5}, {Kind: graphs.Uniform, Scale: 0.5, Mean: 3}, {Kind: graphs.Normal, Scale: 0.5, Mean: -1}} {
		next := loop.Generator(i, 42, "model/head/kernel")
		const n = 100_000
		var sum, squares, most float64
		for range n {
			v := float64(next()) - i.Mean
			sum, squares, most = sum+v, squares+v*v, max(most, math.Abs(v))
		}
		// The deviation of a normal distribution that is cut off at two, and that of a uniform one.
		want, limit := 0.5*0.87962566, 1.0
		switch i.Kind {
		case graphs.Uniform:
			want, limit = 0.5/math.Sqrt(3), 0.5
		case graphs.Normal:
			want, limit = 0.5, 3.5 // seven deviations
			most /= 0.7            // some are beyond five
		}
		if mean, deviation := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 0.01 || math.Abs(deviation-want) > 0.005 || most > limit || most < 0.95*limit {
			t.Errorf("%s: mean %v, deviation %v, at most %v; expected 0, %v, %v", i.Kind, mean, deviation, most, want, limit)
		}
		if a, b := loop.Generator(i, 42, "a")(), loop.Generator(i, 42, "b")(); a == b {
			t.Errorf("%s: two variables begin with %v", i.Kind, a)
		}
	}
}

// TestDraw draws some variables, and keeps those whose values are given or loaded.
func TestDraw(t *testing.T) {
	c := &graphs.Contract{}
	for name, i := range map[string]*graphs.Initializer{"kernel": {Kind: graphs.Normal, Scale: 1}, "loaded": {Kind: graphs.Unknown}, "bias": nil} {
		c.Variables = append(c.Variables, graphs.Variable{Name: name, DType: "float32", Shape: []int64{2, 2}, Initializer: i})
	}
	first, err := tf.NewTensor([][]float32{{1, 2}, {3, 4}})
	if err != nil {
		t.Fatal(err)
	}
	drawn := func(seed int64, loaded ...string) (string, error) {
		values, filled := map[string]*tf.Tensor{"kernel": first, "loaded": first, "bias": first}, map[string]*tf.Tensor{}
		for _, name := range loaded {
			filled[name] = first
		}
		err := loop.Draw(c, seed, values, filled)
		if values["loaded"] != first || values["bias"] != first || filled["kernel"] != nil && values["kernel"] != first {
			t.Error("a value that is given or loaded was drawn")
		}
		return fmt.Sprint(values["kernel"].Value()), err
	}
	one, err := drawn(1, "loaded")
	again, _ := drawn(1, "loaded")
	other, _ := drawn(2, "loaded")
	if err != nil || one != again || one == other || one == fmt.Sprint(first.Value()) {
		t.Errorf("drew %s and %s with seed 1, %s with 2: %v", one, again, other, err)
	}
	if _, err := drawn(1, "loaded", "kernel"); err != nil {
		t.Error(err)
	}
	if _, err := drawn(1); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "not among those that gorbit can draw from: loaded; expected") {
		t.Errorf("an unknown initializer: %v", err)
	}
}
