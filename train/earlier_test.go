package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/params"
)

// stopAt trains until a step and stops there, as a signal does.
func stopAt(t *testing.T, p params.Params, run string, step int64) string {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	var log bytes.Buffer
	env := Env{Out: io.Discard, Log: slog.New(slog.NewTextHandler(&log, nil)), Observer: &stopper{at: step, stop: func() { cancel(errors.New("terminated")) }}}
	if _, err := Train(ctx, p, run, env); !errors.Is(err, runner.ErrStopped) {
		t.Fatalf("stopped at step %d: %v", step, err)
	}
	return log.String()
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(content)
}

// What is changed in the middle of a run is recorded once, params.yaml says what the run
// continues with, and what cannot be changed any more stays.
func TestChangedRun(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.Steps, p.Train.EvalInterval = 9, -1
	run := filepath.Join(t.TempDir(), "run")
	stopAt(t, p, run, 2)
	first := p
	stopAt(t, p, run, 4)
	if h := read(t, run, runfolder.History); h != "" {
		t.Errorf("the same command left the history %s", h)
	}

	p.Optimizer.WeightDecay, p.Data.Readers = 0.5, 1
	stopAt(t, p, run, 5)
	const want = `{"step":4,"param":"data.readers","old":0,"new":1}` + "\n" + `{"step":4,"param":"optimizer.weight_decay","old":0.01,"new":0.5}` + "\n"
	if h := read(t, run, runfolder.History); h != want {
		t.Errorf("got %s, want %s", h, want)
	}
	stopAt(t, p, run, 6)
	if h := read(t, run, runfolder.History); h != want {
		t.Errorf("the changed command again left %s, want %s", h, want)
	}
	now, err := params.Read(filepath.Join(run, runfolder.Params))
	if err != nil || now.Optimizer.WeightDecay != 0.5 || now.Data.Readers != 1 {
		t.Errorf("params.yaml says %+v, %v", now, err)
	}

	// The weights come from the checkpoint: another init is not what they began with.
	other := p
	other.Init = filepath.Join(t.TempDir(), "other.safetensors")
	if log := stopAt(t, other, run, 7); !strings.Contains(log, "the run keeps its init") {
		t.Errorf("no warning about the ignored init: %s", log)
	}
	if now, err := params.Read(filepath.Join(run, runfolder.Params)); err != nil || now.Init != "" {
		t.Errorf("params.yaml says init %q, %v", now.Init, err)
	}

	// Back to the first params, until the end: the history is longer, not another.
	mustTrain(t, first, run)
	const back = want + `{"step":7,"param":"data.readers","old":1,"new":0}` + "\n" + `{"step":7,"param":"optimizer.weight_decay","old":0.5,"new":0.01}` + "\n"
	if h := read(t, run, runfolder.History); h != back {
		t.Errorf("got %s, want %s", h, back)
	}
}

// A start that is killed between writing the history and params.yaml trained nothing.
func TestHistoryOfKilledStart(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.Steps, p.Train.EvalInterval = 5, -1
	run := filepath.Join(t.TempDir(), "run")
	stopAt(t, p, run, 2)
	torn := runfolder.Changes{{Step: 2, Param: "optimizer.clip_norm", Old: json.RawMessage("1"), New: json.RawMessage("3")}}
	if err := torn.Write(run); err != nil {
		t.Fatal(err)
	}
	stopAt(t, p, run, 3)
	if h := read(t, run, runfolder.History); h != "" {
		t.Errorf("a change that never was is left: %s", h)
	}
	if err := torn.Write(run); err != nil {
		t.Fatal(err)
	}
	p.Optimizer.ClipNorm = 3
	stopAt(t, p, run, 4)
	const want = `{"step":3,"param":"optimizer.clip_norm","old":1,"new":3}` + "\n"
	if h := read(t, run, runfolder.History); h != want {
		t.Errorf("got %s, want %s", h, want)
	}
}

// A run that was stopped can be made shorter, but not than it is.
func TestShorterThanDone(t *testing.T) {
	p := testParams(t)
	p.Train.Steps, p.Train.EvalInterval = 9, -1
	run := filepath.Join(t.TempDir(), "run")
	stopAt(t, p, run, 4)
	p.Train.Steps = 3
	_, err := Train(context.Background(), p, run, quiet())
	if want := "is already at step 4, and these changed params would have no effect: train.steps was 9 and is 3"; !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want a usage error with %q", err, want)
	}
	p.Train.Steps = 5
	mustTrain(t, p, run)
	if _, step := final(t, run); step != 5 {
		t.Errorf("ended at step %d", step)
	}
}

// The last checkpoint of a complete run is damaged: the same command makes it again.
func TestCompleteRunIsMended(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.Interval = 6, -1, 3
	run, whole := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "whole")
	for _, folder := range []string{run, whole} {
		mustTrain(t, p, folder)
	}
	files, err := filepath.Glob(filepath.Join(run, runfolder.Checkpoints, "ckpt-6.data-*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	content := []byte(read(t, files[0]))
	content[100] ^= 1
	writeFile(t, files[0], content)
	mustTrain(t, p, run)
	sameRuns(t, run, whole)
}

// The graph or the data behind a path may be others than those of the run.
func TestCompleteRunOfOtherData(t *testing.T) {
	p := testParams(t)
	dir := t.TempDir()
	records.Write(t, filepath.Join(dir, "train-00000-of-00001.tfrecord"), 1, 32)
	records.Write(t, filepath.Join(dir, "dev-00000-of-00001.tfrecord"), 2, 16)
	p.Data.Dir, p.Train.Steps = dir, 2
	run := filepath.Join(t.TempDir(), "run")
	out, err := Train(context.Background(), p, run, quiet())
	if err != nil {
		t.Fatal(err)
	}
	again, err := Train(context.Background(), p, run, quiet())
	if err != nil || fmt.Sprint(again) != fmt.Sprint(out) {
		t.Errorf("the complete run answers %v, %v, want %v", again, err, out)
	}
	records.Write(t, filepath.Join(dir, "train-00000-of-00001.tfrecord"), 1, 40)
	if _, err := Train(context.Background(), p, run, quiet()); err == nil || !strings.Contains(err.Error(), "the number of records was 32 and is 40") {
		t.Errorf("got %v", err)
	}
}

// The best value of one metric says nothing of another.
func TestAnotherBestMetric(t *testing.T) {
	p := testParams(t)
	p.Train.Steps, p.Train.EvalInterval = 8, 2
	run := filepath.Join(t.TempDir(), "run")
	stopAt(t, p, run, 5) // accuracies, all above 0
	p.Checkpoint.Best = "loss"
	p.Optimizer.LearningRate = 10 // losses above all accuracies
	mustTrain(t, p, run)
	best := readPast(run, &graphs.Contract{State: checkpoint.StateVariable})
	_, step, ok := best.best(classifier)
	if !ok || step < 6 {
		t.Errorf("the lowest loss is said to be of step %d, %v, when accuracy counted", step, ok)
	}
}

func TestWhyEarly(t *testing.T) {
	early := fmt.Errorf("%w: loss is 2", runner.ErrStopTraining)
	if got := whyEarly(early.Error()); got != "loss is 2" {
		t.Error(got)
	}
}

// Files of a run that somebody removes while it trains are there again at its end, and the log says so.
func TestFilesRemovedInTraining(t *testing.T) {
	p := testParams(t)
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.Interval = 8, -1, 3
	run, whole := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "whole")
	mustTrain(t, p, whole)
	var log bytes.Buffer
	env := Env{Out: io.Discard, Log: slog.New(slog.NewTextHandler(&log, nil)), Observer: &stopper{at: 4, stop: func() {
		events, err := filepath.Glob(filepath.Join(run, runfolder.TrainEvents, "events*"))
		for _, path := range append(events, filepath.Join(run, runfolder.Params), filepath.Join(run, runfolder.Metrics)) {
			err = errors.Join(err, os.Remove(path))
		}
		if err != nil {
			t.Error(err)
		}
	}}}
	if _, err := Train(context.Background(), p, run, env); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{runfolder.Params, runfolder.Metrics} {
		if got, want := read(t, run, name), read(t, whole, name); got != want {
			t.Errorf("%s is\n%s\nexpected\n%s", name, got, want)
		}
	}
	for _, want := range []string{"a file of the run was removed", "the metrics file was removed", "an event file was removed"} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%q is said %d times: %s", want, n, log.String())
		}
	}
	p.Train.Steps = 12
	if log := stopAt(t, p, run, 10); !strings.Contains(log, "there are no event files of the steps before") {
		t.Errorf("continued without event files: %s", log)
	}
}
