package runner

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// TestPlateauAgainstKeras wants the learning rates that Keras sets for the same metrics, also if the
// state is saved and restored after each of them.
func TestPlateauAgainstKeras(t *testing.T) {
	const peak = 5e-5
	for i, c := range readGolden(t).Plateaus {
		cfg := PlateauConfig{Metric: "m", Factor: c.Factor, Patience: c.Patience, MinDelta: c.MinDelta, Cooldown: c.Cooldown}
		if c.LowerIsBetter {
			cfg.Order = LowerIsBetter
		}
		schedule := ScheduleConfig{Name: OnPlateau, PeakLearningRate: peak, EndLearningRate: c.EndLearningRate}
		p, err := NewPlateau(cfg, schedule)
		if err != nil {
			t.Fatal(err)
		}
		for epoch, value := range c.Metrics {
			if err := p.Check(t.Context(), int64(epoch), Outputs{"m": value}); err != nil {
				t.Fatal(err)
			}
			// Keras' learning rate is a float32, which rounds at each reduction.
			if want := c.Rates[epoch]; math.Abs(p.LearningRate()-want) > 1e-6*want {
				t.Fatalf("case %d, evaluation %d: the learning rate is %v; expected %v", i, epoch, p.LearningRate(), want)
			}
			state, err := p.State()
			if err != nil {
				t.Fatal(err)
			}
			before := p.LearningRate()
			if p, err = NewPlateau(cfg, schedule); err != nil {
				t.Fatal(err)
			}
			if err := p.Restore(state); err != nil || p.LearningRate() != before {
				t.Fatalf("case %d, evaluation %d: the state restores as %v, %v; expected %v", i, epoch, p.LearningRate(), err, before)
			}
		}
	}
}

func TestPlateauTellsAndKeepsReductions(t *testing.T) {
	var out bytes.Buffer
	cfg := PlateauConfig{Metric: "loss", Order: LowerIsBetter, Factor: 0.5, Patience: 2, Out: &out}
	schedule := ScheduleConfig{Name: OnPlateau, PeakLearningRate: 8}
	p, err := NewPlateau(cfg, schedule)
	if err != nil {
		t.Fatal(err)
	}
	for step, value := range []float64{math.NaN(), 1, 1, math.NaN()} { // NaN is never better
		if err := p.Check(t.Context(), int64(step), Outputs{"loss": value}); err != nil {
			t.Fatal(err)
		}
	}
	if want := "train | step:      3 | learning rate lowered from 8.0 to 4.0: loss is nan and has not improved on 1.0 in 2 evaluations\n"; out.String() != want {
		t.Errorf("said %q; expected %q", out.String(), want)
	}
	if err := p.Check(t.Context(), 4, Outputs{"accuracy": 1}); err == nil {
		t.Error("an evaluation without the metric has no error")
	}
	state, err := p.State()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Metric, cfg.Order, schedule.PeakLearningRate = "accuracy", HigherIsBetter, 10
	other, err := NewPlateau(cfg, schedule)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Restore(state); err != nil || other.LearningRate() != 5 || !math.IsNaN(float64(other.state.Best)) {
		t.Errorf("with another metric and peak: %v, %+v; expected half of the peak and no best", err, other.state)
	}
	for _, bad := range []string{`{"scale":2}`, `{"scale":-1}`, `7`} {
		if err := other.Restore(json.RawMessage(bad)); err == nil {
			t.Errorf("%s is restored", bad)
		}
	}
}

func TestPlateauValidate(t *testing.T) {
	for want, change := range map[string]func(*PlateauConfig){
		"factor is 1; expected more than 0 and less than 1": func(c *PlateauConfig) { c.Factor = 1 },
		"factor is 0":          func(c *PlateauConfig) { c.Factor = 0 },
		"factor is NaN":        func(c *PlateauConfig) { c.Factor = math.NaN() },
		"patience is 0":        func(c *PlateauConfig) { c.Patience = 0 },
		"minimum change is -1": func(c *PlateauConfig) { c.MinDelta = -1 },
		"cooldown is -1":       func(c *PlateauConfig) { c.Cooldown = -1 },
	} {
		cfg := PlateauConfig{Metric: "m", Factor: 0.1, Patience: 1}
		change(&cfg)
		if _, err := NewPlateau(cfg, ScheduleConfig{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; expected %q", err, want)
		}
	}
	schedule := ScheduleConfig{Name: OnPlateau, PeakLearningRate: 1}
	if err := (TrainerConfig{Schedule: schedule}).Validate(); err == nil {
		t.Error("the schedule plateau is valid without a Plateau")
	}
	schedule.EndLearningRate = 2
	if err := schedule.Validate(); err == nil || !strings.Contains(err.Error(), "expected at most the peak") {
		t.Errorf("an end above the peak: %v", err)
	}
}
