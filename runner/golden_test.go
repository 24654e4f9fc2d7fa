package runner

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
)

// golden is testdata/golden.json, written by testdata/golden.py.
type golden struct {
	Schedules []struct {
		Source    string
		Config    ScheduleConfig
		Values    [][2]float64
		Tolerance float64
	}
	Plateaus []struct {
		LowerIsBetter      bool    `json:"lower_is_better"`
		EndLearningRate    float64 `json:"end_learning_rate"`
		Factor             float64
		MinDelta           float64 `json:"min_delta"`
		Patience, Cooldown int64
		Metrics, Rates     []float64
	}
	Formats []json.RawMessage
}

func readGolden(t *testing.T) golden {
	t.Helper()
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Schedules) == 0 || len(g.Plateaus) == 0 || len(g.Formats) == 0 {
		t.Fatal("golden.json lacks a part")
	}
	return g
}

func TestSchedulesAgainstGolden(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range readGolden(t).Schedules {
		seen[c.Config.Name] = true
		if err := c.Config.Validate(); err != nil {
			t.Errorf("%s %v: %v", c.Source, c.Config, err)
		}
		for _, v := range c.Values {
			step, want := int64(v[0]), v[1]
			got := c.Config.At(step)
			if math.Abs(got-want) > c.Tolerance*c.Config.PeakLearningRate {
				t.Errorf("%s %v at step %d: %v, want %v", c.Source, c.Config, step, got, want)
			}
		}
	}
	for _, name := range Schedules() {
		if !seen[name] {
			t.Errorf("no golden for schedule %q", name)
		}
	}
}

func TestPythonFloatAgainstNumPy(t *testing.T) {
	for _, raw := range readGolden(t).Formats {
		var pair struct {
			value float64
			want  string
		}
		if err := json.Unmarshal(raw, &[]any{&pair.value, &pair.want}); err != nil {
			t.Fatal(err)
		}
		// Python's repr of a float and NumPy's of a float32 agree on the digits.
		if got := pythonFloat(pair.value); got != pair.want {
			t.Errorf("%v is printed %s, want %s", pair.value, got, pair.want)
		}
	}
	for v, want := range map[float64]string{
		math.Inf(1): "inf", math.Inf(-1): "-inf", 1e300: "1e+300", -1e300: "-1e+300", 1e-300: "1e-300",
	} {
		if got := pythonFloat(v); got != want {
			t.Errorf("%v is printed %s, want %s", v, got, want)
		}
	}
	if got := pythonFloat(math.NaN()); got != "nan" {
		t.Errorf("NaN is printed %s", got)
	}
}

func TestScheduleValidate(t *testing.T) {
	good := ScheduleConfig{Name: Linear, PeakLearningRate: 1e-4, TotalSteps: 100, WarmupRatio: 0.1}
	for _, c := range []struct {
		change func(*ScheduleConfig)
		want   string // "" where it is valid
	}{
		{func(*ScheduleConfig) {}, ""},
		{func(c *ScheduleConfig) { c.Name = "step" }, `name is "step"; expected constant, linear`},
		{func(c *ScheduleConfig) { c.Name = "" }, `name is ""`},
		{func(c *ScheduleConfig) { c.PeakLearningRate = math.NaN() }, "peak learning rate is NaN"},
		{func(c *ScheduleConfig) { c.PeakLearningRate = -1 }, "peak learning rate is -1"},
		{func(c *ScheduleConfig) { c.PeakLearningRate = math.Inf(1) }, "peak learning rate is +Inf"},
		{func(c *ScheduleConfig) { c.PeakLearningRate = 0 }, ""},
		{func(c *ScheduleConfig) { c.EndLearningRate = -1 }, "end learning rate is -1"},
		{func(c *ScheduleConfig) { c.EndLearningRate = 1 }, "expected at most the peak, "},
		{func(c *ScheduleConfig) { c.Name, c.EndLearningRate = Constant, 1 }, ""},
		{func(c *ScheduleConfig) { c.WarmupSteps = -1 }, "warmup steps are -1"},
		{func(c *ScheduleConfig) { c.WarmupSteps = 101 }, "warmup steps are 101; expected at most the total steps, 100"},
		{func(c *ScheduleConfig) { c.WarmupSteps = 100 }, ""},
		{func(c *ScheduleConfig) { c.WarmupRatio = 1.5 }, "warmup ratio is 1.5"},
		{func(c *ScheduleConfig) { c.WarmupRatio = math.NaN() }, "warmup ratio is NaN"},
		{func(c *ScheduleConfig) { c.TotalSteps = -5 }, "total steps are -5"},
		{func(c *ScheduleConfig) { c.TotalSteps = 0 }, "linear needs the total"},
		{func(c *ScheduleConfig) { c.Name, c.TotalSteps = Constant, 0 }, "warmup ratio needs the total"},
		{func(c *ScheduleConfig) { c.Name, c.TotalSteps, c.WarmupSteps = InverseSqrt, 0, 10 }, ""},
		{func(c *ScheduleConfig) { c.Power = -1 }, "power is -1"},
		{func(c *ScheduleConfig) { c.Cycles = -1 }, "cycles are -1"},
		{func(c *ScheduleConfig) { c.Name, c.Cycles = CosineWithRestarts, 1.5 }, "expected a whole number"},
		{func(c *ScheduleConfig) { c.Name, c.Cycles = Cosine, 1.5 }, ""},
		{func(c *ScheduleConfig) { c.Timescale = -1 }, "timescale is -1"},
		{func(c *ScheduleConfig) { c.Name, c.DecaySteps = WSD, -1 }, "decay steps are -1"},
		{func(c *ScheduleConfig) { c.Name, c.DecayRatio = WSD, 2 }, "decay ratio is 2"},
		{func(c *ScheduleConfig) { c.Name, c.DecayShape = WSD, "round" }, `decay shape is "round"`},
		{func(c *ScheduleConfig) { c.Name, c.DecaySteps, c.WarmupSteps = WSD, 60, 50 }, "warmup and decay are 50 and 60 steps; expected no more than the total steps, 100"},
		{func(c *ScheduleConfig) { c.Name = Points }, "there are no points"},
		{func(c *ScheduleConfig) { c.Name, c.Points = Points, []Point{{5, 1}, {5, 0}} }, "point 1 is at step 5"},
		{func(c *ScheduleConfig) { c.Name, c.Points = Points, []Point{{5, math.NaN()}} }, "factor at step 5 is NaN"},
	} {
		cfg := good
		c.change(&cfg)
		err := cfg.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q", cfg, err, c.want)
		}
	}
}

// Laws that hold for every schedule: never negative, never above the peak,
// never below the end once warm, continuous at the end of the warmup, and
// constant from the total on.
func TestScheduleLaws(t *testing.T) {
	for _, name := range Schedules() {
		for _, warmup := range []int64{0, 1, 7, 50} {
			for _, end := range []float64{0, 0.25} {
				if name == Exponential && end == 0 || name == Points { // which never reach it, or go where they say
					continue
				}
				c := ScheduleConfig{Name: name, PeakLearningRate: 1, WarmupSteps: warmup, TotalSteps: 50, EndLearningRate: end, Power: 2, Cycles: 2}
				if err := c.Validate(); err != nil {
					t.Fatal(err)
				}
				for step := range int64(80) {
					lr := c.At(step)
					floor := end
					if name == InverseSqrt || name == Constant || step < warmup {
						floor = 0
					}
					if !(lr >= floor-1e-12 && lr <= 1+1e-12) {
						t.Errorf("%v at step %d is %v", c, step, lr)
					}
					if name != InverseSqrt && step >= 50 && lr != c.At(50) {
						t.Errorf("%v at step %d is %v, and %v at the total", c, step, lr, c.At(50))
					}
				}
				if warmup < 50 && math.Abs(c.At(warmup)-1) > 1e-12 {
					t.Errorf("%v at the end of the warmup is %v, want the peak", c, c.At(warmup))
				}
			}
		}
	}
}
