package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// A run has the same log, summaries, variables and state for any number of steps per call.
func TestStepsPerCallChangeNothing(t *testing.T) {
	for name, cfg := range resumeWorlds() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want, _ := uninterrupted(t, cfg)
				for _, cfg.call = range []int64{2, 3, 4, 5, 7, 20, 1000} {
					for _, cfg.short = range []bool{false, true} {
						var last *process
						got := finish(t, cfg, func(_ int, p *process) { last = p })
						if d := got.diff(want); d != "" {
							t.Errorf("%d steps per call, short %v: %s", cfg.call, cfg.short, d)
						}
						if most := slices.Max(last.model.calls); most < 2 || int64(most) > min(cfg.call, cfg.loop) {
							t.Errorf("%d steps per call in loops of %d: the calls were %v", cfg.call, cfg.loop, last.model.calls)
						}
					}
				}
			})
		})
	}
}

// The same with batches that are not finite and boundaries anywhere.
func TestStepsPerCallChangeNothingAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("goes through thousands of cases")
	}
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(150) {
			r := rand.New(rand.NewPCG(seed, 2))
			cfg := defaultWorld()
			cfg.loop, cfg.total = 1+r.Int64N(12), 10+r.Int64N(20)
			cfg.save, cfg.eval, cfg.summary = r.Int64N(9), r.Int64N(9), r.Int64N(9)
			cfg.background = r.IntN(2) == 0
			if r.IntN(3) == 0 {
				cfg.total, cfg.batches = UntilEnd, 12+r.Int64N(20)
			}
			if r.IntN(3) == 0 {
				cfg.limit, cfg.grow = 20, 1+r.Int64N(6)
			}
			for id := range int64(40) {
				switch r.IntN(8) {
				case 0:
					cfg.nan = append(cfg.nan, id)
				case 1:
					cfg.inf = append(cfg.inf, id)
				}
			}
			if cfg.skip = 100; r.IntN(3) == 0 {
				cfg.skip, cfg.rollbacks, cfg.save, cfg.nan, cfg.inf = 0, 100, 1+r.Int64N(4), []int64{5 + r.Int64N(4), 9 + r.Int64N(4)}, nil
				cfg.guard = r.IntN(2) == 0
			}
			run := func(cfg worldConfig) (outcome, string) {
				w := &world{worldConfig: cfg}
				p := w.start(t)
				out, err := p.run()
				o := p.outcome(t, out)
				// A time: steps after one that is not finite take some.
				o.summaries = slices.DeleteFunc(o.summaries, func(l string) bool { return strings.Contains(l, "loop_overhead") })
				return o, fmt.Sprint(err)
			}
			want, wantErr := run(cfg)
			for _, cfg.call = range []int64{2, 3, 5, 8, 100} {
				got, gotErr := run(cfg)
				if wantErr != "<nil>" && !cfg.guard {
					// Such a graph continues after the step that ends the run. Nothing is saved.
					got.weight, got.count = want.weight, want.count
				}
				if d := got.diff(want); d != "" || gotErr != wantErr {
					t.Fatalf("seed %d, %d steps per call: error %s, want %s; %s", seed, cfg.call, gotErr, wantErr, d)
				}
			}
		}
	})
}

// Killed and stopped anywhere, also within a call, and continued with another number of steps per call.
func TestResumeWithStepsPerCall(t *testing.T) {
	if testing.Short() {
		t.Skip("goes through thousands of cases")
	}
	for name, cfg := range resumeWorlds() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want, _ := uninterrupted(t, cfg)
				cfg.call = 3
				_, events := uninterrupted(t, cfg)
				for at := 1; at <= events; at++ {
					for _, stop := range []bool{false, true} {
						got := finish(t, cfg, func(n int, p *process) {
							if p.call = 3 + 2*int64(n); n > 0 {
								return
							}
							if stop {
								p.stopAt = at
							} else {
								p.killAt = at
							}
						})
						if d := got.diff(want); d != "" {
							t.Fatalf("interrupted at event %d of %d (stop %v): %s", at, events, stop, d)
						}
					}
				}
			})
		})
	}
}

// callModel answers calls of several steps from a script.
type callModel struct {
	scriptedModel
	answers [][]StepResult
	errs    []error
	asked   [][]string
}

func (m *callModel) Steps(_ context.Context, batches []string, hypers []Hyper) ([]StepResult, error) {
	m.asked = append(m.asked, batches)
	m.hypers = append(m.hypers, hypers...)
	r, err := m.answers[0], m.errs[0]
	m.answers, m.errs = m.answers[1:], m.errs[1:]
	return r, err
}

func TestTrainerCalls(t *testing.T) {
	nan := func(step int64, applied bool) StepResult {
		return StepResult{Sums: Sums{LossSum: {math.NaN()}, WeightSum: {2}}, GradientNorm: 3, Step: step, Applied: applied}
	}
	broken := errors.New("broken")
	named := func(n int) []Batch[string] {
		b := batches(n)
		for i := range b {
			b[i].Records = func() []string { return []string{fmt.Sprint("f:", i)} }
		}
		return b
	}
	for _, c := range []struct {
		name    string
		answers [][]StepResult
		errs    []error
		source  listSource
		skip    int64
		step    int64 // at the end
		asked   string
		want    string // error
	}{
		{"all at once", [][]StepResult{{good(1), good(2), good(3)}, {good(4)}}, []error{nil, nil}, listSource{batches: named(9)}, 0, 4,
			"[[batch 0 batch 1 batch 2] [batch 3]]", ""},
		{"ends early", [][]StepResult{{good(1)}, {good(2), good(3), good(4)}}, []error{nil, nil}, listSource{batches: named(9)}, 0, 4,
			"[[batch 0 batch 1 batch 2] [batch 1 batch 2 batch 3]]", ""},
		{"skipped", [][]StepResult{{good(1), nan(1, false)}, {good(2), good(3), good(4)}}, []error{nil, nil}, listSource{batches: named(9)}, 1, 4,
			"[[batch 0 batch 1 batch 2] [batch 2 batch 3 batch 4]]", ""},
		{"too often", [][]StepResult{{good(1), nan(1, false)}}, []error{nil}, listSource{batches: named(9)}, 0, 1,
			"[[batch 0 batch 1 batch 2]]", "step 2: loss is nan on record f:1"},
		{"went on after one that was not applied", [][]StepResult{{good(1), nan(1, false), good(2)}}, []error{nil}, listSource{batches: named(9)}, 1, 1,
			"[[batch 0 batch 1 batch 2]]", "step 2: the model ran 1 updates after one that was not applied"},
		{"fails at the first", [][]StepResult{nil}, []error{broken}, listSource{batches: named(9)}, 0, 0,
			"[[batch 0 batch 1 batch 2]]", "steps 1 to 3, in one call, on records f:0, f:1, f:2: broken"},
		{"fails at the last", [][]StepResult{{good(1), good(2)}}, []error{broken}, listSource{batches: named(9)}, 0, 2,
			"[[batch 0 batch 1 batch 2]]", "step 3 on record f:2: broken"},
		{"no results", [][]StepResult{nil}, []error{nil}, listSource{batches: named(9)}, 0, 0,
			"[[batch 0 batch 1 batch 2]]", "0 results for 3 batches; expected 1 to 3"},
		{"too many results", [][]StepResult{{good(1), good(2), good(3), good(4)}}, []error{nil}, listSource{batches: named(9)}, 0, 0,
			"[[batch 0 batch 1 batch 2]]", "4 results for 3 batches; expected 1 to 3"},
		{"the data ends in a call", [][]StepResult{{good(1), good(2)}}, []error{nil}, listSource{batches: named(2)}, 0, 2,
			"[[batch 0 batch 1]]", ErrEndOfData.Error()},
		{"the data fails in a call", [][]StepResult{{good(1), good(2)}}, []error{nil}, listSource{batches: named(2), err: broken}, 0, 2,
			"[[batch 0 batch 1]]", "input after step 2: broken"},
		{"truncated data is not its end", [][]StepResult{{good(1)}}, []error{nil}, listSource{batches: named(1), err: fmt.Errorf("cut: %w", io.EOF)}, 0, 1,
			"[[batch 0]]", "input after step 1: cut: EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			model := &callModel{answers: c.answers, errs: c.errs}
			tr, err := NewStandardTrainer[string](model, &c.source, TrainerConfig{
				Schedule: ScheduleConfig{Name: Constant, PeakLearningRate: 1}, StepsPerCall: 3, MaxSkipped: c.skip})
			if err != nil {
				t.Fatal(err)
			}
			loop, err := tr.Train(t.Context(), 4)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if tr.Step() != c.step || loop.Steps != c.step || fmt.Sprint(model.asked) != c.asked {
				t.Errorf("step %d, loop of %d, calls %v; want %d and %s", tr.Step(), loop.Steps, model.asked, c.step, c.asked)
			}
		})
	}
	if _, err := NewStandardTrainer[string](&scriptedModel{}, &listSource{}, TrainerConfig{
		Schedule: ScheduleConfig{Name: Constant}, StepsPerCall: 2}); err == nil || !strings.Contains(err.Error(), "without the method Steps") {
		t.Errorf("several steps per call of a model that makes one: error %v", err)
	}
	if err := (TrainerConfig{Schedule: ScheduleConfig{Name: Constant}, StepsPerCall: -1}).Validate(); err == nil {
		t.Error("-1 steps per call are accepted")
	}
}
