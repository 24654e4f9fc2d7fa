package train

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs/gcstest"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestResumeFromInBucket goes back to a checkpoint of a run in a bucket, begins another with it there and
// here, and begins the run again.
func TestResumeFromInBucket(t *testing.T) {
	long(t)
	p, dir := tinyRun(t), t.TempDir()
	whole := filepath.Join(dir, "whole")
	mustTrain(t, p, whole)
	server := bucket(t)
	run := upload(t, server, whole, "run")
	out, err := trainFrom(t, p, run, from(run+"/checkpoints/ckpt-4"))
	if err != nil || !strings.Contains(out, "going back from step 12 to step 4; the run as it was is in "+run+"/set-aside/step-12\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	sameRuns(t, download(t, server.State(), "run"), whole)
	sameRuns(t, download(t, server.State(), "run/set-aside/step-12"), whole)
	for _, path := range []string{"run", "run/set-aside/step-12"} {
		local, err := runfolder.LocalRun(t.Context(), "gs://b/"+path, params.Latest)
		if err != nil || prepare.Exists(filepath.Join(local, runfolder.SetAside)) {
			t.Errorf("%s: %v; expected a copy without what was set aside", path, err)
		}
	}
	if _, err := trainFrom(t, p, run, from("5")); err == nil || !strings.Contains(err.Error(), "run "+run+" has no such checkpoint; expected one of 4, 8, 12") {
		t.Errorf("a step that is none: %v", err)
	}

	if origin := Origin("gs://b/two", run+"/checkpoints/ckpt-8"); origin != run {
		t.Errorf("the settings are those of %s, expected %s", origin, run)
	}
	for _, to := range []string{"gs://b/two", filepath.Join(dir, "two")} {
		out, err := trainFrom(t, p, to, from(run+"/checkpoints/ckpt-8"))
		if err != nil || !strings.Contains(out, "run "+to+" begins with gs://b/run/checkpoints/ckpt-8 of another run, at step 8") {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	sameRuns(t, download(t, server.State(), "two"), filepath.Join(dir, "two"))

	p.Init = run
	if _, err := trainFrom(t, p, run, overwriting); err == nil || !strings.Contains(err.Error(), "init is "+run+", which is in the run that would be removed") {
		t.Errorf("init of the run: %v", err)
	}
	p.Init, p.Seed, p.Train.Steps = "", 7, 6
	p.Train.EvalInterval, p.Checkpoint.Interval = 3, 3
	fresh := filepath.Join(dir, "fresh")
	mustTrain(t, p, fresh)
	if out, err := trainFrom(t, p, run, overwriting); err != nil || !strings.HasPrefix(out, "removing the run in "+run+", with 3 checkpoints\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	sameRuns(t, download(t, server.State(), "run"), fresh)
	for name := range server.State() {
		if strings.HasPrefix(name, "run/evaluations/") && !prepare.Exists(filepath.Join(fresh, strings.TrimPrefix(name, "run/"))) {
			t.Errorf("%s is left behind", name)
		}
	}
}

// TestCrashOfGoingBackInBucket ends the way back to an earlier checkpoint, and the removal of a run, after
// each of its changes to the bucket, and starts it again on another machine.
func TestCrashOfGoingBackInBucket(t *testing.T) {
	long(t)
	p, dir := tinyRun(t), t.TempDir()
	p.Summary.Enabled, p.Train.Steps = false, 8
	mustTrain(t, p, filepath.Join(dir, "run"))
	shared, err := prepare.New(t.Context(), p, quiet().prepare())
	if err != nil {
		t.Fatal(err)
	}
	server := gcstest.NewServer("b")
	defer server.Close()
	t.Setenv("STORAGE_EMULATOR_HOST", server.URL)
	if err := server.PutFolder(filepath.Join(dir, "run"), "run"); err != nil {
		t.Fatal(err)
	}
	begin := server.State()
	for _, overwrite := range []bool{false, true} {
		run := func() error {
			store := gcs.New(gcs.Config{Cache: t.TempDir(), Backoff: time.Millisecond, Lease: time.Hour})
			work, err := store.Work(t.Context(), "gs://b/run", quiet().Log)
			if err != nil {
				return err
			}
			defer work.Close()
			s := *shared
			env := quiet()
			env.Out, env.Overwrite, env.ResumeFrom, env.remote = io.Discard, overwrite, "4", "gs://b/run"
			tr, err := newTraining(context.Background(), &s, work.Dir(), env)
			if err != nil {
				return err
			}
			defer tr.examples.Close()
			return rewind(t.Context(), tr, overwrite)
		}
		server.Load(begin)
		done := len(server.History())
		if err := run(); err != nil {
			t.Fatal(err)
		}
		want, history := bucketFiles(server), server.History()[done:]
		has := func(file string) bool { return strings.Contains(fmt.Sprint(want), file) }
		if has("run/set-aside/step-8/params.yaml") == overwrite || has("run/checkpoints/ckpt-8") || has("run/params.yaml") == overwrite {
			t.Errorf("overwrite %v: the bucket has\n%.2000q", overwrite, want)
		}
		for i, h := range history {
			state := maps.Clone(h.State)
			delete(state, "run/.gorbit-lease")
			server.Load(state)
			sameBucket(t, fmt.Sprintf("overwrite %v: killed after change %d, %s", overwrite, i+1, h.What), server, want, run())
		}
		t.Logf("overwrite %v: %d changes", overwrite, len(history))
	}
}
