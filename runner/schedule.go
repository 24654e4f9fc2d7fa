package runner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

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
	WSD                = "wsd"
	Points             = "points"
	OnPlateau          = "plateau"
)

// Shapes of the decay of wsd.
const (
	ShapeCosine = "cosine"
	ShapeLinear = "linear"
	ShapeSqrt   = "1-sqrt"
)

// DecayShapes returns the names of the shapes.
func DecayShapes() []string { return []string{ShapeCosine, ShapeLinear, ShapeSqrt} }

// Schedules returns the names of the schedules.
func Schedules() []string {
	return []string{Constant, Linear, Polynomial, Cosine, CosineWithRestarts, InverseSqrt, Exponential, WSD, Points, OnPlateau}
}

// ScheduleConfig describes a learning-rate schedule. A schedule is a pure function of the step and
// has no state to save; that of plateau is constant until a Plateau lowers its peak. The zero values of Power, Cycles and Timescale select their defaults.
//
// The step of an update is the number of updates applied before it: the first update uses At(0), as
// in torch's LambdaLR and in Keras.
type ScheduleConfig struct {
	// Name is constant, linear, polynomial, cosine, cosine_with_restarts, inverse_sqrt,
	// exponential, wsd, points or plateau. All but points start with a warmup if it has any steps.
	Name string `json:"name" yaml:"name"`
	// PeakLearningRate is the learning rate at the end of the warmup.
	PeakLearningRate float64 `json:"peak_learning_rate" yaml:"peak_learning_rate"`
	// WarmupSteps is the number of steps of linear warmup from 0. If it is 0, WarmupRatio x
	// TotalSteps, rounded up, is used.
	WarmupSteps int64 `json:"warmup_steps" yaml:"warmup_steps"`
	// WarmupRatio is the share of TotalSteps spent in warmup, 0 to 1.
	WarmupRatio float64 `json:"warmup_ratio" yaml:"warmup_ratio"`
	// TotalSteps is the step at which the decay ends; after it, the last value is kept. constant,
	// plateau and inverse_sqrt need it only for WarmupRatio.
	TotalSteps int64 `json:"total_steps" yaml:"total_steps"`
	// EndLearningRate is the final value of linear, polynomial, exponential, wsd and both cosine schedules.
	// That of exponential may be above the peak. A Plateau goes no lower than it.
	EndLearningRate float64 `json:"end_learning_rate" yaml:"end_learning_rate"`
	// Power is the exponent of polynomial; 0 means 1.
	Power float64 `json:"power" yaml:"power"`
	// Cycles is the number of waves of cosine (0 means 0.5: once from the peak down to the end) or
	// of decays in cosine_with_restarts (0 means 1).
	Cycles float64 `json:"cycles" yaml:"cycles"`
	// Timescale is that of inverse_sqrt, in steps; 0 means the warmup steps, or 10000 without
	// warmup.
	Timescale int64 `json:"timescale" yaml:"timescale"`
	// DecaySteps is the number of the last steps, in which wsd decays. If it is 0, DecayRatio x
	// TotalSteps, rounded up, is used.
	DecaySteps int64 `json:"decay_steps,omitempty" yaml:"decay_steps"`
	// DecayRatio is the share of TotalSteps spent in the decay of wsd, 0 to 1.
	DecayRatio float64 `json:"decay_ratio,omitempty" yaml:"decay_ratio"`
	// DecayShape is cosine, linear or 1-sqrt; "" means cosine.
	DecayShape string `json:"decay_shape,omitempty" yaml:"decay_shape"`
	// Points are those of points, by ascending steps.
	Points []Point `json:"points,omitempty" yaml:"points,omitempty"`
}

// Point is the learning rate at a step, as a factor of the peak.
type Point struct {
	Step   int64   `json:"step" yaml:"step"`
	Factor float64 `json:"factor" yaml:"factor"`
}

// Validate returns an error that names the first invalid field.
func (c ScheduleConfig) Validate() error {
	falls := c.Name != Constant && c.Name != InverseSqrt && c.Name != Points
	decays := falls && c.Name != OnPlateau // by steps
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
	case falls && c.Name != Exponential && c.EndLearningRate > c.PeakLearningRate:
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
	case c.Name == Points:
		return c.validatePoints(bad)
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
	case c.Name == WSD:
		return c.validateDecay(bad)
	}
	return nil
}

// validateDecay checks the last steps of wsd.
func (c ScheduleConfig) validateDecay(bad func(string, ...any) error) error {
	switch {
	case c.DecaySteps < 0:
		return bad("decay steps are %d; expected 0 or more", c.DecaySteps)
	case !(c.DecayRatio >= 0 && c.DecayRatio <= 1):
		return bad("decay ratio is %v; expected 0 to 1", c.DecayRatio)
	case c.DecayShape != "" && !slices.Contains(DecayShapes(), c.DecayShape):
		return bad("decay shape is %q; %s", c.DecayShape, words.OneOf(c.DecayShape, DecayShapes()))
	case c.Warmup()+c.Decay() > c.TotalSteps:
		return bad("warmup and decay are %d and %d steps; expected no more than the total steps, %d, together", c.Warmup(), c.Decay(), c.TotalSteps)
	}
	return nil
}

// validatePoints checks the points.
func (c ScheduleConfig) validatePoints(bad func(string, ...any) error) error {
	if len(c.Points) == 0 {
		return bad("there are no points; expected some for %s", c.Name)
	}
	for i, p := range c.Points {
		switch {
		case !(p.Factor >= 0) || math.IsInf(p.Factor, 0):
			return bad("factor at step %d is %v; expected a finite number, 0 or more", p.Step, p.Factor)
		case p.Step < 0 || i > 0 && p.Step <= c.Points[i-1].Step:
			return bad("point %d is at step %d; expected one after that of the point before", i, p.Step)
		}
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
	if c.Name == WSD {
		add("decay_steps", float64(c.Decay()))
		s += ", decay_shape=" + cmp.Or(c.DecayShape, ShapeCosine)
	}
	for _, p := range c.Points {
		s += fmt.Sprintf(", %d:%v", p.Step, p.Factor)
	}
	return s + ")"
}

// Warmup returns the number of warmup steps: WarmupSteps or, if that is 0, ceil(TotalSteps x
// WarmupRatio) as in Hugging Face's TrainingArguments.get_warmup_steps. A schedule of points has none.
func (c ScheduleConfig) Warmup() int64 {
	if c.Name == Points {
		return 0
	}
	if c.WarmupSteps > 0 {
		return c.WarmupSteps
	}
	return int64(math.Ceil(float64(c.TotalSteps) * c.WarmupRatio))
}

// Decay returns the number of the last steps, in which wsd decays: DecaySteps or, if that is 0,
// ceil(TotalSteps x DecayRatio), and one less where the warmup was rounded up as well.
func (c ScheduleConfig) Decay() int64 {
	if c.DecaySteps > 0 {
		return c.DecaySteps
	}
	n := int64(math.Ceil(float64(c.TotalSteps) * c.DecayRatio))
	if left := c.TotalSteps - c.Warmup(); left == n-1 {
		return left
	}
	return n
}

// At returns the learning rate of the update that follows step updates. With W warmup steps, T
// total steps and progress p = (step-W)/(T-W), it is peak x step/W before W (as in all of
// get_*_schedule_with_warmup) and from W on, with the names of Hugging Face's
// transformers.optimization:
//
//	constant, plateau     peak
//	linear                end + (peak-end) (1-p)               get_linear_schedule_with_warmup (end = 0)
//	polynomial            end + (peak-end) (1-p)^power         get_polynomial_decay_schedule_with_warmup
//	cosine                end + (peak-end) (1+cos(2 pi cycles p))/2    get_cosine_with_min_lr_schedule_with_warmup
//	cosine_with_restarts  end + (peak-end) (1+cos(pi (cycles p mod 1)))/2   get_cosine_with_hard_restarts_schedule_with_warmup (end = 0)
//	exponential           peak (end/peak)^p
//	inverse_sqrt          peak / sqrt((step + timescale - W)/timescale)  get_inverse_sqrt_schedule
//	wsd                   peak, and in the last D steps end + (peak-end) f(q)  get_wsd_schedule
//	points                peak x the factor between two points, linear in the step
//
// f(q) is (1+cos(pi q))/2, 1-q or 1-sqrt(q), as DecayShape says, and q = (step-(T-D))/D. Before the
// first point and after the last one, points keeps their factor.
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
	case Constant, OnPlateau:
		return c.PeakLearningRate
	case Points:
		return c.PeakLearningRate * between(c.Points, step)
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
	case WSD:
		return c.lastSteps(step)
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

// between returns the factor at a step.
func between(points []Point, step int64) float64 {
	i := sort.Search(len(points), func(i int) bool { return points[i].Step >= step })
	switch {
	case i == len(points):
		return points[i-1].Factor
	case i == 0 || points[i].Step == step:
		return points[i].Factor
	}
	a, b := points[i-1], points[i]
	return a.Factor + (b.Factor-a.Factor)*float64(step-a.Step)/float64(b.Step-a.Step)
}

// lastSteps returns the factor of peak-end of wsd.
func (c ScheduleConfig) lastSteps(step int64) float64 {
	n := c.Decay()
	since := step - (c.TotalSteps - n)
	switch q := float64(since) / float64(n); {
	case since < 0 || n == 0:
		return 1
	case since >= n:
		return 0
	case c.DecayShape == ShapeLinear:
		return 1 - q
	case c.DecayShape == ShapeSqrt:
		return 1 - math.Sqrt(q)
	default:
		return 0.5 * (1 + math.Cos(math.Pi*q))
	}
}

func orDefault(v, def float64) float64 {
	if v == 0 {
		return def
	}
	return v
}
