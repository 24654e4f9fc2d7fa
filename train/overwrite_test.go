package train

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
)

func overwriting(e *Env) { e.Overwrite = true }

// TestOverwrite begins a run where another one is, of which nothing is left but what is not the run's.
func TestOverwrite(t *testing.T) {
	long(t)
	p, dir := tinyRun(t), t.TempDir()
	run, fresh := filepath.Join(dir, "run"), filepath.Join(dir, "fresh")
	p.Summary.Histograms = true
	p.Runtime.Lanes = 2
	mustTrain(t, p, run)
	own := []string{"notes.txt", "train/mine.txt", "evaluations/mine.json", "checkpoints/mine.index", "eval/2024/events.txt", "data/rows.csv"}
	for _, name := range own {
		path := filepath.Join(run, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte("mine"), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	p.Seed, p.Train.Steps, p.Runtime.Lanes, p.Train.EvalInterval, p.Checkpoint.Interval = 7, 6, 1, 3, 3
	if _, err := trainFrom(t, p, run, func(*Env) {}); err == nil {
		t.Fatal("the run goes on with another seed")
	}
	out, err := trainFrom(t, p, run, overwriting)
	if err != nil || !strings.HasPrefix(out, "removing the run in "+run+", with 3 checkpoints\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := trainFrom(t, p, fresh, overwriting); err != nil { // where no run is
		t.Fatal(err)
	}
	sameRuns(t, run, fresh)
	for _, name := range []string{runfolder.Params, runfolder.History, "protected.json", "eval"} {
		if read := func(run string) string {
			content, _ := os.ReadFile(filepath.Join(run, name))
			return string(content)
		}; read(run) != read(fresh) {
			t.Errorf("%s is\n%s\nexpected\n%s", name, read(run), read(fresh))
		}
	}
	if n := strings.Count(read(t, run, runfolder.Journal), `"event":"start"`); n != 1 {
		t.Errorf("the journal has %d processes", n)
	}
	if events, err := filepath.Glob(filepath.Join(run, "events.out.tfevents.*")); err != nil || len(events) != 1 {
		t.Errorf("the params are in %v, %v; expected one file", events, err)
	}
	names := func(run, folder string) (out []string) {
		list, err := os.ReadDir(filepath.Join(run, folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if !strings.Contains(f.Name(), "tfevents") && !strings.HasPrefix(f.Name(), "mine") && f.Name() != "2024" {
				out = append(out, f.Name())
			}
		}
		return out
	}
	for _, folder := range []string{runfolder.Checkpoints, "evaluations", "train", "eval"} {
		if got, want := strings.Join(names(run, folder), " "), strings.Join(names(fresh, folder), " "); got != want {
			t.Errorf("%s has %s, expected %s", folder, got, want)
		}
	}
	for _, name := range own {
		if read(t, run, name) != "mine" {
			t.Errorf("%s was removed", name)
		}
	}
}

// TestOverwriteRefuses leaves folders as they are that are no run's, are in use, or hold what the new run
// needs.
func TestOverwriteRefuses(t *testing.T) {
	p, dir := tinyRun(t), t.TempDir()
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.Best, p.Summary.Enabled = 4, params.NoEval, "", false
	run := filepath.Join(dir, "run")
	mustTrain(t, p, run)
	for _, test := range []struct {
		name, want string
		change     func(*params.Params) (undo func())
	}{
		{"init of the run", "init is " + run + ", which is in the run that would be removed", func(p *params.Params) func() {
			p.Init = run
			return func() {}
		}},
		{"in use", "is in use by process", func(*params.Params) func() {
			unlock, err := checkpoint.Lock(run)
			if err != nil {
				t.Fatal(err)
			}
			return func() { unlock() }
		}},
		{"no run", "has checkpoints and no params.yaml", func(*params.Params) func() {
			content := read(t, run, runfolder.Params)
			if err := os.Remove(filepath.Join(run, runfolder.Params)); err != nil {
				t.Fatal(err)
			}
			return func() {
				writeFile(t, filepath.Join(run, runfolder.Params), content)
			}
		}},
	} {
		p := p
		undo := test.change(&p)
		_, err := trainFrom(t, p, run, overwriting)
		undo()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; expected %q", test.name, err, test.want)
		}
		if !prepare.Exists(filepath.Join(run, runfolder.Checkpoints, "ckpt-4.index")) {
			t.Fatalf("%s: the checkpoint is gone", test.name)
		}
	}
	p.Data.Dir = filepath.Join(run, "data")
	copyFolder(t, p.Data.Dir, tinyRun(t).Data.Dir)
	if _, err := trainFrom(t, p, run, overwriting); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "data.dir is") {
		t.Errorf("data in the run: %v", err)
	}
}
