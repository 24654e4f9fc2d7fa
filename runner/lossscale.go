package runner

import (
	"fmt"
	"math"
)

// LossScaleConfig configures dynamic loss scaling (Micikevicius et al. 2018), for
// models that compute in a dtype of a narrow range. The zero value is the usual one.
type LossScaleConfig struct {
	// Initial is the scale that a run begins with; 0 is 2^15.
	Initial float64
	// GrowthSteps is the number of steps without an overflow after which the scale
	// is doubled; 0 is 2,000.
	GrowthSteps int64
}

// The bounds of a loss scale. At the lower one the loss is not scaled; the upper one
// leaves float32 losses and gradients room.
const (
	MinLossScale = 1
	MaxLossScale = 1 << 24
)

// Validate reports what makes no sense.
func (c LossScaleConfig) Validate() error {
	if c.Initial != 0 && !(c.Initial >= MinLossScale && c.Initial <= MaxLossScale) {
		return fmt.Errorf("loss scale %v: want %d to %d", c.Initial, MinLossScale, MaxLossScale)
	}
	if c.GrowthSteps < 0 {
		return fmt.Errorf("loss scale: doubled after %d steps: want 0 or more", c.GrowthSteps)
	}
	return nil
}

// LossScaleState is the state of a LossScaler, which is saved with a checkpoint.
type LossScaleState struct {
	Scale float64 `json:"scale"`
	// GoodSteps counts the steps since the scale changed.
	GoodSteps int64 `json:"good_steps"`
	// Skipped counts the batches that were passed over for an overflow, in the whole run.
	Skipped int64 `json:"skipped"`
}

// LossScaler chooses the factor of a loss whose gradient is computed in a narrow
// dtype: halved where the gradient overflows, doubled where it has not for a while.
type LossScaler struct {
	growthSteps int64
	state       LossScaleState
}

// NewLossScaler returns a scaler at its initial scale.
func NewLossScaler(c LossScaleConfig) (*LossScaler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Initial == 0 {
		c.Initial = 1 << 15
	}
	if c.GrowthSteps == 0 {
		c.GrowthSteps = 2000
	}
	return &LossScaler{growthSteps: c.GrowthSteps, state: LossScaleState{Scale: c.Initial}}, nil
}

// Scale is the factor of the next step's loss.
func (s *LossScaler) Scale() float64 { return s.state.Scale }

// Applied counts a step that was made, and doubles the scale when it is time.
func (s *LossScaler) Applied() {
	s.state.GoodSteps++
	if s.state.GoodSteps >= s.growthSteps {
		s.state.GoodSteps = 0
		s.state.Scale = math.Min(2*s.state.Scale, MaxLossScale)
	}
}

// Overflowed halves the scale and counts the batch as passed over. It reports false,
// and changes nothing, where the scale is as low as it gets: then it was not the scale.
func (s *LossScaler) Overflowed() bool {
	if s.state.Scale <= MinLossScale {
		return false
	}
	s.state.Scale = math.Max(s.state.Scale/2, MinLossScale)
	s.state.GoodSteps = 0
	s.state.Skipped++
	return true
}

// State returns what Restore needs to go on from here.
func (s *LossScaler) State() LossScaleState { return s.state }

// Restore goes back to a state.
func (s *LossScaler) Restore(state LossScaleState) error {
	if !(state.Scale >= MinLossScale && state.Scale <= MaxLossScale) || state.GoodSteps < 0 || state.Skipped < 0 {
		return fmt.Errorf("loss scale: state %+v makes no sense", state)
	}
	s.state = state
	return nil
}
