package runner

import (
	"fmt"
	"math"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/words"
)

// Names of schedules.
const (
	Constant           = "constant"
	Linear             = "linear"
	Polynomial         = "polynomial"
	Cosine             = "cosine"
	CosineWithRestarts = "cosine_with_restarts"
	InverseSqrt        = "inverse_sqrt"
	Exponential        = "exponential"
)

// Schedules returns the names of the schedules.
func Schedules() []string {
	return []string{Constant, Linear, Polynomial, Cosine, CosineWithRestarts, InverseSqrt, Exponential}
}

// ScheduleConfig describes a learning-rate schedule. A schedule is a pure function of the step and
// has no state to save. The zero values of Power, Cycles and Timescale select their defaults.
//
// The step of an update is the number of updates applied before it: the first update uses At(0), as
// in torch's LambdaLR and in Keras.
type ScheduleConfig struct {
	// Name is constant, linear, polynomial, cosine, cosine_with_restarts, inverse_sqrt or
	// exponential. All of them start with a warmup if it has any steps.
	Name string `json:"name" yaml:"name"`
	// PeakLearningRate is the learning rate at the end of the warmup.
	PeakLearningRate float64 `json:"peak_learning_rate" yaml:"peak_learning_rate"`
	// WarmupSteps is the number of steps of linear warmup from 0. If it is 0, WarmupRatio x
	// TotalSteps, rounded up, is used.
	WarmupSteps int64 `json:"warmup_steps" yaml:"warmup_steps"`
	// WarmupRatio is the share of TotalSteps spent in warmup, 0 to 1.
	WarmupRatio float64 `json:"warmup_ratio" yaml:"warmup_ratio"`
	// TotalSteps is the step at which the decay ends; after it, the last value is kept. constant
	// and inverse_sqrt need it only for WarmupRatio.
	TotalSteps int64 `json:"total_steps" yaml:"total_steps"`
	// EndLearningRate is the final value of linear, polynomial, exponential and both cosine schedules.
	// That of exponential may be above the peak.
	EndLearningRate float64 `json:"end_learning_rate" yaml:"end_learning_rate"`
	// Power is the exponent of polynomial; 0 means 1.
	Power float64 `json:"power" yaml:"power"`
	// Cycles is the number of waves of cosine (0 means 0.5: once from the peak down to the end) or
	// of decays in cosine_with_restarts (0 means 1).
	Cycles float64 `json:"cycles" yaml:"cycles"`
	// Timescale is that of inverse_sqrt, in steps; 0 means the warmup steps, or 10000 without
	// warmup.
	Timescale int64 `json:"timescale" yaml:"timescale"`
}

// Validate returns an error that names the first invalid field.
func (c ScheduleConfig) Validate() error {
	decays := c.Name != Constant && c.Name != InverseSqrt
	bad := func(format string, args ...any) error {
		return fmt.Errorf("learning-rate schedule: "+format, args...)
	}
	notRate := func(v float64) bool { return !(v >= 0) || math.IsInf(v, 0) }
	switch {
	case !slices.Contains(Schedules(), c.Name):
		return bad("name is %q; %s", c.Name, words.OneOf(c.Name, Schedules()))
	case notRate(c.PeakLearningRate):
		return bad("peak learning rate is %v; expected a finite number, 0 or more", c.PeakLearningRate)
	case notRate(c.EndLearningRate):
		return bad("end learning rate is %v; expected a finite number, 0 or more", c.EndLearningRate)
	case c.Name == Exponential && !(c.PeakLearningRate > 0 && c.EndLearningRate > 0):
		return bad("peak and end learning rate are %v and %v; expected more than 0 for %s", c.PeakLearningRate, c.EndLearningRate, c.Name)
	case decays && c.Name != Exponential && c.EndLearningRate > c.PeakLearningRate:
		return bad("end learning rate is %v; expected at most the peak, %v", c.EndLearningRate, c.PeakLearningRate)
	case c.WarmupSteps < 0:
		return bad("warmup steps are %d; expected 0 or more", c.WarmupSteps)
	case !(c.WarmupRatio >= 0 && c.WarmupRatio <= 1):
		return bad("warmup ratio is %v; expected 0 to 1", c.WarmupRatio)
	case c.TotalSteps < 0:
		return bad("total steps are %d; expected 0 or more", c.TotalSteps)
	case decays && c.TotalSteps == 0:
		return bad("%s needs the total number of steps", c.Name)
	case c.WarmupSteps == 0 && c.WarmupRatio > 0 && c.TotalSteps == 0:
		return bad("a warmup ratio needs the total number of steps")
	case c.TotalSteps > 0 && c.WarmupSteps > c.TotalSteps:
		return bad("warmup steps are %d; expected at most the total steps, %d", c.WarmupSteps, c.TotalSteps)
	case notRate(c.Power):
		return bad("power is %v; expected a number above 0", c.Power)
	case notRate(c.Cycles):
		return bad("cycles are %v; expected a number above 0", c.Cycles)
	case c.Name == CosineWithRestarts && c.Cycles != math.Trunc(c.Cycles):
		return bad("cycles are %v; expected a whole number for %s", c.Cycles, c.Name)
	case c.Timescale < 0:
		return bad("timescale is %d; expected 0 or more", c.Timescale)
	}
	return nil
}

// String returns the settings that are not zero.
func (c ScheduleConfig) String() string {
	s := fmt.Sprintf("%s(peak=%v", c.Name, c.PeakLearningRate)
	add := func(name string, v float64) {
		if v != 0 {
			s += fmt.Sprintf(", %s=%v", name, v)
		}
	}
	add("end", c.EndLearningRate)
	add("warmup_steps", float64(c.WarmupSteps))
	add("warmup_ratio", c.WarmupRatio)
	add("total_steps", float64(c.TotalSteps))
	add("power", c.Power)
	add("cycles", c.Cycles)
	add("timescale", float64(c.Timescale))
	return s + ")"
}

// Warmup returns the number of warmup steps: WarmupSteps or, if that is 0, ceil(TotalSteps x
// WarmupRatio) as in Hugging Face's TrainingArguments.get_warmup_steps.
func (c ScheduleConfig) Warmup() int64 {
	if c.WarmupSteps > 0 {
		return c.WarmupSteps
	}
	return int64(math.Ceil(float64(c.TotalSteps) * c.WarmupRatio))
}

// At returns the learning rate of the update that follows step updates. With W warmup steps, T
// total steps and progress p = (step-W)/(T-W), it is peak x step/W before W (as in all of
// get_*_schedule_with_warmup) and from W on, with the names of Hugging Face's
// transformers.optimization:
//
//	constant              peak
//	linear                end + (peak-end) (1-p)               get_linear_schedule_with_warmup (end = 0)
//	polynomial            end + (peak-end) (1-p)^power         get_polynomial_decay_schedule_with_warmup
//	cosine                end + (peak-end) (1+cos(2 pi cycles p))/2    get_cosine_with_min_lr_schedule_with_warmup
//	cosine_with_restarts  end + (peak-end) (1+cos(pi (cycles p mod 1)))/2   get_cosine_with_hard_restarts_schedule_with_warmup (end = 0)
//	exponential           peak (end/peak)^p
//	inverse_sqrt          peak / sqrt((step + timescale - W)/timescale)  get_inverse_sqrt_schedule
//
// Without warmup, polynomial, cosine and cosine_with_restarts equal Keras' PolynomialDecay,
// CosineDecay (alpha = end/peak) and CosineDecayRestarts (t_mul = m_mul = 1). From T on, decays keep
// their value at T, whereas Hugging Face's cosine would rise again.
func (c ScheduleConfig) At(step int64) float64 {
	warmup := c.Warmup()
	if step < warmup {
		return c.PeakLearningRate * (float64(step) / float64(warmup))
	}
	switch c.Name {
	case Constant:
		return c.PeakLearningRate
	case InverseSqrt:
		scale := float64(c.Timescale)
		if scale == 0 {
			scale = float64(warmup)
		}
		if scale == 0 {
			scale = 10_000
		}
		return c.PeakLearningRate / math.Sqrt((float64(step)+scale-float64(warmup))/scale)
	}
	if c.Name == Exponential {
		return c.PeakLearningRate * math.Pow(c.EndLearningRate/c.PeakLearningRate, c.progress(step, warmup))
	}
	return c.EndLearningRate + (c.PeakLearningRate-c.EndLearningRate)*c.decay(step, warmup)
}

// progress returns how much of the steps after the warmup is done, 0 to 1.
func (c ScheduleConfig) progress(step, warmup int64) float64 {
	if step >= c.TotalSteps {
		return 1
	}
	return float64(step-warmup) / float64(c.TotalSteps-warmup)
}

// decay returns the factor of peak-end at a step after the warmup: 1 at the peak, 0 at the end.
func (c ScheduleConfig) decay(step, warmup int64) float64 {
	progress := c.progress(step, warmup)
	switch c.Name {
	case Linear:
		return 1 - progress
	case Polynomial:
		return math.Pow(1-progress, orDefault(c.Power, 1))
	case Cosine:
		return 0.5 * (1 + math.Cos(2*math.Pi*orDefault(c.Cycles, 0.5)*progress))
	case CosineWithRestarts:
		if progress >= 1 {
			return 0
		}
		return 0.5 * (1 + math.Cos(math.Pi*math.Mod(orDefault(c.Cycles, 1)*progress, 1)))
	}
	return 1
}

func orDefault(v, def float64) float64 {
	if v == 0 {
		return def
	}
	return v
}
