package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/crashtest"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/vfstest"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/train/params"
)

// tinyRun is a run of 12 steps with a checkpoint every four, which are all kept.
func tinyRun(t *testing.T) params.Params {
	t.Helper()
	p := anyModelNamed("flowers").params(t)
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.Interval, p.Checkpoint.MaxToKeep = 12, 4, 4, 0
	return p
}

// trainFrom trains with an environment that a function changes, and returns what it prints.
func trainFrom(t *testing.T, p params.Params, run string, change func(*Env)) (string, error) {
	t.Helper()
	var out strings.Builder
	env := quiet()
	env.Out = &out
	change(&env)
	_, err := Train(t.Context(), p, run, env)
	return out.String(), err
}

func from(which string) func(*Env) { return func(e *Env) { e.ResumeFrom = which } }

// TestResumeFrom goes back to a checkpoint of the run, which then ends as before, and keeps what it was.
func TestResumeFrom(t *testing.T) {
	p, dir := tinyRun(t), t.TempDir()
	whole, run := filepath.Join(dir, "whole"), filepath.Join(dir, "run")
	mustTrain(t, p, whole)
	copyFolder(t, run, whole)
	out, err := trainFrom(t, p, run, from("4"))
	aside := filepath.Join(run, runfolder.SetAside, "step-12")
	if err != nil || !strings.Contains(out, "going back from step 12 to step 4; the run as it was is in "+aside) || !strings.Contains(out, "restored from checkpoint: "+filepath.Join(run, runfolder.Checkpoints, "ckpt-4")) {
		t.Fatalf("%v\n%s", err, out)
	}
	sameRuns(t, run, whole)
	sameRuns(t, aside, whole)
	if _, err := loaded(t, aside, quiet()).Evaluate(t.Context(), ""); err != nil {
		t.Errorf("what was set aside is no run: %v", err)
	}

	// Nothing lies after the newest.
	if out, err := trainFrom(t, p, run, from("latest")); err != nil || strings.Contains(out, "going back") {
		t.Errorf("%v\n%s", err, out)
	}
	p.Train.Steps = 16
	if out, err := trainFrom(t, p, run, from("ckpt-12")); err != nil || strings.Contains(out, "going back") || !strings.Contains(out, "the same command without --resume-from with --steps 32, to train on") {
		t.Errorf("%v\n%s", err, out)
	}
	// A second time, by a path, with what was set aside before.
	for _, path := range []string{filepath.Join(run, runfolder.Checkpoints, "ckpt-8"), "best"} {
		p.Train.Steps += 4 // the best may be the last
		if out, err := trainFrom(t, p, run, from(path)); err != nil || path != "best" && !strings.Contains(out, "step-16") {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
	if list, err := os.ReadDir(filepath.Join(run, runfolder.SetAside)); err != nil || len(list) < 2 {
		t.Errorf("set aside are %v, %v", list, err)
	}
}

// TestResumeFromRefuses leaves the run as it is if it cannot go back.
func TestResumeFromRefuses(t *testing.T) {
	p, dir := tinyRun(t), t.TempDir()
	run := filepath.Join(dir, "run")
	mustTrain(t, p, run)
	damaged := filepath.Join(run, runfolder.Checkpoints, "ckpt-8.data-00000-of-00001")
	flip(t, damaged)
	before := read(t, run, runfolder.Metrics)
	for _, test := range []struct {
		from  string
		class fault.Class
		want  string
		p     func(*params.Params)
	}{
		{"5", fault.Usage, "run " + run + " has no such checkpoint; expected one of 4, 8, 12", nil},
		{"8", fault.Damaged, "--resume-from 8: ", nil},
		{"last", fault.Usage, `--resume-from is "last"; expected a step of the run, best, or the path of a checkpoint`, nil},
		{"-4", fault.Usage, "expected a step", nil},
		{filepath.Join(dir, "other", "ckpt-4"), fault.Failed, "there is no such checkpoint", nil},
		{filepath.Join(dir, "4"), fault.Usage, "expected a step", nil},
		{"4", fault.Usage, "--resume-from 4: the run has 4 steps; expected more, as with --steps 8", func(p *params.Params) { p.Train.Steps = 4 }},
		{"4", fault.Usage, fmt.Sprintf("the seed was %d and is 43", params.Defaults().Seed), func(p *params.Params) { p.Seed = 43 }},
		{filepath.Join(dir, "run2", runfolder.Checkpoints, "ckpt-4"), fault.Usage, "is of another run, and run " + run + " has checkpoints of its own", nil},
	} {
		p := p
		if test.p != nil {
			test.p(&p)
		}
		if strings.Contains(test.from, "run2") {
			copyFolder(t, filepath.Join(dir, "run2"), run)
		}
		_, err := trainFrom(t, p, run, from(test.from))
		if err == nil || fault.Of(err) != test.class || !strings.Contains(err.Error(), test.want) {
			t.Errorf("--resume-from %s: %v (%v); expected %q", test.from, err, fault.Of(err), test.want)
		}
	}
	if read(t, run, runfolder.Metrics) != before || prepare.Exists(filepath.Join(run, runfolder.SetAside)) || !prepare.Exists(filepath.Join(run, runfolder.Checkpoints, "ckpt-12.index")) {
		t.Error("a refused command changed the run")
	}
	_, err := trainFrom(t, p, run, func(e *Env) { e.ResumeFrom, e.Overwrite = "4", true })
	if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "exclude each other") {
		t.Errorf("both: %v", err)
	}
}

// TestBranch begins a run with the checkpoint of another, which stays as it is.
func TestBranch(t *testing.T) {
	long(t)
	p, dir := tinyRun(t), t.TempDir()
	whole, run := filepath.Join(dir, "whole"), filepath.Join(dir, "run")
	mustTrain(t, p, whole)
	p.Train.Steps = 8
	path := filepath.Join(whole, runfolder.Checkpoints, "ckpt-4")
	out, err := trainFrom(t, p, run, from(path))
	if err != nil || !strings.Contains(out, "run "+run+" begins with "+path+" of another run, at step 4") {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := read(t, run, runfolder.Metrics); !strings.HasPrefix(read(t, whole, runfolder.Metrics), got) || !strings.Contains(got, `"step":4`) {
		t.Errorf("the metrics are\n%s", got)
	}
	if !strings.Contains(read(t, run, runfolder.History), `"param":"train.steps","old":12,"new":8`) {
		t.Errorf("the history is\n%s", read(t, run, runfolder.History))
	}
	p.Train.Steps = 12
	mustTrain(t, p, run) // continues with its own
	sameRuns(t, run, whole)
}

// rewind goes back to the checkpoint that a training resumes from, or removes the run.
func rewind(ctx context.Context, tr *training, overwrite bool) (err error) {
	if tr.manager, err = tr.OpenManager(tr.folder, false); err != nil {
		return err
	}
	defer tr.manager.Close()
	if overwrite {
		return tr.overwrite(ctx)
	}
	return tr.goBack(ctx)
}

// TestCrashOfGoingBack crashes the way back to an earlier checkpoint, and the removal of a run, at every
// file operation. Nothing is lost on the way back.
func TestCrashOfGoingBack(t *testing.T) {
	long(t)
	p, dir := tinyRun(t), t.TempDir()
	p.Summary.Enabled = false
	mustTrain(t, p, filepath.Join(dir, "run"))
	shared, err := prepare.New(t.Context(), p, quiet().prepare())
	if err != nil {
		t.Fatal(err)
	}
	for _, overwrite := range []bool{false, true} {
		run := func(dir string) error {
			ctx, s := context.Background(), *shared
			env := quiet()
			env.Out, env.Overwrite, env.ResumeFrom = io.Discard, overwrite, "4"
			tr, err := newTraining(ctx, &s, filepath.Join(dir, "run"), env)
			if err != nil {
				return err
			}
			defer tr.examples.Close()
			unlock, err := checkpoint.Lock(tr.folder)
			if err != nil {
				return err
			}
			defer unlock()
			return rewind(ctx, tr, overwrite)
		}
		crashtest.Survives(t, crashtest.Program{Run: run,
			Prepare: func(to string) error { return os.CopyFS(to, os.DirFS(dir)) },
			Same:    sameRunFile,
			Phase: func(operation string) string {
				if strings.Contains(operation, runfolder.SetAside) {
					return "set aside"
				}
				return "run folder"
			}})
	}
}

// TestKilledAfterGoingBack kills a training from an earlier checkpoint at every file operation. The same
// command continues it, and sets nothing aside a second time.
func TestKilledAfterGoingBack(t *testing.T) {
	p := testParams(t)
	p.Train.Steps, p.Train.Epochs, p.Train.StepsPerLoop, p.Train.EvalInterval = 6, 0, 2, params.NoEval
	p.Checkpoint.Interval, p.Checkpoint.MaxToKeep, p.Checkpoint.Best, p.Summary.Enabled = 2, 0, "", false
	shared := freeRun(t, p)
	run := func(dir, from string) error {
		env := quiet()
		env.ResumeFrom = from
		return trainFree(context.Background(), *shared, filepath.Join(dir, "run"), env)
	}
	whole := t.TempDir()
	if err := run(whole, ""); err != nil {
		t.Fatal(err)
	}
	// From now on the graph has the variables of the counter alone.
	c := *shared.Export.Contract
	c.Variables, c.Updates = []graphs.Variable{{Name: "model/sum", DType: "float32", Shape: []int64{4}}}, nil
	c.States = []graphs.State{{Name: frozenState, DType: "float32", Shape: []int64{2}}}
	shared.Export.Contract = &c
	dir := filepath.Join(testkit.MemoryDir(t), "work")
	asides := func() (names []string) {
		list, err := os.ReadDir(filepath.Join(dir, "run", runfolder.SetAside))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			names = append(names, f.Name())
		}
		return names
	}
	for at := 1; ; at++ {
		if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(whole))); err != nil {
			t.Fatal(err)
		}
		f := &vfstest.Failing{WorkFS: vfs.OS{}, At: at, Kill: true, Err: syscall.EIO}
		unmount := vfs.Mount(dir, f)
		_ = run(dir, "2")
		unmount()
		if f.Count() < at {
			break
		}
		if err := run(dir, "2"); err != nil {
			t.Fatalf("killed at operation %d: %v", at, err)
		}
		if got := asides(); !slices.Equal(got, []string{"step-6"}) {
			t.Errorf("killed at operation %d: set aside are %v", at, got)
		}
		if got := read(t, dir, "run", runfolder.Metrics); got != read(t, whole, "run", runfolder.Metrics) {
			t.Errorf("killed at operation %d: the metrics are\n%s", at, got)
		}
	}
	if prepare.Exists(filepath.Join(dir, "run", backFile)) {
		t.Error("the run has ended, and says that it went back")
	}
}
