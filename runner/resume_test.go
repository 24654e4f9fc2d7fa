package runner

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// resumeWorlds are runs that are killed and stopped everywhere below.
func resumeWorlds() map[string]worldConfig {
	worlds := map[string]worldConfig{}
	add := func(name string, change func(*worldConfig)) {
		w := defaultWorld()
		change(&w)
		worlds[name] = w
	}
	add("aligned", func(w *worldConfig) { w.save, w.eval = 5, 10 })
	add("intervals that share nothing", func(w *worldConfig) { w.loop, w.save, w.eval, w.summary, w.total = 5, 4, 7, 3, 23 })
	add("an evaluation before the first step", func(w *worldConfig) { w.atStart, w.save, w.eval, w.total = true, 4, 6, 13 })
	add("the best before the first step", func(w *worldConfig) { w.atStart, w.save, w.eval, w.total, w.best = true, 4, 6, 13, "loss" })
	add("the first step", func(w *worldConfig) { w.first, w.save, w.eval, w.summary, w.total = true, 4, 6, 3, 13 })
	add("save at the end only", func(w *worldConfig) { w.eval, w.total = 6, 13 })
	add("one long loop", func(w *worldConfig) { w.loop, w.save, w.total = 100, 9, 20 })
	add("until the data ends", func(w *worldConfig) { w.total, w.batches, w.save, w.eval = UntilEnd, 18, 4, 6 })
	add("epochs", func(w *worldConfig) { w.total, w.epochs, w.save, w.eval = UntilEnd, 2, 4, 7 })
	add("background saves", func(w *worldConfig) { w.background, w.save, w.eval, w.total = true, 4, 6, 19 })
	add("best and early stopping", func(w *worldConfig) { w.best, w.patience, w.save, w.eval, w.total = "loss", 3, 4, 2, 30 })
	add("skips", func(w *worldConfig) { w.nan, w.inf, w.skip, w.save, w.eval = []int64{0, 6, 7, 13}, []int64{9}, 5, 4, 5 })
	add("loss scale", func(w *worldConfig) { w.limit, w.grow, w.save, w.eval, w.total = 20, 3, 4, 5, 23 })
	add("loss scale and rollbacks", func(w *worldConfig) {
		w.limit, w.grow, w.nan, w.rollbacks, w.save, w.eval = 20, 3, []int64{9, 15}, 2, 4, 5
	})
	add("rollbacks", func(w *worldConfig) {
		w.nan, w.guard, w.rollbacks, w.save, w.eval, w.best = []int64{6, 12}, false, 2, 4, 5, "loss"
	})
	return worlds
}

// outcome is everything about a finished run that must not depend on
// interruptions.
type outcome struct {
	log, summaries []string
	outputs        string
	weight         uint64
	count          int64
	best           string
	rollbacks      int64
	trainer        string
}

func (p *process) outcome(t *testing.T, out Outputs) outcome {
	t.Helper()
	state, err := p.controller.cfg.Trainer.State()
	if err != nil {
		t.Fatal(err)
	}
	o := outcome{
		log:       runLines(p.log),
		summaries: slices.DeleteFunc(slices.Clone(p.summaries), func(l string) bool { return strings.Contains(l, "per_second") }),
		outputs:   out.String(),
		weight:    math.Float64bits(p.model.weight),
		count:     p.model.count,
		rollbacks: p.controller.rollbacks,
		trainer:   string(state),
	}
	if p.best != nil {
		o.best = fmt.Sprint(p.best.Best())
	}
	return o
}

// diff tells of the first difference.
func (o outcome) diff(want outcome) string {
	if d := firstDifference(o.log, want.log); d != "" {
		return "log: " + d
	}
	if d := firstDifference(o.summaries, want.summaries); d != "" {
		return "summaries: " + d
	}
	o.log, o.summaries, want.log, want.summaries = nil, nil, nil, nil
	if got, wanted := fmt.Sprintf("%+v", o), fmt.Sprintf("%+v", want); got != wanted {
		return fmt.Sprintf("the end is\n  %s\nand was\n  %s", got, wanted)
	}
	return ""
}

func firstDifference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			return fmt.Sprintf("line %d is\n  %s\nand was\n  %s", i+1, g, w)
		}
	}
	return ""
}

var timePattern = regexp.MustCompile(`steps/sec: +[0-9.]+`)

// runLines leaves out the lines that belong to a process and not to the run,
// and the times.
func runLines(log []string) []string {
	var lines []string
	for _, l := range log {
		if !strings.Contains(l, "checkpoint") && !strings.Contains(l, "initializing") &&
			!strings.Contains(l, "training until") && !strings.Contains(l, "running complete") &&
			!strings.Contains(l, "already stopped early") {
			lines = append(lines, timePattern.ReplaceAllString(l, "steps/sec:"))
		}
	}
	return lines
}

// forgetUnsaved cuts the log and the summaries back to what had been written
// when the newest checkpoint was: the rest is written again by the next process.
func (w *world) forgetUnsaved() {
	if len(w.disk) == 0 {
		w.log, w.summaries = nil, nil
		return
	}
	last := w.disk[len(w.disk)-1]
	w.log, w.summaries = w.log[:last.lines], w.summaries[:last.flush]
}

// finish runs processes until one ends by itself. Each process is interrupted
// as the function says.
func finish(t *testing.T, cfg worldConfig, interrupt func(n int, p *process)) outcome {
	t.Helper()
	w := &world{worldConfig: cfg}
	for n := 0; ; n++ {
		p := w.start(t)
		interrupt(n, p)
		out, err := p.run()
		switch {
		case errors.Is(err, errKilled):
			w.forgetUnsaved()
		case errors.Is(err, ErrStopped):
			if p.stopAt == 0 {
				t.Fatalf("process %d stopped by itself: %v", n, err)
			}
			if step := p.controller.Step(); step > 0 && w.disk[len(w.disk)-1].step != step {
				t.Fatalf("stopped at step %d with a checkpoint of step %d", step, w.disk[len(w.disk)-1].step)
			}
			lines := w.log
			w.forgetUnsaved()
			for _, l := range runLines(lines[len(w.log):]) {
				// Only batches skipped since the last step are skipped again, and
				// only a stop right after a rollback leaves that to be done again.
				if !strings.Contains(l, "update skipped") && !strings.Contains(l, "batch skipped") && cfg.rollbacks == 0 {
					t.Fatalf("process %d was stopped without saving what it said: %s", n, l)
				}
			}
		case err != nil:
			t.Fatalf("process %d: %v", n, err)
		default:
			return p.outcome(t, out)
		}
	}
}

// uninterrupted runs without interruption and returns the outcome and the number of events.
func uninterrupted(t *testing.T, cfg worldConfig) (outcome, int) {
	t.Helper()
	var last *process
	o := finish(t, cfg, func(_ int, p *process) { last = p })
	if len(o.log) < 3 {
		t.Fatalf("a run of only %d lines proves nothing: %q", len(o.log), o.log)
	}
	return o, last.events
}

func TestResumeAfterKillAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("goes through thousands of cases")
	}
	for name, cfg := range resumeWorlds() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want, events := uninterrupted(t, cfg)
				for at := 1; at <= events; at++ {
					got := finish(t, cfg, func(n int, p *process) {
						if n == 0 {
							p.killAt = at
						}
					})
					if d := got.diff(want); d != "" {
						t.Fatalf("killed at event %d of %d: %s", at, events, d)
					}
				}
			})
		})
	}
}

func TestResumeAfterStopAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("goes through thousands of cases")
	}
	for name, cfg := range resumeWorlds() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want, events := uninterrupted(t, cfg)
				for at := 1; at <= events; at++ {
					got := finish(t, cfg, func(n int, p *process) {
						if n == 0 {
							p.stopAt = at
						}
					})
					if d := got.diff(want); d != "" {
						t.Fatalf("stopped at event %d of %d: %s", at, events, d)
					}
				}
			})
		})
	}
}

func TestResumeAfterManyInterruptions(t *testing.T) {
	for name, cfg := range resumeWorlds() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				want, events := uninterrupted(t, cfg)
				for seed := range uint64(25) {
					r := rand.New(rand.NewPCG(seed, 1))
					got := finish(t, cfg, func(n int, p *process) {
						switch at := 1 + r.IntN(events); {
						case n > 12: // let it come to an end
						case r.IntN(2) == 0:
							p.killAt = at
						default:
							p.stopAt = at
						}
					})
					if d := got.diff(want); d != "" {
						t.Fatalf("seed %d: %s", seed, d)
					}
				}
			})
		})
	}
}

// A run that has ended and is started again does nothing more.
func TestFinishedRunStaysFinished(t *testing.T) {
	for name, cfg := range resumeWorlds() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{worldConfig: cfg}
				first := w.start(t)
				out, err := first.run()
				if err != nil {
					t.Fatal(err)
				}
				lines, saves, weight := len(runLines(w.log)), len(w.disk), first.model.weight
				second := w.start(t)
				again, err := second.run()
				if err != nil {
					t.Fatal(err)
				}
				if again.String() != out.String() {
					t.Errorf("outputs are %v and were %v", again, out)
				}
				extra := runLines(w.log)[lines:]
				if len(extra) > 0 || len(w.disk) != saves || second.model.weight != weight {
					t.Errorf("second process did more: lines %q, %d more checkpoints", extra, len(w.disk)-saves)
				}
			})
		})
	}
}
