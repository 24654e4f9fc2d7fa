package train

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestInitValues wants the variables that no weights fill to follow the run's seed, on every strategy.
func TestInitValues(t *testing.T) {
	long(t)
	p, dir := testParams(t), t.TempDir()
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.Best, p.Checkpoint.Interval, p.Summary.Enabled = 1, params.NoEval, "", 1, false
	p.Optimizer.LearningRate = 1e-30 // the values stay
	const head, bias = "model/classifier/kernel", "model/classifier/bias"
	begun := func(name string, change func(*params.Params)) map[string][]byte {
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
	seeded := func(seed int64) func(*params.Params) {
		return func(p *params.Params) { p.Seed, p.InitValues = seed, params.ValuesOfSeed }
	}
	export, other := begun("export", func(*params.Params) {}), begun("export 7", func(p *params.Params) { p.Seed = 7 })
	one, again, two := begun("42", seeded(42)), begun("42 on two", func(p *params.Params) { seeded(42)(p); p.Strategy.Devices = "cpu:2" }), begun("7", seeded(7))
	same := func(a, b map[string][]byte, name string) bool { return string(a[name]) == string(b[name]) }
	if !same(export, other, head) || same(export, one, head) || !same(one, again, head) || same(one, two, head) || !same(export, one, bias) {
		t.Error("the head does not follow init_values and the seed")
	}
	from := begun("from", func(p *params.Params) { seeded(7)(p); p.Init = filepath.Join(dir, "42") })
	if !same(from, one, head) {
		t.Error("init did not fill the head")
	}
	p = anyModelNamed("flowers").params(t)
	p.InitValues = params.ValuesOfSeed
	if _, err := Train(t.Context(), p, filepath.Join(dir, "none"), quiet()); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "the export does not say how the values of its variables are drawn") {
		t.Errorf("without initializers: %v", err)
	}
	p.InitValues = "random"
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), `init_values is "random"; expected export or seed`) {
		t.Errorf("%v", err)
	}
}
