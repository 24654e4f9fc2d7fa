package study

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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gorbit-ml/gorbit/internal/app/tune"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// node makes a choice.
func node(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

func searched(t *testing.T) tune.Config {
	t.Helper()
	c := tune.Defaults()
	low, high := 1e-5, 1e-2
	rate, err := Range{Name: "optimizer.learning_rate", Low: &low, High: &high, Log: true}.Param(1.0)
	if err != nil {
		t.Fatal(err)
	}
	schedule, err := Range{Name: "optimizer.schedule", Choices: []*yaml.Node{node("linear"), node("constant")}, selected: true}.Param("")
	if err != nil {
		t.Fatal(err)
	}
	c.Space, c.Objective, c.Direction, c.Trials = []tune.Param{rate, schedule}, "accuracy", tune.Maximize, 6
	c.Sampler.Name = tune.Random
	return c
}

// trainer stands for the processes of trials. A process makes all of its evaluations at once, waits to
// be seen, and ends.
type trainer struct {
	t *testing.T
	// fails is what a trial with this number says on ending; holds is one that ends only when asked to.
	fails map[int]string
	holds map[int]bool
	// machine is the exit code of a trial that the machine stops.
	machine map[int]int
	// held, if not nil, is closed when a trial of holds starts. The others end only then.
	held chan struct{}
	once sync.Once

	mu      sync.Mutex
	started []int
	stopped []int
}

type fake struct {
	trainer *trainer
	job     Job
	done    chan struct{}
	code    int
	once    sync.Once
}

func (f *fake) Done() <-chan struct{} { return f.done }
func (f *fake) Code() int             { return f.code }
func (f *fake) How() string           { return fmt.Sprintf("exit code %d", f.code) }

func (f *fake) Terminate(time.Duration) bool {
	f.trainer.mu.Lock()
	f.trainer.stopped = append(f.trainer.stopped, f.job.Number)
	f.trainer.mu.Unlock()
	f.end(fault.ExitStopped)
	return false
}

func (f *fake) end(code int) {
	f.once.Do(func() {
		f.code = code
		close(f.done)
	})
}

func (tr *trainer) start(j Job) (Process, error) {
	tr.mu.Lock()
	tr.started = append(tr.started, j.Number)
	tr.mu.Unlock()
	if err := os.MkdirAll(j.Folder, 0o755); err != nil {
		return nil, err
	}
	var rate float64
	if _, err := fmt.Sscanf(j.Settings[0], "optimizer.learning_rate=%g", &rate); err != nil {
		tr.t.Errorf("settings are %v: %v", j.Settings, err)
	}
	metrics := ""
	for i := 1; i <= 3; i++ {
		metrics += fmt.Sprintf(`{"phase":"eval","step":%d,"outputs":{"accuracy":%v}}`+"\n", 10*i, float64(i)/3-math.Abs(math.Log10(rate)+3)/10)
	}
	for name, content := range map[string]string{runfolder.Metrics: metrics, runfolder.Params: "seed: 1\n"} {
		if err := os.WriteFile(filepath.Join(j.Folder, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	f := &fake{trainer: tr, job: j, done: make(chan struct{})}
	switch sentence := tr.fails[j.Number]; {
	case tr.machine[j.Number] != 0:
		fmt.Fprintf(j.Log, "gorbit: write %d: no space left\n", j.Number)
		f.end(tr.machine[j.Number])
	case sentence != "":
		fmt.Fprintf(j.Log, "level=INFO msg=training\ngorbit: %s\n", sentence)
		f.end(fault.ExitFailed)
	case tr.holds[j.Number]:
		if tr.held != nil {
			tr.once.Do(func() { close(tr.held) })
		}
	case tr.held != nil:
		go func() {
			<-tr.held
			f.end(fault.ExitDone)
		}()
	default:
		f.end(fault.ExitDone)
	}
	return f, nil
}

// drive runs a study in a folder until it ends.
func drive(ctx context.Context, t *testing.T, folder string, c tune.Config, tr *trainer, out io.Writer, slots int) (*Journal, error) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	j, err := OpenJournal(ctx, folder, log)
	if err != nil {
		return nil, err
	}
	if err := j.Update(ctx, func(s *tune.Study) ([]tune.Op, error) { return s.Begin(c) }); err != nil {
		return j, err
	}
	d := &Driver{Folder: folder, Journal: j, Slots: make([][]int, slots), Start: tr.start, Value: Setting, Poll: time.Millisecond, Grace: time.Minute,
		Out: out, Log: log, Now: func() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }}
	return j, d.Run(ctx)
}

func TestDriver(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "study")
	tr := &trainer{t: t, fails: map[int]string{2: "step 11: the loss is NaN"}}
	var out bytes.Buffer
	c := searched(t)
	j, err := drive(t.Context(), t, folder, c, tr, &out, 1)
	if err != nil {
		t.Fatal(err)
	}
	r, err := j.ReadResults(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Trials) != 6 || r.Trials[5].Number != 2 || r.Trials[5].Error != "step 11: the loss is NaN" || r.Trials[0].Value < r.Trials[4].Value {
		t.Errorf("the trials are %+v", r.Trials)
	}
	for _, want := range []string{"trial 2 failed: step 11: the loss is NaN\n", "trial 5 complete: accuracy 0."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("printed\n%s\nexpected %s", &out, want)
		}
	}
	out.Reset()
	if err := r.Print(&out); err != nil || !strings.Contains(out.String(), "trial  accuracy  state     optimizer.learning_rate  optimizer.schedule  steps  time\n") {
		t.Errorf("%v: the table is\n%s", err, &out)
	}
	if path, err := r.WriteBest(); err != nil || path != filepath.Join(folder, BestFile) {
		t.Errorf("%v: best is in %s", err, path)
	}
	before, err := os.ReadFile(filepath.Join(folder, JournalFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := drive(t.Context(), t, folder, c, tr, io.Discard, 1); err != nil || len(tr.started) != 6 {
		t.Errorf("%v: the same command started %v", err, tr.started)
	}
	if after, _ := os.ReadFile(filepath.Join(folder, JournalFile)); !bytes.Equal(before, after) {
		t.Error("the same command changed the journal of a study that was done")
	}
	t.Run("killed", func(t *testing.T) { killed(t, c, before) })
}

// killed cuts the journal after some byte, as a process leaves it that is killed, and continues.
// The folder then has what the trials that ran had evaluated.
func killed(t *testing.T, c tune.Config, whole []byte) {
	for cut := 0; cut < len(whole); cut += 613 {
		folder := filepath.Join(t.TempDir(), "study")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, JournalFile)
		if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		tr := &trainer{t: t, fails: map[int]string{2: "step 11: the loss is NaN"}}
		if _, err := drive(t.Context(), t, folder, c, tr, io.Discard, 1); err != nil {
			t.Fatalf("cut at byte %d: %v", cut, err)
		}
		if got, _ := os.ReadFile(path); !bytes.Equal(got, whole) && !bytes.Equal(bytes.Join(distinct(got), nil), bytes.Join(distinct(whole), nil)) {
			t.Fatalf("cut at byte %d, the journal is\n%s\nexpected\n%s", cut, got, whole)
		}
	}
}

// distinct leaves out lines that repeat the line before them.
func distinct(text []byte) (out [][]byte) {
	for line := range bytes.Lines(text) {
		if n := len(out); n == 0 || !bytes.Equal(out[n-1], line) {
			out = append(out, line)
		}
	}
	return out
}

// TestStoppedDriver stops a study whose trials train side by side, and continues with it.
func TestStoppedDriver(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "study")
	tr := &trainer{t: t, holds: map[int]bool{1: true, 2: true}, held: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(t.Context())
	var out watched
	out.want, out.seen = "trial 0 complete", func() { cancel(&fault.Error{Class: fault.Stopped, Err: errors.New("interrupt")}) }
	c := searched(t)
	if _, err := drive(ctx, t, folder, c, tr, &out, 2); fault.Of(err) != fault.Stopped {
		t.Fatalf("got %v, expected that the study is stopped", err)
	}
	if len(tr.stopped) == 0 {
		t.Error("no trial was asked to stop")
	}
	tr.holds = nil
	j, err := drive(t.Context(), t, folder, c, tr, io.Discard, 2)
	if err != nil {
		t.Fatal(err)
	}
	j.View(func(s *tune.Study) {
		for _, trial := range s.Trials() {
			if trial.State != tune.Complete || len(trial.Reports) != 3 {
				t.Errorf("trial %d is %v with %v", trial.Number, trial.State, trial.Reports)
			}
		}
		if !s.Done() {
			t.Error("the study is not done")
		}
	})
}

// watched calls a function when a text was written.
type watched struct {
	bytes.Buffer
	want string
	seen func()
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.want) {
		w.seen()
	}
	return n, err
}

// TestPrunedTrials stops trials that are behind. What the process has evaluated beyond does not count.
func TestPrunedTrials(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "study")
	c := searched(t)
	c.Pruner.Name, c.Pruner.Startup = tune.Median, 1
	tr := &trainer{t: t, holds: map[int]bool{}}
	j, err := drive(t.Context(), t, folder, c, tr, io.Discard, 1)
	if err != nil {
		t.Fatal(err)
	}
	pruned := 0
	j.View(func(s *tune.Study) {
		for _, trial := range s.Trials() {
			if trial.State == tune.Pruned {
				pruned++
				if last := trial.Reports[len(trial.Reports)-1]; trial.Value != last.Value {
					t.Errorf("trial %d has value %v; expected that of %v", trial.Number, trial.Value, last)
				}
			}
		}
	})
	if pruned == 0 {
		t.Error("no trial was pruned")
	}
}

// TestAllTrialsFail ends a study whose trials fail. What they failed of may be mended: the same command
// tries the next trial, and continues if that is complete.
func TestAllTrialsFail(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "study")
	tr := &trainer{t: t, fails: map[int]string{0: "no space", 1: "no space", 2: "no space left", 3: "still none"}}
	for _, want := range []string{"the last one with: no space left; see ", "the last one with: still none; see "} {
		_, err := drive(t.Context(), t, folder, searched(t), tr, io.Discard, 1)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "the same command tries the next trial") || fault.Of(err) != fault.Failed {
			t.Errorf("got %v, expected %s", err, want)
		}
	}
	if _, err := drive(t.Context(), t, folder, searched(t), tr, io.Discard, 1); err != nil || len(tr.started) != 6 {
		t.Errorf("%v: started %v", err, tr.started)
	}
}

// TestMachineStopsTrials continues with trials that an I/O error or a signal ended, and not with one
// that failed for its params.
func TestMachineStopsTrials(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "study")
	tr := &trainer{t: t, fails: map[int]string{2: "step 11: the loss is NaN"}, machine: map[int]int{1: fault.ExitMachine, 3: -1}}
	_, err := drive(t.Context(), t, folder, searched(t), tr, io.Discard, 1)
	if want := "the machine stopped trials before their end (1, 3), the last one with: write 3: no space left; see "; err == nil || !strings.HasPrefix(err.Error(), want) || fault.Of(err) != fault.Failed {
		t.Errorf("got %v, expected %s", err, want)
	}
	tr.machine, tr.started = nil, nil
	j, err := drive(t.Context(), t, folder, searched(t), tr, io.Discard, 1)
	if err != nil || !slices.Equal(tr.started, []int{1, 3}) {
		t.Errorf("%v: started %v; expected 1 and 3", err, tr.started)
	}
	j.View(func(s *tune.Study) {
		if got := s.Trials(); got[1].State != tune.Complete || got[2].State != tune.Failed || got[3].State != tune.Complete || !s.Done() {
			t.Errorf("the trials are %+v", got)
		}
	})
	full := map[int]int{}
	for i := range 6 {
		full[i] = fault.ExitMachine
	}
	tr = &trainer{t: t, machine: full}
	if _, err := drive(t.Context(), t, filepath.Join(t.TempDir(), "full"), searched(t), tr, io.Discard, 1); err == nil || !slices.Equal(tr.started, []int{0, 1, 2}) {
		t.Errorf("%v: started %v on a full disk; expected three", err, tr.started)
	}
}

// TestJournalIsGone has runs of a study whose journal was removed. A new study does not take them for
// runs of its own trials, which have other params.
func TestJournalIsGone(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "study")
	if _, err := drive(t.Context(), t, folder, searched(t), &trainer{t: t}, io.Discard, 1); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(folder, JournalFile)); err != nil {
		t.Fatal(err)
	}
	tr := &trainer{t: t}
	_, err := drive(t.Context(), t, folder, searched(t), tr, io.Discard, 1)
	if fault.Of(err) != fault.Usage || !strings.Contains(err.Error(), "trials/0000 is there, and ") || len(tr.started) != 0 {
		t.Errorf("got %v and started %v, expected to be refused", err, tr.started)
	}
}

// TestJournalOfOthers has lines that optuna wrote, a lock that it left, and damage.
func TestJournalOfOthers(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, JournalFile)
	c := searched(t)
	if _, err := drive(t.Context(), t, folder, c, &trainer{t: t}, io.Discard, 1); err != nil {
		t.Fatal(err)
	}
	appendTo := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = f.WriteString(text)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	appendTo(`{"op_code":4,"worker_id":"w","study_id":0,"datetime_start":"2026-01-02T03:04:05.000000+00:00"}` + "\n" +
		`{"op_code":5,"worker_id":"w","trial_id":6,"param_name":"optimizer.learning_rate","param_value_internal":0.001,"distribution":"{\"name\": \"FloatDistribution\", \"attributes\": {\"step\": null, \"low\": 1e-05, \"high\": 0.01, \"log\": true}}"}` + "\n" +
		`{"op_code":7,"worker_id":"w","trial_id":6,"step":1,"intermediate_value":NaN}` + "\n" +
		`{"op_code":6,"worker_id":"w","trial_id":6,"state":1,"values":[0.99],"datetime_complete":"2026-01-02T03:04:05.000000+00:00"}` + "\n")
	more := c
	more.Trials = 7
	j, err := drive(t.Context(), t, folder, more, &trainer{t: t}, io.Discard, 1)
	if err != nil {
		t.Fatal(err)
	}
	j.View(func(s *tune.Study) {
		all := s.Trials()
		if len(all) != 8 || s.Best().Number != 6 || all[7].Run != "trials/0007" || all[6].Params["optimizer.learning_rate"] != 0.001 {
			t.Errorf("the trials are %+v", all)
		}
	})
	if r, err := j.ReadResults(folder); err != nil || r.Best().Number == 6 || r.Trials[0].Number != 6 {
		t.Errorf("%v: the best trial with a run is %+v", err, r.Best())
	}
	appendTo("{\n")
	if _, err := OpenJournal(t.Context(), folder, slog.New(slog.DiscardHandler)); fault.Of(err) != fault.Damaged || !strings.Contains(err.Error(), "journal.log: line ") {
		t.Errorf("got %v, expected damage", err)
	}
	if err := os.Symlink(JournalFile, path+".lock"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := OpenJournal(ctx, folder, slog.New(slog.DiscardHandler)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, expected to wait for the lock", err)
	}
}

func TestParseFile(t *testing.T) {
	f, err := parseFile([]byte(`
params: {graph: exports/mrpc, train: {epochs: 2}}
search:
  train.batch_size: {low: 16, high: 64, step: 16}
  optimizer.learning_rate: {low: 1e-5, high: 5e-4, log: true}
  optimizer.schedule: {choices: [linear, cosine]}
trials: 12
sampler: {name: tpe, seed: 3}
pruner: median
`))
	if err != nil || f.Trials != 12 || f.Sampler != (tune.SamplerConfig{Name: tune.TPE, Seed: 3, Startup: 10, Candidates: 24}) || f.Pruner.Name != tune.Median || len(f.Search) != 3 || f.Search[0].Name != "train.batch_size" {
		t.Fatalf("%v: %+v", err, f)
	}
	p, err := f.Search[0].Param(int64(32))
	if text, _ := json.Marshal(p); err != nil || string(text) != `{"name":"train.batch_size","distribution":{"attributes":{"high":64,"log":false,"low":16,"step":16},"name":"IntDistribution"}}` {
		t.Errorf("%v: %s", err, text)
	}
	for text, want := range map[string]string{
		"serach: {}":            "line 1: serach not found",
		"search: [a]":           "search is not a section",
		"search: {a: 3}":        "search.a: expected {low: ",
		"search: {a: {low: 1}}": "search.a: lacks low or high",
		"search: {a: {low: 1, high: 2, logg: 1}}": "has logg; expected low, high, step, log and points, or choices",
		"search: {a: {low: x, high: 2}}":          "low is x: expected a number",
		"search: {a: {low: 1, choices: [1]}}":     "has both choices and bounds",
		"search: {a: {choices: 3}}":               "expected a list",
		"sampler: {name: tpe, gamma: 3}":          "sampler: line 1: gamma not found",
		"trials: many":                            "cannot unmarshal",
		"trials: 3\n---\ntrials: 4":               "has a second document",
	} {
		if _, err := parseFile([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, expected %s", text, err, want)
		}
	}
}

func TestParams(t *testing.T) {
	for _, tt := range []struct {
		flag  string
		value any
		want  string // settings of the ends, or the error
	}{
		{"a=1e-5:1e-3:log", 0.5, "1e-05 0.001"},
		{"a=0:0.3:0.1", 0.5, "0 0.3"},
		{"a=8:64:8", int64(1), "8 64"},
		{"a=8:64", 1, "8 64"},
		{"a=16,32", int64(1), "16 32"},
		{"a=true,false", true, "true false"},
		{"a=linear,true", "", `"linear" "true"`},
		{"a=0.5,1", 0.5, "0.5 1"},
		{"a=1:2", true, "is not a number; expected choices"},
		{"a=1.5:2", int64(1), "expected whole numbers"},
		{"a=yes,no", true, "choice yes: expected true or false"},
		{"a=1.5,2", int64(1), "choice 1.5: expected a whole number"},
		{"a=1:2:3:4", 0.5, "--search is"},
		{"a=", 0.5, "--search is"},
		{"a=1:x", 0.5, "--search is"},
		{"a=0:1:log", 0.5, "low is 0; expected more than 0"},
	} {
		r, err := ParseRange(tt.flag)
		var p tune.Param
		if err == nil {
			p, err = r.Param(tt.value)
		}
		if err != nil {
			if !strings.Contains(err.Error(), tt.want) || fault.Of(err) != fault.Usage {
				t.Errorf("%s of %T: %v, expected %s", tt.flag, tt.value, err, tt.want)
			}
			continue
		}
		d := p.Distribution
		got := Setting(d, d.Low) + " " + Setting(d, d.High)
		if d.Kind == tune.Categorical {
			got = Setting(d, 0) + " " + Setting(d, 1)
		}
		if got != tt.want {
			t.Errorf("%s of %T gives %s, expected %s", tt.flag, tt.value, got, tt.want)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte("search:\n  a: {low: 1, high: 2, step: .5}\n  b: {choices: [x, 1, true]}\nsampler: tpe\n"))
	f.Fuzz(func(_ *testing.T, content []byte) {
		file, err := parseFile(content)
		if err != nil {
			return
		}
		for _, r := range file.Search {
			for _, value := range []any{int64(1), 0.5, true, ""} {
				_, _ = r.Param(value)
			}
		}
	})
}
