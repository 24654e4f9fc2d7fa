package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster/clustertest"
	"github.com/gorbit-ml/gorbit/internal/exec/shardinput"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// childRun, set in the environment, makes the test binary train in that folder
// with the params in childParams, as a process of its own that can be killed.
const (
	childRun    = "GORBIT_TEST_RUN"
	childParams = "GORBIT_TEST_PARAMS"
)

func TestMain(m *testing.M) {
	if run := os.Getenv(childRun); run != "" {
		p, err := params.Read(os.Getenv(childParams))
		if after, err := strconv.Atoi(os.Getenv(childGenerates)); err == nil {
			go killGenerating(time.Duration(after) * time.Millisecond)
		}
		if err == nil {
			_, err = Train(context.Background(), p, run, quiet())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	clustertest.Serve(func(dir string) { shardinput.Serve(shardinput.Options{Dir: dir}) })
	code := m.Run()
	if shared.dir != "" {
		os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

func quiet() Env { return Env{Out: io.Discard, Log: slog.New(slog.DiscardHandler)} }

// shared is an export and data that the tests of this package read.
var shared struct {
	sync.Once
	dir string
}

const vocabSize, rowLength = records.VocabSize, 24

// bertConfig is of one layer: most tests would only take longer with more. See deepParams.
var bertConfig = configOf(1)

func configOf(layers int) string {
	return fmt.Sprintf(`{"hidden_size": 32, "num_hidden_layers": %d, "num_attention_heads": 4,
	"intermediate_size": 64, "vocab_size": %d, "max_position_embeddings": %d}`, layers, vocabSize, rowLength)
}

func fixture(t testing.TB) (graph, data string) {
	t.Helper()
	shared.Do(func() {
		dir, err := os.MkdirTemp("", "gorbit-job-")
		if err != nil {
			t.Fatal(err)
		}
		shared.dir = dir
		records.Write(t, filepath.Join(dir, "data", "train-00000-of-00002.tfrecord"), 1, 90)
		records.Write(t, filepath.Join(dir, "data", "train-00001-of-00002.tfrecord"), 2, 83)
		records.Write(t, filepath.Join(dir, "data", "dev-00000-of-00001.tfrecord"), 3, 50)
	})
	if shared.dir == "" {
		t.Fatal("no fixture")
	}
	return testkit.Export(t, bertConfig, "--pooling", "mean"), filepath.Join(shared.dir, "data")
}

// testParams is a run of 33 steps of which every third is evaluated and saved.
func testParams(t testing.TB) params.Params {
	t.Helper()
	p := params.Defaults()
	p.Graph, p.Data.Dir = fixture(t)
	p.Data.RowLength = rowLength
	p.Train.BatchSize, p.Train.StepsPerLoop, p.Train.EvalInterval = 16, 2, 6
	p.Checkpoint.Interval, p.Checkpoint.MaxToKeep = 3, 2
	p.Train.Epochs = 3
	p.Optimizer.LearningRate = 5e-3
	return p
}

// deepParams is testParams with a model of two layers.
func deepParams(t testing.TB) params.Params {
	t.Helper()
	p := testParams(t)
	p.Graph = testkit.Export(t, configOf(2), "--pooling", "mean")
	return p
}

// opened returns the export of the params and the records to train on.
func opened(t testing.TB, p params.Params) (*graphs.Export, *dataset.Dataset) {
	t.Helper()
	export, err := prepare.OpenExport(t.Context(), p.Graph, quiet().prepare())
	if err != nil {
		t.Fatal(err)
	}
	records, err := prepare.OpenData(p.Data.Dir)
	if err != nil {
		t.Fatal(err)
	}
	set, err := records.Open(context.Background(), p, export.Contract, p.Data.Train, prepare.ToTrain, quiet().Log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return export, set
}

// newest returns what a run's newest checkpoint holds.
func newest(t testing.TB, run string) *checkpoint.Restored {
	t.Helper()
	m, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: filepath.Join(run, runfolder.Checkpoints), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Restore(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// final returns every variable and slot of a run's newest checkpoint, and its
// step.
func final(t testing.TB, run string) (map[string][]byte, int64) {
	t.Helper()
	r := newest(t, run)
	out := make(map[string][]byte)
	for name, value := range r.Tensors {
		if name == checkpoint.StateVariable || name == checkpoint.CounterVariable {
			continue // the state names the folder; the counter counts saves
		}
		var b bytes.Buffer
		if _, err := value.WriteContentsTo(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = b.Bytes()
	}
	return out, r.Step
}

// loaded opens a run with its latest checkpoint until the end of the test.
func loaded(t testing.TB, run string, env Env, settings ...string) *Run {
	t.Helper()
	r, err := OpenRun(t.Context(), run, settings, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if _, err := r.Load(t.Context(), params.Latest); err != nil {
		t.Fatal(err)
	}
	return r
}

func sameRuns(t *testing.T, got, want string) {
	t.Helper()
	g, gotStep := final(t, got)
	w, wantStep := final(t, want)
	if gotStep != wantStep {
		t.Fatalf("ended at step %d, want %d", gotStep, wantStep)
	}
	if len(g) != len(w) {
		t.Errorf("%d variables, want %d", len(g), len(w))
	}
	for name := range w {
		if !bytes.Equal(g[name], w[name]) {
			t.Errorf("%s differs", name)
		}
	}
	a, err := os.ReadFile(filepath.Join(got, runfolder.Metrics))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(want, runfolder.Metrics))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("the metrics differ:\n%s\nwant\n%s", a, b)
	}
}

func TestTrainLearns(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.Epochs = 12
	run := filepath.Join(t.TempDir(), "run")
	out, err := Train(context.Background(), p, run, quiet())
	if err != nil {
		t.Fatal(err)
	}
	if out["accuracy"] < 0.9 {
		t.Errorf("accuracy %v after 12 epochs of a task that can be learned", out["accuracy"])
	}
	r := loaded(t, run, quiet())
	again, err := r.Evaluate(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	for name := range out {
		if again[name] != out[name] {
			t.Errorf("evaluating the saved run gives %s %v, training said %v", name, again[name], out[name])
		}
	}
	n := 0
	if err := r.PredictSplit(context.Background(), "dev", func(a predict.Answer) error {
		n++
		p := a.(predict.Label)
		if p.Index < 0 || p.Index > 1 || math.Abs(p.Probabilities[0]+p.Probabilities[1]-1) > 1e-5 {
			return fmt.Errorf("prediction %d: %+v", n, p)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n != 50 {
		t.Errorf("%d predictions on 50 records", n)
	}
}

// TestKilledRunEndsAsAnother kills the process at random moments, also while it
// saves, and starts it again until it ends.
func TestKilledRunEndsAsAnother(t *testing.T) {
	t.Parallel()
	long(t)
	p := testParams(t)
	killer := newKiller(t, p)
	for _, test := range []struct {
		name string
		// when says whether a folder's checkpoint files show the moment to kill.
		when func(files []string, kills int) bool
	}{
		{"between saves", betweenSaves},
		{"while saving", func(files []string, kills int) bool {
			return len(files) > kills && slices.ContainsFunc(files, func(f string) bool {
				base := filepath.Base(f)
				return !strings.HasPrefix(base, "ckpt-") && base != "checkpoint" && base != "protected.json"
			})
		}},
		{"before the first save", func(files []string, kills int) bool { return kills == 0 }},
	} {
		t.Run(test.name, func(t *testing.T) { killer.endsAsAnother(t, test.when) })
	}
}

// betweenSaves is the moment of another checkpoint, of every sixth step.
func betweenSaves(files []string, kills int) bool {
	return slices.ContainsFunc(files, func(f string) bool {
		return strings.HasSuffix(f, fmt.Sprintf("ckpt-%d.index", 6*(kills+1)))
	})
}

// paramsFile writes params for another process.
func paramsFile(t *testing.T, p params.Params) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "params.yaml")
	content, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, content)
	return path
}

// killer kills runs of some params.
type killer struct{ params, whole string }

// newKiller trains a run that is not killed.
func newKiller(t *testing.T, p params.Params) killer {
	t.Helper()
	k := killer{params: paramsFile(t, p), whole: filepath.Join(t.TempDir(), "whole")}
	if cmd := k.child(t, k.whole); cmd.Run() != nil {
		t.Fatalf("the run failed: %s", cmd.Stderr)
	}
	return k
}

// child returns a process that trains.
func (k killer) child(t *testing.T, run string) *exec.Cmd {
	cmd := testkit.Command(t, os.Args[0])
	cmd.Env = append(os.Environ(), childRun+"="+run, childParams+"="+k.params)
	cmd.Stderr = new(bytes.Buffer)
	return cmd
}

// endsAsAnother kills a run up to three times, when its checkpoint files show the moment, and compares
// its end with that of the run that was not killed.
func (k killer) endsAsAnother(t *testing.T, when func(files []string, kills int) bool) {
	t.Helper()
	run := filepath.Join(t.TempDir(), "run")
	kills := 0
	for attempt := 0; ; attempt++ {
		if attempt > 20 {
			t.Fatal("the run does not end")
		}
		cmd := k.child(t, run)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		killed := false
		for !killed {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatalf("the run failed: %v: %s", err, cmd.Stderr)
				}
				if kills == 0 {
					t.Fatal("the run was never killed: the test shows nothing")
				}
				sameRuns(t, run, k.whole)
				return
			case <-time.After(500 * time.Microsecond):
				files, _ := filepath.Glob(filepath.Join(run, runfolder.Checkpoints, "*"))
				if _, err := os.Stat(filepath.Join(run, runfolder.Metrics)); err == nil && kills < 3 && when(files, kills) {
					if err := cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
					<-ended
					kills++
					killed = true
				}
			}
		}
	}
}

// TestStoppedRunEndsAsAnother cancels the context after some steps: the run saves
// within a step and says that it was stopped.
func TestStoppedRunEndsAsAnother(t *testing.T) {
	stoppedEndsAsAnother(t, testParams(t), 1, 8, 24)
}

type stopper struct {
	at   int64
	stop func()
	eval bool
}

func (s *stopper) Begin(phase string, _, _ int64) { s.eval = phase == runner.PhaseEval }
func (s *stopper) End()                           { s.eval = false }
func (s *stopper) Step(i runner.StepInfo) {
	if !s.eval && i.Step == s.at {
		s.stop()
	}
}

// TestPackingIsExact holds packed rows against one row per example: the same
// losses, gradients and updates to rounding, with dropout off.
func TestPackingIsExact(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Optimizer.Hyperparameters = map[string]float64{"hidden_dropout": 0, "attention_dropout": 0, "classifier_dropout": 0}
	p.Train.Steps = 6
	metrics := make(map[packed.Packing][]map[string]float64)
	for _, packing := range []packed.Packing{packed.PackNone, packed.PackBestFit, packed.PackFirstFit} {
		p.Data.Packing = string(packing)
		p.Train.StepsPerLoop = 1
		run := filepath.Join(t.TempDir(), "run")
		mustTrain(t, p, run)
		content, err := os.ReadFile(filepath.Join(run, runfolder.Metrics))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(content)), "\n") {
			var l struct{ Outputs map[string]float64 }
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
			metrics[packing] = append(metrics[packing], l.Outputs)
		}
	}
	want := metrics[packed.PackNone]
	if len(want) != 7 { // 6 loops and an evaluation
		t.Fatalf("%d lines", len(want))
	}
	for packing, got := range metrics {
		for i := range want {
			for _, name := range []string{"loss", "gradient_norm"} {
				if w, ok := want[i][name]; ok && math.Abs(got[i][name]-w) > 2e-5*math.Abs(w) {
					t.Errorf("%s: line %d: %s %v, with one row per example %v", packing, i, name, got[i][name], w)
				}
			}
		}
	}
}

func TestErrors(t *testing.T) {
	base := testParams(t)
	base.Train.Steps = 2
	damaged := func(change func([]byte) []byte) string {
		dir := t.TempDir()
		for _, name := range []string{"train-00000-of-00001.tfrecord", "dev-00000-of-00001.tfrecord"} {
			content, err := os.ReadFile(filepath.Join(base.Data.Dir, "dev-00000-of-00001.tfrecord"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "train") {
				content = change(slices.Clone(content))
			}
			writeFile(t, filepath.Join(dir, name), content)
		}
		return dir
	}
	for _, test := range []struct {
		name   string
		change func(p *params.Params)
		want   string // in the error
	}{
		{"no graph", func(p *params.Params) { p.Graph = "/nowhere" }, "graph /nowhere: no such folder"},
		{"not a SavedModel", func(p *params.Params) { p.Graph = p.Data.Dir }, "not a SavedModel: it has no saved_model.pb"},
		{"no data", func(p *params.Params) { p.Data.Dir = "/nowhere" }, "data /nowhere: no such folder"},
		{"no split", func(p *params.Params) { p.Data.Train = "test" }, `has no split "test"; expected one of dev, train; choose one with --set data.train=NAME`},
		{"no init", func(p *params.Params) { p.Init = "/nowhere.safetensors" }, "/nowhere.safetensors"},
		{"unknown hyperparameter", func(p *params.Params) { p.Optimizer.Hyperparameters = map[string]float64{"momentum": 1} }, "the graph has no such hyperparameter"},
		{"hyperparameter out of range", func(p *params.Params) { p.Optimizer.Hyperparameters = map[string]float64{"hidden_dropout": 2} }, "optimizer.hyperparameters.hidden_dropout is 2"},
		{"long examples", func(p *params.Params) { p.Data.RowLength = 8 }, "more than the row length of 8"},
		{"examples beyond the positions", func(p *params.Params) {
			p.Data.Dir = t.TempDir()
			for _, split := range []string{"train", "dev"} {
				writeExamples(t, filepath.Join(p.Data.Dir, split+"-00000-of-00001.tfrecord"), 1, func(int) []tfrecord.Feature {
					return []tfrecord.Feature{tfrecord.Int64Feature("input_ids", make([]int64, rowLength+1)...),
						tfrecord.Int64Feature("segment_ids", make([]int64, rowLength+1)...), tfrecord.Int64Feature("label_ids", 1)}
				})
			}
		}, "has 25 tokens, more than the row length of 24"},
		{"truncated record", func(p *params.Params) { p.Data.Dir = damaged(func(b []byte) []byte { return b[:len(b)-3] }) }, "train-00000-of-00001.tfrecord"},
		{"flipped bit", func(p *params.Params) { p.Data.Dir = damaged(func(b []byte) []byte { b[200] ^= 4; return b }) }, "train-00000-of-00001.tfrecord"},
		{"empty file", func(p *params.Params) { p.Data.Dir = damaged(func([]byte) []byte { return nil }) }, "train-00000-of-00001.tfrecord"},
		{"no best metric", func(p *params.Params) { p.Checkpoint.Best = "bleu" }, "bleu"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := base
			test.change(&p)
			_, err := Train(context.Background(), p, filepath.Join(t.TempDir(), "run"), quiet())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want an error with %q", err, test.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	p := testParams(t)
	run := t.TempDir()
	unlock, err := checkpoint.Lock(run)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	cmd := killer{params: paramsFile(t, p)}.child(t, run)
	if err := cmd.Run(); err == nil || !strings.Contains(fmt.Sprint(cmd.Stderr), fmt.Sprint(os.Getpid())) {
		t.Errorf("a second process got %v: %s", err, cmd.Stderr)
	}
}

func TestCheckpointOfAnotherModel(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.Steps = 3
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	other := testkit.Export(t, bertConfig, "--pooling", "first")
	p.Graph, p.Train.Steps = other, 6
	_, err := Train(context.Background(), p, run, quiet())
	var mismatch *checkpoint.MismatchError
	if !errors.As(err, &mismatch) || !strings.Contains(err.Error(), "pooler") {
		t.Errorf("got %v", err)
	}

	// The graph that pools by the mean has all its variables in a checkpoint of
	// the other, and is another model all the same.
	run = filepath.Join(t.TempDir(), "other")
	mustTrain(t, p, run)
	p.Graph, _ = fixture(t)
	p.Train.Steps = 9
	const want = "pooling was first and is mean"
	if _, err := Train(context.Background(), p, run, quiet()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("training on: got %v, want an error with %q", err, want)
	}
	r, err := OpenRun(context.Background(), run, []string{"graph=" + p.Graph}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Load(context.Background(), "latest"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("loading: got %v, want an error with %q", err, want)
	}
}

// A command that is refused must not change what the run was started with: the
// run is still to be continued, evaluated and exported with that.
func TestRefusedCommandLeavesFolder(t *testing.T) {
	p := testParams(t)
	p.Train.Steps = 3
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	read := func() map[string]string {
		out := make(map[string]string)
		for _, name := range []string{runfolder.Params, runfolder.Metrics} {
			content, err := os.ReadFile(filepath.Join(run, name))
			if err != nil {
				t.Fatal(err)
			}
			out[name] = string(content)
		}
		return out
	}
	before := read()
	for name, change := range map[string]func(*params.Params){
		"batch size": func(p *params.Params) { p.Train.BatchSize = 8 },
		"seed":       func(p *params.Params) { p.Seed = 7 },
		"shuffle":    func(p *params.Params) { p.Data.Shuffle = "none" },
	} {
		q := p
		q.Train.Steps = 6
		change(&q)
		_, err := Train(context.Background(), q, run, quiet())
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
		if after := read(); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: the folder was %q and is %q", name, before, after)
		}
	}
}

func TestNonFiniteLoss(t *testing.T) {
	p := testParams(t)
	p.Train.Steps = 6
	p.Optimizer.LearningRate = 1e30 // the second step has no finite loss
	p.Optimizer.WarmupRatio = 0
	_, err := Train(context.Background(), p, filepath.Join(t.TempDir(), "run"), quiet())
	var nonFinite *runner.NonFiniteError
	if !errors.As(err, &nonFinite) || !strings.Contains(err.Error(), "train-0000") {
		t.Fatalf("got %v, want an error that names step and records", err)
	}
	p.Train.OnNonFinite, p.Train.MaxNonFinite = "skip", 3
	if _, err = Train(context.Background(), p, filepath.Join(t.TempDir(), "run"), quiet()); err == nil || !strings.Contains(err.Error(), "3 updates were already skipped, the maximum") {
		t.Errorf("got %v, want to give up after 3 skipped updates", err)
	}
}

func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small disk needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1450k"); err != nil {
		t.Skipf("no small disk can be mounted: %v", err)
	}
	defer syscall.Unmount(dir, 0)
	p := deepParams(t)
	p.Summary.Enabled = false
	_, err := Train(context.Background(), p, filepath.Join(dir, "run"), quiet())
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want no space left on device", err)
	}
	var failed *checkpoint.SaveError
	if !errors.As(err, &failed) {
		t.Fatalf("%v does not say which save failed", err)
	}
	if _, step := final(t, filepath.Join(dir, "run")); step != failed.Step-p.Checkpoint.Interval.Steps() {
		t.Errorf("the save of step %d failed, and the newest checkpoint is of step %d", failed.Step, step)
	}
}
