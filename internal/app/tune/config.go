package tune

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// The samplers.
const (
	Grid   = "grid"
	Random = "random"
	TPE    = "tpe"
)

// The pruners.
const (
	NoPruner = "none"
	Median   = "median"
	ASHA     = "asha"
)

// SamplerConfig says how params are drawn.
type SamplerConfig struct {
	// Name is grid, random or tpe.
	Name string `json:"name" yaml:"name"`
	// Seed is that of the random numbers.
	Seed uint64 `json:"seed" yaml:"seed"`
	// Startup is the number of trials that tpe draws at random before it looks at the others.
	Startup int `json:"startup" yaml:"startup"`
	// Candidates is the number of values of a param among which tpe chooses.
	Candidates int `json:"candidates" yaml:"candidates"`
}

// PrunerConfig says when a trial is stopped early. Trials are compared after the same number of
// evaluations, whatever the step, so that a search over the batch size compares epoch with epoch.
type PrunerConfig struct {
	// Name is none, median or asha.
	Name string `json:"name" yaml:"name"`
	// Startup is the number of complete trials before median stops any.
	Startup int `json:"startup" yaml:"startup"`
	// Warmup is the number of evaluations of a trial that median does not judge.
	Warmup int `json:"warmup" yaml:"warmup"`
	// Min is the number of evaluations at the first rung of asha.
	Min int `json:"min" yaml:"min"`
	// Factor is by how much each rung of asha is above the one below, and the share of trials,
	// 1/Factor, that continues beyond it.
	Factor int `json:"factor" yaml:"factor"`
}

// The directions of an objective.
const (
	Minimize = "min"
	Maximize = "max"
)

// Config is the configuration of a study.
type Config struct {
	// Space are the params that are searched over. In a grid, the last one changes first.
	Space []Param `json:"space"`
	// Objective is the metric of evaluations that the study is about, and Direction is max or min.
	Objective string `json:"objective"`
	Direction string `json:"direction"`
	// Trials is the number of trials that gorbit runs. A grid has no more than its combinations.
	Trials  int           `json:"trials"`
	Sampler SamplerConfig `json:"sampler"`
	Pruner  PrunerConfig  `json:"pruner"`
	// Base are the params of all trials, as YAML. The core does not look into them.
	Base string `json:"base"`
}

// Defaults returns the configuration of a study without a space: Optuna's defaults.
func Defaults() Config {
	return Config{Trials: 20, Sampler: SamplerConfig{Name: TPE, Startup: 10, Candidates: 24},
		Pruner: PrunerConfig{Name: NoPruner, Startup: 5, Min: 1, Factor: 4}}
}

// Validate returns an error that names the field at fault as study files name it.
func (c Config) Validate() error {
	s, p := c.Sampler, c.Pruner
	switch {
	case len(c.Space) == 0:
		return errors.New("search is empty; expected one param or more, such as optimizer.learning_rate: {low: 1e-5, high: 5e-4, log: true}")
	case c.Objective == "":
		return errors.New("objective is empty; expected a metric of the evaluations")
	case c.Direction != Minimize && c.Direction != Maximize:
		return fmt.Errorf("direction is %q; expected max or min", c.Direction)
	case c.Trials < 1:
		return fmt.Errorf("trials is %d; expected 1 or more", c.Trials)
	case !slices.Contains([]string{Grid, Random, TPE}, s.Name):
		return fmt.Errorf("sampler is %q; expected grid, random or tpe", s.Name)
	case s.Startup < 1:
		return fmt.Errorf("sampler.startup is %d; expected 1 or more", s.Startup)
	case s.Candidates < 1 || s.Candidates > 1<<16:
		return fmt.Errorf("sampler.candidates is %d; expected 1 to %d", s.Candidates, 1<<16)
	case !slices.Contains([]string{NoPruner, Median, ASHA}, p.Name):
		return fmt.Errorf("pruner is %q; expected none, median or asha", p.Name)
	case p.Startup < 0:
		return fmt.Errorf("pruner.startup is %d; expected 0 or more", p.Startup)
	case p.Warmup < 0:
		return fmt.Errorf("pruner.warmup is %d; expected 0 or more", p.Warmup)
	case p.Min < 1:
		return fmt.Errorf("pruner.min is %d; expected 1 or more", p.Min)
	case p.Factor < 2:
		return fmt.Errorf("pruner.factor is %d; expected 2 or more", p.Factor)
	}
	for i, param := range c.Space {
		if err := param.Distribution.Validate(); err != nil {
			return fmt.Errorf("search.%s: %w", param.Name, err)
		}
		if slices.ContainsFunc(c.Space[:i], func(o Param) bool { return o.Name == param.Name }) {
			return fmt.Errorf("search.%s is given twice; expected it once", param.Name)
		}
		if param.Points < 0 || param.Points == 1 || param.Points > maxValues {
			return fmt.Errorf("search.%s: points is %d; expected 2 to %d", param.Name, param.Points, maxValues)
		}
		if param.Points > 0 && (s.Name != Grid || param.Distribution.Kind == Categorical) {
			return fmt.Errorf("search.%s: points is %d; expected points only of numbers, with sampler grid", param.Name, param.Points)
		}
	}
	if s.Name == Grid {
		_, err := c.gridSize()
		return err
	}
	return nil
}

// gridSize returns the number of combinations of a grid.
func (c Config) gridSize() (int, error) {
	size := 1
	for _, p := range c.Space {
		n := len(p.grid())
		if n == 0 {
			return 0, fmt.Errorf("search.%s has infinitely many values; expected choices, step, or points such as points: 4, with sampler grid", p.Name)
		}
		if size *= n; size > maxValues {
			return 0, fmt.Errorf("search has more than %d combinations; expected less, or sampler random", maxValues)
		}
	}
	return size, nil
}

// most returns the number of trials that gorbit runs.
func (c Config) most() int {
	if c.Sampler.Name == Grid {
		size, _ := c.gridSize()
		return min(size, c.Trials)
	}
	return c.Trials
}

// differs returns the name of the first field that is not the same, but for the number of trials and
// the params of all trials, which the caller compares; "" if there is none.
func (c Config) differs(o Config) string {
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"search", c.Space, o.Space}, {"objective", c.Objective, o.Objective}, {"direction", c.Direction, o.Direction},
		{"sampler", c.Sampler, o.Sampler}, {"pruner", c.Pruner, o.Pruner},
	} {
		if !reflect.DeepEqual(f.a, f.b) {
			return f.name
		}
	}
	return ""
}
