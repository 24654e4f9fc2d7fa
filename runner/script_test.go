package runner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/*.txt")

// TestScripts runs testdata/*.txt. A script is a sequence of blocks: comment
// lines (#), one command with key=value arguments, a line of four dashes, and
// the lines that the command is to print, up to an empty line. The commands:
//
//	config k=v ...   sets fields of worldConfig for the processes to come
//	start k=v ...    starts a process and restores; stop=N tells it to stop
//	                 while step N runs, stop_event=N at its Nth event
//	run              TrainAndEvaluate with the configuration
//	train steps=N    Train
//	evaluate steps=N Evaluate
//	summaries        prints and forgets the scalars written so far
//	state            prints the state saved with the newest checkpoint
//	model            prints the model's counter of updates
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var rewritten strings.Builder
			synctest.Test(t, func(t *testing.T) {
				s := &script{t: t, world: &world{worldConfig: defaultWorld()}}
				for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
					head, want, ok := strings.Cut(block+"\n", "\n----\n")
					if !ok {
						t.Fatalf("block without ----: %q", block)
					}
					lines := strings.Split(head, "\n")
					got := s.do(lines[len(lines)-1])
					if got != want && !*update {
						t.Errorf("%s\ngives\n%swant\n%s", head, got, want)
					}
					fmt.Fprintf(&rewritten, "%s\n----\n%s\n", head, got)
				}
			})
			if *update {
				text := strings.TrimSuffix(rewritten.String(), "\n")
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

type script struct {
	t *testing.T
	*world
	process *process
	printed int // lines of the log printed before
}

// do runs one command and returns what it prints.
func (s *script) do(line string) string {
	s.t.Helper()
	words := strings.Fields(line)
	args := map[string]string{}
	for _, w := range words[1:] {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			s.t.Fatalf("%s: %q is not key=value", line, w)
		}
		args[k] = v
	}
	integer := func(name string) int64 {
		n, err := strconv.ParseInt(args[name], 10, 64)
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		return n
	}
	var b strings.Builder
	var out Outputs
	var err error
	switch words[0] {
	case "config":
		for k, v := range args {
			s.worldConfig.set(s.t, k, v)
		}
	case "start":
		s.process = s.start(s.t)
		if args["stop"] != "" {
			s.process.stopStep = integer("stop")
		}
		if args["stop_event"] != "" {
			s.process.stopAt = int(integer("stop_event"))
		}
		_, err = s.process.controller.Restore(s.process.ctx)
	case "run":
		p := s.process
		out, err = p.controller.TrainAndEvaluate(p.ctx, p.total, p.evalSteps, p.eval)
	case "train":
		err = s.process.controller.Train(s.process.ctx, integer("steps"))
	case "evaluate":
		out, err = s.process.controller.Evaluate(s.process.ctx, integer("steps"))
	case "summaries":
		for _, l := range s.summaries {
			fmt.Fprintln(&b, l)
		}
		s.summaries = nil
	case "state":
		fmt.Fprintf(&b, "%s\n", s.disk[len(s.disk)-1].state)
	case "model":
		fmt.Fprintf(&b, "%d updates\n", s.process.model.count)
	default:
		s.t.Fatalf("unknown command %q", words[0])
	}
	synctest.Wait()
	for ; s.printed < len(s.log); s.printed++ {
		fmt.Fprintln(&b, strings.TrimRight(s.log[s.printed], " "))
	}
	if out != nil {
		fmt.Fprintln(&b, "=", out)
	}
	if err != nil {
		fmt.Fprintln(&b, "error:", err)
		if errors.Is(err, ErrStopped) {
			fmt.Fprintln(&b, "(stopped)")
		}
	}
	return b.String()
}

func (c *worldConfig) set(t *testing.T, name, value string) {
	t.Helper()
	integers := map[string]*int64{
		"loop": &c.loop, "save": &c.save, "summary": &c.summary, "eval": &c.eval, "total": &c.total,
		"eval_steps": &c.evalSteps, "batches": &c.batches, "per_epoch": &c.perEpoch, "epochs": &c.epochs,
		"eval_batches": &c.evalBatches, "skip": &c.skip, "rollbacks": &c.rollbacks, "seed": &c.seed,
		"patience": &c.patience, "disk_full": &c.diskFull, "miscount": &c.miscount, "preempted": &c.preempted,
	}
	lists := map[string]*[]int64{"nan": &c.nan, "inf": &c.inf, "bad": &c.bad}
	switch {
	case integers[name] != nil:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		*integers[name] = n
	case lists[name] != nil:
		*lists[name] = nil
		for v := range strings.SplitSeq(value, ",") {
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				*lists[name] = append(*lists[name], n)
			}
		}
	case name == "schedule":
		c.schedule = value
	case name == "best":
		c.best = value
	case name == "guard":
		c.guard = value == "true"
	case name == "background":
		c.background = value == "true"
	default:
		t.Fatalf("unknown setting %q", name)
	}
}

func TestConfigValidate(t *testing.T) {
	trainer := &StandardTrainer[int64]{}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "neither a trainer nor an evaluator"},
		{Config{Trainer: trainer}, "steps per loop are 0"},
		{Config{Trainer: trainer, StepsPerLoop: 1, SaveInterval: -1}, "save interval is -1"},
		{Config{Trainer: trainer, StepsPerLoop: 1, SummaryInterval: -1}, "summary interval is -1"},
		{Config{Trainer: trainer, StepsPerLoop: 1, MaxRollbacks: -1}, "maximum rollbacks are -1"},
		{Config{Trainer: trainer, StepsPerLoop: 1, MaxRollbacks: 1}, "rollbacks need checkpoints"},
		{Config{Trainer: trainer, StepsPerLoop: 1}, ""},
		{Config{Evaluator: &StandardEvaluator[int64]{}}, ""},
	} {
		_, err := NewController(c.cfg)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.cfg, err, c.want)
		}
	}
}

func TestControllerNeedsItsParts(t *testing.T) {
	ctx := context.Background()
	trains, err := NewController(Config{Trainer: &StandardTrainer[int64]{}, StepsPerLoop: 1})
	if err != nil {
		t.Fatal(err)
	}
	evaluates, err := NewController(Config{Evaluator: &StandardEvaluator[int64]{}})
	if err != nil {
		t.Fatal(err)
	}
	_, err1 := trains.Evaluate(ctx, UntilEnd)
	_, err2 := trains.TrainAndEvaluate(ctx, 1, UntilEnd, 0)
	_, err3 := evaluates.TrainAndEvaluate(ctx, 1, UntilEnd, 0)
	_, err4 := evaluates.EvaluateContinuously(ctx, Watch{})
	_, err5 := evaluates.Restore(ctx)
	_, err6 := evaluates.Evaluate(ctx, 0)
	got := []error{err1, err2, err3, err4, err5, err6, evaluates.Train(ctx, 1), trains.Save(ctx)}
	if i := slices.Index(got, nil); i >= 0 {
		t.Errorf("call %d of a controller that lacks a part gave no error", i)
	}
}
