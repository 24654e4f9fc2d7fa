package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// PlateauConfig says when and by how much a Plateau lowers the learning rate.
type PlateauConfig struct {
	// Metric is the metric of evaluations that is to get better, and Order its direction.
	Metric string
	Order  Better
	// Factor is what the learning rate is multiplied by, more than 0 and less than 1.
	Factor float64
	// Patience is the number of consecutive evaluations without a better one after which that happens,
	// 1 or more.
	Patience int64
	// MinDelta is how much better than the best before a value must be.
	MinDelta float64
	// Cooldown is the number of evaluations after a reduction that do not count.
	Cooldown int64
	// Out receives a line for each reduction; nil discards them.
	Out io.Writer
}

// Validate returns an error that names the first invalid field.
func (c PlateauConfig) Validate() error {
	switch {
	case !(c.Factor > 0 && c.Factor < 1):
		return fmt.Errorf("plateau: factor is %v; expected more than 0 and less than 1", c.Factor)
	case c.Patience < 1:
		return fmt.Errorf("plateau: patience is %d; expected 1 or more", c.Patience)
	case !(c.MinDelta >= 0) || math.IsInf(c.MinDelta, 0):
		return fmt.Errorf("plateau: minimum change is %v; expected a finite number, 0 or more", c.MinDelta)
	case c.Cooldown < 0:
		return fmt.Errorf("plateau: cooldown is %d; expected 0 or more", c.Cooldown)
	}
	return nil
}

// Plateau lowers the learning rate when a metric has not improved for a number of evaluations, by the
// rules of Keras' ReduceLROnPlateau. A TrainerConfig has it with the schedule of its name, whose peak
// it lowers, down to the end learning rate. Add its Check to Config.EvalActions and itself to
// Config.Persist.
type Plateau struct {
	cfg       PlateauConfig
	peak, end float64
	state     plateauState
}

// plateauState is what a Plateau saves. Scale is the product of the factors so far, so that a run that
// continues with another peak keeps its reductions.
type plateauState struct {
	Scale    float64 `json:"scale"`
	Best     Number  `json:"best"` // NaN before the first evaluation
	Wait     int64   `json:"wait"`
	Cooldown int64   `json:"cooldown"`
	Metric   string  `json:"metric"`
	Order    Better  `json:"order"`
}

// NewPlateau returns a Plateau for a schedule that has not been lowered yet.
func NewPlateau(cfg PlateauConfig, schedule ScheduleConfig) (*Plateau, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Out == nil {
		cfg.Out = io.Discard
	}
	p := &Plateau{cfg: cfg, peak: schedule.PeakLearningRate, end: schedule.EndLearningRate}
	return p, p.Restore(nil)
}

// LearningRate returns the learning rate after the warmup, as far as it is lowered.
func (p *Plateau) LearningRate() float64 { return max(p.peak*p.state.Scale, p.end) }

// Check is an Action. It lowers the learning rate of the steps that follow when patience runs out.
func (p *Plateau) Check(_ context.Context, step int64, out Outputs) error {
	value, err := out.get(p.cfg.Metric)
	if err != nil {
		return err
	}
	s := &p.state
	if s.Cooldown > 0 {
		s.Cooldown--
		s.Wait = 0
	}
	switch {
	case p.cfg.Order.better(value, float64(s.Best), p.cfg.MinDelta):
		s.Best, s.Wait = Number(value), 0
		return nil
	case s.Cooldown > 0:
		return nil
	}
	s.Wait++
	if before := p.LearningRate(); s.Wait >= p.cfg.Patience && before > p.end {
		s.Scale *= p.cfg.Factor
		logf(p.cfg.Out, "train | step: % 6d | learning rate lowered from %s to %s: %s is %s and has not improved on %s in %d evaluations",
			step, pythonFloat(before), pythonFloat(p.LearningRate()), p.cfg.Metric, pythonFloat(value), pythonFloat(float64(s.Best)), s.Wait)
		s.Wait, s.Cooldown = 0, p.cfg.Cooldown
	}
	return nil
}

// State implements Persistent.
func (p *Plateau) State() (json.RawMessage, error) { return json.Marshal(p.state) }

// Restore implements Persistent. Of the state of another metric, it takes what was lowered so far.
func (p *Plateau) Restore(raw json.RawMessage) error {
	begin := plateauState{Scale: 1, Best: Number(math.NaN()), Metric: p.cfg.Metric, Order: p.cfg.Order}
	p.state = begin
	if raw == nil {
		return nil
	}
	var saved plateauState
	if err := json.Unmarshal(raw, &saved); err != nil {
		return err
	}
	if !(saved.Scale >= 0 && saved.Scale <= 1) {
		return fmt.Errorf("scale is %v; expected 0 to 1", saved.Scale)
	}
	if saved.Metric == begin.Metric && saved.Order == begin.Order {
		p.state = saved
	} else {
		p.state.Scale = saved.Scale
	}
	return nil
}
