package runner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

func newScaler(t *testing.T, c LossScaleConfig) *LossScaler {
	t.Helper()
	s, err := NewLossScaler(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLossScaleDefaults(t *testing.T) {
	s := newScaler(t, LossScaleConfig{})
	if s.Scale() != 32768 {
		t.Errorf("a run begins with %v", s.Scale())
	}
	for range 1999 {
		s.Applied()
	}
	if s.Scale() != 32768 {
		t.Errorf("%v after 1,999 steps", s.Scale())
	}
	s.Applied()
	if want := (LossScaleState{Scale: 65536}); s.State() != want {
		t.Errorf("%+v after 2,000 steps, want %+v", s.State(), want)
	}
}

func TestLossScaleFollowsOverflows(t *testing.T) {
	s := newScaler(t, LossScaleConfig{Initial: 6, GrowthSteps: 2})
	// + is a step, - an overflow.
	for i, c := range []struct {
		what string
		want LossScaleState
	}{
		{"+", LossScaleState{6, 1, 0}},
		{"-", LossScaleState{3, 0, 1}}, // the count of good steps begins again
		{"+", LossScaleState{3, 1, 1}},
		{"+", LossScaleState{6, 0, 1}},
		{"--", LossScaleState{1.5, 0, 3}},
		{"-", LossScaleState{1, 0, 4}},
		{"++", LossScaleState{2, 0, 4}},
	} {
		for _, what := range c.what {
			if what == '+' {
				s.Applied()
			} else if !s.Overflowed() {
				t.Fatalf("%d: the scale %v cannot be lowered", i, s.Scale())
			}
		}
		if s.State() != c.want {
			t.Fatalf("%d: after %s the state is %+v, want %+v", i, c.what, s.State(), c.want)
		}
	}
}

func TestLossScaleBounds(t *testing.T) {
	s := newScaler(t, LossScaleConfig{Initial: 1, GrowthSteps: 1})
	s.Applied()
	s.Overflowed()
	before := s.State()
	if s.Overflowed() || s.State() != before {
		t.Errorf("below 1: %+v, and %+v before", s.State(), before)
	}
	for range 100 {
		s.Applied()
	}
	if s.Scale() != MaxLossScale {
		t.Errorf("a hundred doublings give %v", s.Scale())
	}
}

func TestLossScaleRefuses(t *testing.T) {
	for _, c := range []LossScaleConfig{{Initial: 0.5}, {Initial: math.NaN()}, {Initial: 1 << 25}, {GrowthSteps: -1}} {
		if _, err := NewLossScaler(c); err == nil || !strings.HasPrefix(err.Error(), "loss scale") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	s := newScaler(t, LossScaleConfig{})
	for _, state := range []LossScaleState{{}, {Scale: math.Inf(1)}, {Scale: 2, GoodSteps: -1}, {Scale: 2, Skipped: -1}} {
		if err := s.Restore(state); err == nil || s.Scale() != 32768 {
			t.Errorf("%+v: %v, scale %v", state, err, s.Scale())
		}
	}
}

func overflow(step int64) StepResult {
	r := good(step)
	r.GradientNorm, r.Applied = math.Inf(1), false
	return r
}

func TestTrainerPassesOverOverflows(t *testing.T) {
	model := &scriptedModel{results: []StepResult{overflow(0), overflow(0), good(1), good(2), overflow(2), good(3)}}
	source := &listSource{batches: batches(6)}
	log := new(strings.Builder)
	tr := newTrainer(t, model, source, func(c *TrainerConfig) {
		c.LossScale, c.Out = &LossScaleConfig{Initial: 1024, GrowthSteps: 2}, log
		c.Explain = func(_ context.Context, step int64) string {
			t.Errorf("the reason of an overflow after step %d is looked for, which the scale handles", step)
			return ""
		}
	})
	loop, err := tr.Train(context.Background(), 3)
	if err != nil || loop.Steps != 3 || loop.Examples != 30 || len(source.batches) != 0 {
		t.Fatalf("%+v, %v, %d batches left", loop, err, len(source.batches))
	}
	if got, want := loop.Outputs.String(), "{'gradient_norm': 3.0, 'learning_rate': 0.5, 'loss': 0.5, 'loss_scale': 256.0, 'skipped_steps': 3.0}"; got != want {
		t.Errorf("outputs are %s, want %s", got, want)
	}
	var scales []float64
	for _, h := range model.hypers {
		scales = append(scales, h.LossScale)
	}
	if want := []float64{1024, 512, 256, 256, 512, 256}; fmt.Sprint(scales) != fmt.Sprint(want) {
		t.Errorf("scales were %v, want %v", scales, want)
	}
	want := []string{
		"train | step:      1 | gradient norm is inf on a batch of unknown records: batch skipped, loss scale lowered from 1024 to 512 (1 so far)",
		"train | step:      1 | gradient norm is inf on a batch of unknown records: batch skipped, loss scale lowered from 512 to 256 (2 so far)",
		"train | step:      3 | gradient norm is inf on a batch of unknown records: batch skipped, loss scale lowered from 512 to 256 (3 so far)",
	}
	if got := strings.Split(strings.TrimSpace(log.String()), "\n"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the log is\n%s", log)
	}

	state, err := tr.State()
	if err != nil || !strings.Contains(string(state), `"loss_scale":{"scale":256,"good_steps":1,"skipped":3}`) {
		t.Errorf("state %s, %v", state, err)
	}
	again := newTrainer(t, &scriptedModel{results: []StepResult{good(4)}}, &listSource{batches: batches(1)},
		func(c *TrainerConfig) { c.LossScale = &LossScaleConfig{GrowthSteps: 2} })
	if err := again.Restore(3, state, false); err != nil {
		t.Fatal(err)
	}
	if loop, err = again.Train(context.Background(), 1); err != nil || loop.Outputs["loss_scale"] != 512 || loop.Outputs["skipped_steps"] != 3 {
		t.Errorf("after a restore: %v, %v", loop.Outputs, err)
	}
	if err := again.Restore(3, []byte(`{"loss_scale":{"scale":0}}`), false); err == nil {
		t.Error("a scale of 0 was restored")
	}
}

func TestTrainerScaleIsNotToBlame(t *testing.T) {
	for name, change := range map[string]func(*StepResult){
		"loss":      func(r *StepResult) { r.Sums[LossSum][0] = math.NaN() },
		"no weight": func(r *StepResult) { r.Sums[WeightSum][0] = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			r := overflow(0)
			change(&r)
			tr := newTrainer(t, &scriptedModel{results: []StepResult{r}}, &listSource{batches: batches(1)},
				func(c *TrainerConfig) {
					c.LossScale, c.Explain = &LossScaleConfig{}, func(_ context.Context, step int64) string { return fmt.Sprintf("looked for after step %d", step) }
				})
			_, err := tr.Train(context.Background(), 1)
			var nonFinite *NonFiniteError
			if !errors.As(err, &nonFinite) || !strings.HasSuffix(err.Error(), "; looked for after step 0") {
				t.Errorf("error is %v", err)
			}
		})
	}
	// At the lower bound an overflow is like any other gradient that is not finite.
	model := &scriptedModel{results: []StepResult{overflow(0), overflow(0), overflow(0)}}
	tr := newTrainer(t, model, &listSource{batches: batches(3)}, func(c *TrainerConfig) {
		c.LossScale, c.MaxSkipped = &LossScaleConfig{Initial: 2}, 1
	})
	_, err := tr.Train(context.Background(), 1)
	if err == nil || !strings.Contains(err.Error(), "1 updates were already skipped, the maximum") || tr.scaler.State().Skipped != 1 {
		t.Errorf("error is %v, state %+v", err, tr.scaler.State())
	}
}

func TestTrainerRefusesLossScale(t *testing.T) {
	_, err := NewStandardTrainer[string](&scriptedModel{}, &listSource{}, TrainerConfig{
		Schedule: ScheduleConfig{Name: Linear, PeakLearningRate: 1, TotalSteps: 4}, LossScale: &LossScaleConfig{Initial: -1}})
	if err == nil || !strings.Contains(err.Error(), "loss scale is -1") {
		t.Errorf("error is %v", err)
	}
}
