package runner

import (
	"fmt"
	"math"
)

// LossScaleConfig configures dynamic loss scaling (Micikevicius et al. 2018) for models that
// compute in a dtype with a narrow range. The zero value selects the usual defaults.
type LossScaleConfig struct {
	// Initial is the scale at the beginning of a run; 0 means 2^15.
	Initial float64
	// GrowthSteps is the number of steps without an overflow after which the scale is doubled; 0
	// means 2,000.
	GrowthSteps int64
}

// Bounds of the loss scale. At MinLossScale the loss is not scaled; MaxLossScale leaves headroom for
// float32 losses and gradients.
const (
	MinLossScale = 1
	MaxLossScale = 1 << 24
)

// Validate returns an error that names the invalid field.
func (c LossScaleConfig) Validate() error {
	if c.Initial != 0 && !(c.Initial >= MinLossScale && c.Initial <= MaxLossScale) {
		return fmt.Errorf("loss scale is %v; expected %d to %d", c.Initial, MinLossScale, MaxLossScale)
	}
	if c.GrowthSteps < 0 {
		return fmt.Errorf("loss scale: growth steps are %d; expected 0 or more", c.GrowthSteps)
	}
	return nil
}

// LossScaleState is the state of a LossScaler, saved with each checkpoint.
type LossScaleState struct {
	Scale float64 `json:"scale"`
	// GoodSteps counts the steps since the scale changed.
	GoodSteps int64 `json:"good_steps"`
	// Skipped counts the batches of the whole run that were skipped because of an overflow.
	Skipped int64 `json:"skipped"`
}

// LossScaler chooses the scale of a loss whose gradient is computed in a narrow dtype. It halves
// the scale when the gradient overflows and doubles it after a while without overflow.
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

// Scale returns the scale of the next step's loss.
func (s *LossScaler) Scale() float64 { return s.state.Scale }

// Applied counts an applied step, and doubles the scale after enough of them.
func (s *LossScaler) Applied() {
	s.state.GoodSteps++
	if s.state.GoodSteps >= s.growthSteps {
		s.state.GoodSteps = 0
		s.state.Scale = math.Min(2*s.state.Scale, MaxLossScale)
	}
}

// Overflowed halves the scale and counts the batch as skipped. If the scale is already at its
// minimum, the scale was not the cause of the overflow: Overflowed changes nothing and returns
// false.
func (s *LossScaler) Overflowed() bool {
	if s.state.Scale <= MinLossScale {
		return false
	}
	s.state.Scale = math.Max(s.state.Scale/2, MinLossScale)
	s.state.GoodSteps = 0
	s.state.Skipped++
	return true
}

// State returns the state for Restore.
func (s *LossScaler) State() LossScaleState { return s.state }

// Restore restores a saved state. It returns an error if the state is invalid.
func (s *LossScaler) Restore(state LossScaleState) error {
	if !(state.Scale >= MinLossScale && state.Scale <= MaxLossScale) || state.GoodSteps < 0 || state.Skipped < 0 {
		return fmt.Errorf("loss scale: invalid state %+v", state)
	}
	s.state = state
	return nil
}
