package tune

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"testing"
)

// golden was written by Optuna: testdata/golden.py.
//
//go:embed testdata/golden.json
var golden []byte

// TestDensities compares densities with those of Optuna's Parzen estimator.
func TestDensities(t *testing.T) {
	var want struct {
		Densities []struct {
			Distribution  string
			Seen, At, Log []float64
		}
	}
	if err := json.Unmarshal(golden, &want); err != nil || len(want.Densities) != 30 {
		t.Fatalf("%v: %d densities", err, len(want.Densities))
	}
	for _, w := range want.Densities {
		var d Distribution
		if err := json.Unmarshal([]byte(w.Distribution), &d); err != nil {
			t.Fatal(err)
		}
		e := newDensity(d, w.Seen)
		for i, v := range w.At {
			if got := e.log(v); math.Abs(got-w.Log[i]) > 1e-9*max(1, math.Abs(w.Log[i])) {
				t.Errorf("%s after %d values: the density at %v is %v, expected %v", w.Distribution, len(w.Seen), v, got, w.Log[i])
			}
		}
	}
}

// TestJudgements compares pruners with those of Optuna, whose step is then the number of evaluations.
func TestJudgements(t *testing.T) {
	var want struct {
		Judgements []struct {
			Pruner, Direction string
			Trials            []struct {
				Reports []string
				Last    int
				Pruned  bool
			}
		}
	}
	if err := json.Unmarshal(golden, &want); err != nil || len(want.Judgements) != 4 {
		t.Fatalf("%v: %d cases", err, len(want.Judgements))
	}
	for _, w := range want.Judgements {
		c := config(Random, w.Pruner)
		c.Direction, c.Trials = w.Direction, len(w.Trials)
		c.Pruner.Startup, c.Pruner.Warmup, c.Pruner.Factor = 3, 1, 2
		s := NewStudy("s")
		write := func(ops ...Op) {
			for _, op := range ops {
				if err := s.Apply(op); err != nil {
					t.Fatal(err)
				}
			}
		}
		ops, err := s.Begin(c)
		if err != nil {
			t.Fatal(err)
		}
		write(ops...)
		pruned := 0
		for number, trial := range w.Trials {
			write(s.Ask(noon))
			for i, text := range trial.Reports {
				v, err := strconv.ParseFloat(text, 64)
				if err != nil {
					t.Fatal(err)
				}
				if op := s.Report(number, Report{int64(100 * (i + 1)), v}); op != nil {
					write(op)
				}
			}
			write(s.End(number, "", noon)...)
			got := s.Trials()[number]
			if len(got.Reports) != trial.Last || (got.State == Pruned) != trial.Pruned {
				t.Errorf("%s %s: trial %d is %v after %d reports; expected %d, pruned %v", w.Pruner, w.Direction, number, got.State, len(got.Reports), trial.Last, trial.Pruned)
			}
			if trial.Pruned {
				pruned++
			}
		}
		if pruned == 0 {
			t.Errorf("%s %s: no trial is pruned", w.Pruner, w.Direction)
		}
	}
}

// TestSearches wants tpe to find the best of a function sooner than random search does.
func TestSearches(t *testing.T) {
	found := map[string]float64{}
	for seed := range uint64(4) {
		for _, sampler := range []string{Random, TPE} {
			c := config(sampler, NoPruner)
			c.Sampler.Seed, c.Sampler.Startup, c.Trials = seed, 10, 40
			c.Space[3].Distribution.High = 90 // none fails
			w := &world{t: t, most: math.MaxInt}
			best := w.run(c, 1).Best()
			found[sampler] += best.Value / 4
		}
	}
	if found[TPE] <= found[Random] {
		t.Errorf("the best values are %v on average; expected tpe to find a better one", fmt.Sprint(found))
	}
}
