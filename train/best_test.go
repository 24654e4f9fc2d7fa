package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/params"
)

func TestBestDirection(t *testing.T) {
	for _, test := range []struct {
		best, mode string
		want       runner.Better
		err        string
	}{
		{best: "loss", want: runner.LowerIsBetter},
		{best: "loss", mode: "auto", want: runner.LowerIsBetter},
		{best: "loss", mode: "min", want: runner.LowerIsBetter},
		{best: "accuracy", mode: "max", want: runner.HigherIsBetter},
		{best: "macro_f1", mode: "auto", want: runner.HigherIsBetter},
		{best: "distance", mode: "min", want: runner.LowerIsBetter},
		{best: "distance", mode: "max", want: runner.HigherIsBetter},
		{best: "loss", mode: "max", err: "params: checkpoint.best_mode is max; for loss expected min; leave it out, or use checkpoint.best_mode=min"},
		{best: "f1", mode: "min", err: "params: checkpoint.best_mode is min; for f1 expected max; leave it out, or use checkpoint.best_mode=max"},
		{best: "distance", err: `params: checkpoint.best is "distance", whose direction is unknown; add checkpoint.best_mode=max if higher is better, or min if lower is better`},
	} {
		got, err := params.Params{Checkpoint: params.Checkpoint{Best: test.best, BestMode: test.mode}}.BestOrder(classifier)
		if test.err != "" {
			if err == nil || err.Error() != test.err || !errors.Is(err, fault.Usage) {
				t.Errorf("%s, %q: got %v, want %s", test.best, test.mode, err, test.err)
			}
			continue
		}
		if err != nil || got != test.want {
			t.Errorf("%s, %q: got %v, %v", test.best, test.mode, got, err)
		}
	}
}

// The checkpoint of the lowest loss is kept, and patience counts from it.
func TestBestLossIsLowest(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Checkpoint.Best = "loss"
	p.Train.Steps, p.Train.EvalInterval, p.Train.StepsPerLoop = 12, 2, 2
	p.Train.Patience = 6
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	lowest, at := math.Inf(1), int64(0)
	worst := math.Inf(-1)
	for _, e := range evaluations(t, run) {
		if e.Outputs["loss"] < lowest {
			lowest, at = e.Outputs["loss"], e.Step
		}
		worst = max(worst, e.Outputs["loss"])
	}
	if !(lowest < worst) {
		t.Fatal("all losses are the same: the test shows nothing")
	}
	r, err := OpenRun(context.Background(), run, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if step, err := r.Load(context.Background(), params.Best); err != nil || step != at {
		t.Errorf("the best checkpoint is of step %d, %v; the lowest loss was at step %d", step, err, at)
	}
	// Where a command chooses, it is the best one, and the log says so if it is not the latest.
	var log strings.Builder
	r.env.Log = slog.New(slog.NewTextHandler(&log, nil))
	latest, err := r.Load(context.Background(), params.Latest)
	if err != nil {
		t.Fatal(err)
	}
	step, err := r.Load(context.Background(), params.BestOrLatest)
	if want := fmt.Sprintf("step=%d latest=%d", at, latest); err != nil || step != at || strings.Contains(log.String(), want) != (at != latest) {
		t.Errorf("step %d, %v, log %q; expected step %d, and %q if that is not the latest", step, err, log.String(), at, want)
	}
}

// Without a best checkpoint, a command chooses the latest.
func TestLatestWithoutBest(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Checkpoint.Best, p.Train.Steps, p.Train.EvalInterval = "", 2, -2
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	r, err := OpenRun(context.Background(), run, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if step, err := r.Load(context.Background(), params.BestOrLatest); err != nil || step != 2 {
		t.Errorf("step %d, %v; expected 2", step, err)
	}
}

// A contradiction is refused before anything is trained; params of older runs load.
func TestBestModeOfParams(t *testing.T) {
	p := testParams(t)
	p.Checkpoint.Best, p.Checkpoint.BestMode = "loss", "max"
	if _, err := Train(context.Background(), p, filepath.Join(t.TempDir(), "run"), quiet()); !errors.Is(err, fault.Usage) {
		t.Errorf("loss by max: got %v, want a usage error", err)
	}
	old := testParams(t)
	if err := old.Load(nil, []string{"checkpoint.best_mode=max"}); err != nil {
		t.Fatal(err)
	}
	if err := old.Validate(); err != nil {
		t.Error(err)
	}
	old.Checkpoint.ResolveBest(classifierContract)
	if order, err := old.BestOrder(classifier); err != nil || order != runner.HigherIsBetter {
		t.Errorf("accuracy by max: %v, %v", order, err)
	}
}
