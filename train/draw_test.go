package train

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/fault"
)

// TestGenerator holds what is drawn against the distributions, and against what runs began with.
func TestGenerator(t *testing.T) {
	for _, i := range []graphs.Initializer{{Kind: graphs.TruncatedNormal, Scale: 0.5}, {Kind: graphs.Uniform, Scale: 0.5}} {
		next := generator(i, 42, "model/head/kernel")
		const n = 100_000
		var sum, squares, most float64
		for range n {
			v := float64(next())
			sum, squares, most = sum+v, squares+v*v, max(most, math.Abs(v))
		}
		// The deviation of a normal distribution that is cut off at two, and that of a uniform one.
		want, limit := 0.5*0.87962566, 1.0
		if i.Kind == graphs.Uniform {
			want, limit = 0.5/math.Sqrt(3), 0.5
		}
		if mean, deviation := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 0.01 || math.Abs(deviation-want) > 0.005 || most > limit || most < 0.95*limit {
			t.Errorf("%s: mean %v, deviation %v, at most %v; expected 0, %v, %v", i.Kind, mean, deviation, most, want, limit)
		}
		if a, b := generator(i, 42, "a")(), generator(i, 42, "b")(); a == b {
			t.Errorf("%s: two variables begin with %v", i.Kind, a)
		}
	}
}

// TestInitValues wants the variables that no weights fill to follow the run's seed, on every strategy.
func TestInitValues(t *testing.T) {
	p, dir := testParams(t), t.TempDir()
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.Best, p.Checkpoint.Interval, p.Summary.Enabled = 1, noEval, "", 1, false
	p.Optimizer.LearningRate = 1e-30 // the values stay
	const head, bias = "model/classifier/kernel", "model/classifier/bias"
	begun := func(name string, change func(*Params)) map[string][]byte {
		p := p
		change(&p)
		run := filepath.Join(dir, name)
		mustTrain(t, p, run)
		values, _ := final(t, run)
		if len(values[head]) == 0 || len(values[bias]) == 0 {
			t.Fatalf("there is no %s or %s", head, bias)
		}
		return values
	}
	seeded := func(seed int64) func(*Params) {
		return func(p *Params) { p.Seed, p.InitValues = seed, valuesOfSeed }
	}
	export, other := begun("export", func(*Params) {}), begun("export 7", func(p *Params) { p.Seed = 7 })
	one, again, two := begun("42", seeded(42)), begun("42 on two", func(p *Params) { seeded(42)(p); p.Strategy.Devices = "cpu:2" }), begun("7", seeded(7))
	same := func(a, b map[string][]byte, name string) bool { return string(a[name]) == string(b[name]) }
	if !same(export, other, head) || same(export, one, head) || !same(one, again, head) || same(one, two, head) || !same(export, one, bias) {
		t.Error("the head does not follow init_values and the seed")
	}
	from := begun("from", func(p *Params) { seeded(7)(p); p.Init = filepath.Join(dir, "42") })
	if !same(from, one, head) {
		t.Error("init did not fill the head")
	}
	p = anyModelNamed("flowers").params(t)
	p.InitValues = valuesOfSeed
	if _, err := Train(t.Context(), p, filepath.Join(dir, "none"), quiet()); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "the export does not say how the values of its variables are drawn") {
		t.Errorf("without initializers: %v", err)
	}
	p.InitValues = "random"
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), `init_values is "random"; expected export or seed`) {
		t.Errorf("%v", err)
	}
}
