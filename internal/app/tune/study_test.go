package tune

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// space is a search over params of all kinds.
func space() []Param {
	return []Param{
		{Name: "optimizer.learning_rate", Distribution: Distribution{Kind: Float, Low: 1e-5, High: 1e-2, Log: true}},
		{Name: "train.batch_size", Distribution: Distribution{Kind: Categorical, Choices: []any{int64(16), int64(32)}}},
		{Name: "optimizer.hyperparameters.dropout", Distribution: Distribution{Kind: Float, Low: 0, High: 0.3, Step: 0.1}},
		{Name: "optimizer.warmup_steps", Distribution: Distribution{Kind: Int, Low: 0, High: 100, Step: 10}},
	}
}

func config(sampler, pruner string) Config {
	c := Defaults()
	c.Space, c.Objective, c.Direction, c.Trials = space(), "accuracy", Maximize, 16
	c.Sampler.Name, c.Sampler.Seed, c.Sampler.Startup = sampler, 7, 4
	c.Pruner.Name, c.Pruner.Startup, c.Pruner.Factor = pruner, 2, 2
	c.Base = "graph: exports/tiny\n"
	if sampler == Grid {
		c.Space[0].Points = 3
	}
	return c
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// trained is what a trial's training gives: the evaluations at steps 10, 20, 30 and 40, which depend
// on its params alone, or the sentence of a failure.
func trained(t *Trial) (reports []Report, sentence string) {
	if t.Params["optimizer.warmup_steps"] == 100 {
		return []Report{{10, 0.5}}, "step 11: the loss is NaN"
	}
	peak := 1 - math.Abs(math.Log10(t.Params["optimizer.learning_rate"])+3.5)/4 - t.Params["optimizer.hyperparameters.dropout"]/10
	for i := range int64(4) {
		reports = append(reports, Report{10 * (i + 1), peak * float64(i+1) / 4})
	}
	if t.Params["train.batch_size"] == 1 {
		reports[1].Value = math.NaN()
	}
	return reports, ""
}

// world drives studies as the program does, with a journal in memory. It stops when the journal has
// as many lines as it may have.
type world struct {
	t       *testing.T
	journal []string
	most    int
	study   *Study
}

var errKilled = errors.New("killed")

func (w *world) write(ops ...Op) {
	for _, op := range ops {
		if len(w.journal) == w.most {
			panic(errKilled)
		}
		w.journal = append(w.journal, string(op))
		if err := w.study.Apply(op); err != nil {
			w.t.Fatal(err)
		}
	}
}

// run continues with the study in the journal until it is done or killed, with trials side by side
// that make one report in turn.
func (w *world) run(c Config, sideBySide int) (study *Study) {
	w.t.Helper()
	w.study = NewStudy("study")
	defer func() {
		if e := recover(); e != nil && e != errKilled {
			panic(e)
		}
		study = w.study
	}()
	for _, line := range w.journal {
		if err := w.study.Apply([]byte(line)); err != nil {
			w.t.Fatal(err)
		}
	}
	ops, err := w.study.Begin(c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(ops...)
	at := map[int]int{} // reports that the training of a trial has made; after a kill it makes them again
	for !w.study.Done() && w.study.Hopeless() == "" {
		var running []*Trial
		for _, t := range w.study.Trials() {
			if t.Own() && t.State == Running {
				running = append(running, t)
			}
		}
		if len(running) < sideBySide {
			if op := w.study.Ask(noon); op != nil {
				w.write(op)
				continue
			}
		}
		for _, t := range running {
			reports, sentence := trained(t)
			if i := at[t.Number]; !t.Prune && i < len(reports) {
				at[t.Number]++
				if op := w.study.Report(t.Number, reports[i]); op != nil {
					w.write(op)
				}
				continue
			}
			w.write(w.study.End(t.Number, sentence, noon)...)
		}
	}
	return w.study
}

// TestKilledStudies kills a study after each line of its journal. The same command must then end
// with the same journal, whatever the sampler and the pruner.
func TestKilledStudies(t *testing.T) {
	for _, sampler := range []string{Grid, Random, TPE} {
		for _, pruner := range []string{NoPruner, Median, ASHA} {
			t.Run(sampler+"/"+pruner, func(t *testing.T) {
				c := config(sampler, pruner)
				whole := &world{t: t, most: math.MaxInt}
				study := whole.run(c, 1)
				if !study.Done() || len(study.Trials()) != 16 || study.Best() == nil {
					t.Fatalf("the study has %d trials and is not done", len(study.Trials()))
				}
				states := map[State]int{}
				for _, trial := range study.Trials() {
					states[trial.State]++
					if trial.State == Failed && trial.Error != "step 11: the loss is NaN" {
						t.Errorf("trial %d failed with %q", trial.Number, trial.Error)
					}
				}
				if (states[Pruned] > 0) != (pruner != NoPruner) || states[Complete] == 0 {
					t.Errorf("states are %v", states)
				}
				for most := range len(whole.journal) {
					again := &world{t: t, most: most}
					again.run(c, 1)
					again.most = math.MaxInt
					again.run(c, 1)
					if got := again.journal; !slices.Equal(withoutRepeats(got), withoutRepeats(whole.journal)) {
						t.Fatalf("killed after %d lines, the journal is\n%s\nexpected\n%s", most, strings.Join(got, "\n"), strings.Join(whole.journal, "\n"))
					}
				}
			})
		}
	}
}

// withoutRepeats leaves out lines that say what the line before them said: that a trial has failed is
// told in two lines, and a study has several at its start.
func withoutRepeats(lines []string) []string { return slices.Compact(slices.Clone(lines)) }

// TestKilledTwice kills a study that has several trials at a time, again and again.
func TestKilledTwice(t *testing.T) {
	c := config(Random, NoPruner)
	whole := &world{t: t, most: math.MaxInt}
	want := summary(whole.run(c, 3))
	for every := 1; every < 12; every++ {
		w := &world{t: t, most: 4}
		for range 400 {
			w.most += every
			if w.run(c, 3).Done() {
				break
			}
		}
		if got := summary(w.study); got != want {
			t.Errorf("killed after every %d lines, the trials are\n%s\nexpected\n%s", every, got, want)
		}
	}
}

// summary says what a study found.
func summary(s *Study) string {
	var b strings.Builder
	for _, t := range s.Trials() {
		fmt.Fprintln(&b, t.Number, t.State, t.Params, t.Value, t.Reports, t.Run, t.Error)
	}
	return b.String()
}

func TestStudies(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no space", func(c *Config) { c.Space = nil }, "search is empty"},
		{"no objective", func(c *Config) { c.Objective = "" }, "objective is empty"},
		{"direction", func(c *Config) { c.Direction = "up" }, `direction is "up"; expected max or min`},
		{"sampler", func(c *Config) { c.Sampler.Name = "cma" }, "expected grid, random or tpe"},
		{"pruner", func(c *Config) { c.Pruner.Name = "hyperband" }, "expected none, median or asha"},
		{"twice", func(c *Config) { c.Space[1].Name = c.Space[0].Name }, "search.optimizer.learning_rate is given twice"},
		{"log from 0", func(c *Config) { c.Space[0].Distribution.Low = 0 }, "low is 0; expected more than 0 on a logarithmic scale"},
		{"upside down", func(c *Config) { c.Space[3].Distribution.Low = 200 }, "low is 200 and high is 100"},
		{"off the step", func(c *Config) { c.Space[2].Distribution.High = 0.35 }, "high is 0.35; expected low, 0, and a multiple of step, 0.1, such as 0.3"},
		{"fraction", func(c *Config) { c.Space[3].Distribution.High = 9.5 }, "expected whole numbers"},
		{"endless grid", func(c *Config) { c.Sampler.Name = Grid }, "search.optimizer.learning_rate has infinitely many values; expected choices, step, or points"},
		{"points at random", func(c *Config) { c.Space[0].Points = 3 }, "expected points only of numbers, with sampler grid"},
		{"no choices", func(c *Config) { c.Space[1].Distribution.Choices = nil }, "has no choices"},
		{"choice twice", func(c *Config) { c.Space[1].Distribution.Choices = []any{int64(1), int64(1)} }, "choice 1 is given twice"},
		{"choice of nothing", func(c *Config) { c.Space[1].Distribution.Choices = []any{nil} }, "expected a text, a number, true or false"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config(TPE, Median)
			tt.change(&c)
			if _, err := NewStudy("s").Begin(c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, expected %s", err, tt.want)
			}
		})
	}
	t.Run("another configuration", func(t *testing.T) {
		w := &world{t: t, most: math.MaxInt}
		w.run(config(Random, NoPruner), 1)
		var wrong *ConfigError
		if _, err := w.study.Begin(config(TPE, NoPruner)); !errors.As(err, &wrong) || wrong.Field != "sampler" {
			t.Errorf("got %v, expected that the sampler differs", err)
		}
		more := config(Random, NoPruner)
		more.Trials = 18
		if s := w.run(more, 1); len(s.Trials()) != 18 || !s.Done() {
			t.Errorf("after more trials were asked for there are %d", len(s.Trials()))
		}
	})
	t.Run("all fail", func(t *testing.T) {
		c := config(Random, NoPruner)
		c.Space = []Param{{Name: "optimizer.warmup_steps", Distribution: Distribution{Kind: Int, Low: 100, High: 100, Step: 10}}}
		w := &world{t: t, most: math.MaxInt}
		if s := w.run(c, 1); len(s.Trials()) != 3 || s.Hopeless() != "step 11: the loss is NaN" || s.Best() != nil {
			t.Errorf("the study has %d trials and says %q", len(s.Trials()), s.Hopeless())
		}
	})
	t.Run("not a number", func(t *testing.T) {
		w := &world{t: t, most: math.MaxInt}
		w.run(config(Random, NoPruner), 1)
		s := NewStudy("s")
		for _, line := range w.journal[:4] {
			if err := s.Apply([]byte(line)); err != nil {
				t.Fatal(err)
			}
		}
		op := s.Report(0, Report{10, math.NaN()})
		if err := s.Apply(op); err != nil || !math.IsNaN(s.Trials()[0].Reports[0].Value) {
			t.Fatalf("%s: %v", op, err)
		}
		for _, op := range s.End(0, "", noon) {
			if err := s.Apply(op); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.Trials()[0]; got.State != Failed || got.Error != "no evaluation has a finite accuracy" {
			t.Errorf("the trial is %v: %q", got.State, got.Error)
		}
	})
}

// TestGrid looks at the order of a grid.
func TestGrid(t *testing.T) {
	c := config(Grid, NoPruner)
	c.Space, c.Trials = c.Space[:2], 100
	w := &world{t: t, most: math.MaxInt}
	var got []string
	for _, trial := range w.run(c, 1).Trials() {
		got = append(got, fmt.Sprintf("%.3g,%s", trial.Params[c.Space[0].Name], c.Space[1].Distribution.Text(trial.Params[c.Space[1].Name])))
	}
	if want := "1e-05,16 1e-05,32 0.000316,16 0.000316,32 0.01,16 0.01,32"; strings.Join(got, " ") != want {
		t.Errorf("the grid is %v, expected %s", got, want)
	}
}

// TestDamagedJournals wants the number of the line that is no operation.
func TestDamagedJournals(t *testing.T) {
	for line, want := range map[string]string{
		`{"op_code":`:    "line 2: is not a line of an Optuna journal",
		`{}`:             "has no op_code",
		`{"op_code":99}`: "op_code 99; expected 0 to 10",
		`{"op_code":2,"study_id":0,"user_attr":{"gorbit":{"trials":-1}}}`: "attribute gorbit: search is empty",
	} {
		s := NewStudy("s")
		if err := s.Apply([]byte(`{"op_code":0,"worker_id":"w","study_name":"s","directions":[1]}`)); err != nil {
			t.Fatal(err)
		}
		if err := s.Apply([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, expected %s", line, err, want)
		}
	}
}

// FuzzApply looks for lines that end the program.
func FuzzApply(f *testing.F) {
	w := &world{t: &testing.T{}, most: math.MaxInt}
	w.run(config(TPE, ASHA), 2)
	f.Add(strings.Join(w.journal[:8], "\n"))
	f.Add(`{"op_code":0,"study_name":"s","directions":[1]}` + "\n" + `{"op_code":4,"study_id":0,"params":{"a":NaN},"distributions":{"a":"{\"name\":\"FloatDistribution\",\"attributes\":{\"low\":-Infinity}}"}}`)
	f.Fuzz(func(_ *testing.T, text string) {
		s := NewStudy("s")
		for line := range strings.Lines(text) {
			if s.Apply([]byte(line)) != nil {
				return
			}
		}
		if len(s.trials) < 100 && len(s.config.Space) < 10 {
			s.Ask(noon)
		}
		s.Best()
		s.Hopeless()
	})
}
