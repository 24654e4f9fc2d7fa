package tracking

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/app/tracking/trackingtest"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// writeRun writes a run folder with training metrics of so many steps.
func writeRun(t *testing.T, steps int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mrpc")
	write(t, filepath.Join(dir, runfolder.Params), "train:\n  steps: 3\n  learning_rate: 0.1\n")
	writeMetrics(t, dir, 1, steps, false)
	return dir
}

func writeMetrics(t *testing.T, dir string, from, to int, add bool) {
	t.Helper()
	var lines strings.Builder
	for step := from; step <= to; step++ {
		fmt.Fprintf(&lines, "{\"phase\":\"train\",\"step\":%d,\"outputs\":{\"loss\":%g,\"accuracy\":0.5}}\n", step, 1/float64(step))
		if step%10 == 0 {
			fmt.Fprintf(&lines, "{\"phase\":\"eval\",\"step\":%d,\"outputs\":{\"loss\":\"NaN\"}}\n", step)
		}
	}
	path := filepath.Join(dir, runfolder.Metrics)
	if !add {
		write(t, path, lines.String())
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(lines.String()); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

func newMLflow(t *testing.T) *trackingtest.MLflow {
	f := trackingtest.New()
	t.Cleanup(f.Close)
	return f
}

// check compares a run's metrics with those of so many steps, each once and in order.
func check(t *testing.T, f *trackingtest.MLflow, id string, steps int, status string) {
	t.Helper()
	r, ok := f.Runs()[id]
	if !ok {
		t.Fatalf("there is no %s", id)
	}
	if got := len(r.Metrics["train/loss"]); got != steps || len(r.Metrics["train/accuracy"]) != steps || len(r.Metrics["eval/loss"]) != steps/10 {
		t.Errorf("%s: %d losses, %d accuracies and %d evaluations; expected %d, %d and %d", id, got, len(r.Metrics["train/accuracy"]), len(r.Metrics["eval/loss"]), steps, steps, steps/10)
	}
	for i, p := range r.Metrics["train/loss"] {
		if p.Step != int64(i+1) || p.Value != 1/float64(i+1) {
			t.Fatalf("point %d is %+v", i, p)
		}
	}
	if r.Status != status || r.Name != "mrpc" || r.Params["train.learning_rate"] != "0.1" {
		t.Errorf("%s: %q, %s, %v; expected %s", id, r.Name, r.Status, r.Params, status)
	}
}

func tracker(f *trackingtest.MLflow, dir string, log *bytes.Buffer) *Tracker {
	return &Tracker{Folder: dir, Sink: &MLflow{URL: f.URL, Experiment: "reviews"}, Log: slog.New(slog.NewTextHandler(log, nil)), Poll: time.Millisecond}
}

func TestMLflow(t *testing.T) {
	f := newMLflow(t)
	dir := writeRun(t, 1234) // several batches
	var log bytes.Buffer
	if err := tracker(f, dir, &log).Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(t, f, "run0", 1234, "KILLED") // no process trains in the folder
	if got := f.Runs()["run0"].Experiment; got != "reviews" {
		t.Errorf("the run is in the experiment %q; expected reviews", got)
	}
	// Another process continues where this one ended, also when the run went back in the meantime.
	writeMetrics(t, dir, 1, 1200, false)
	if err := tracker(f, dir, &log).Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	writeMetrics(t, dir, 1201, 1300, true)
	if err := tracker(f, dir, &log).Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(t, f, "run0", 1300, "KILLED")
	// A run that was deleted there is sent once more.
	f.Delete("run0")
	if err := tracker(f, dir, &log).Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(t, f, "run1", 1300, "KILLED")
	if n := len(f.Runs()); n != 1 {
		t.Errorf("%d runs; expected 1", n)
	}
}

// TestEveryCallFails cuts each call in turn and sends the run once more.
func TestEveryCallFails(t *testing.T) {
	for n := 1; ; n++ {
		f := newMLflow(t)
		dir := writeRun(t, 1234)
		var met atomic.Bool
		f.Fail(func(call int) bool {
			if call == n {
				met.Store(true)
			}
			return call == n
		})
		var log bytes.Buffer
		err := tracker(f, dir, &log).Send(t.Context())
		if !met.Load() {
			if err != nil || n < 8 {
				t.Fatalf("%d calls, %v", n, err)
			}
			return
		}
		if err == nil {
			t.Errorf("call %d failed, and nobody says so", n)
		}
		if err := tracker(f, dir, &log).Send(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids := slices.Collect(maps.Keys(f.Runs()))
		if len(ids) != 1 {
			t.Fatalf("call %d failed: %d runs", n, len(ids))
		}
		check(t, f, ids[0], 1234, "KILLED")
	}
}

// TestFollow lets the tracker be away while the run trains: nothing is lost.
func TestFollow(t *testing.T) {
	f := newMLflow(t)
	f.Down(true)
	dir := writeRun(t, 20)
	write(t, filepath.Join(dir, runfolder.Journal), "")
	unlock, err := checkpoint.Lock(dir) // a process trains in the folder
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ended := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- tracker(f, dir, &log).Follow(t.Context(), ended, time.Minute) }()
	for f.Calls() < 3 {
		time.Sleep(time.Millisecond)
	}
	writeMetrics(t, dir, 21, 50, true)
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	close(ended)
	f.Down(false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	check(t, f, "run0", 50, "KILLED")
	if n := strings.Count(log.String(), "the tracker is away"); n != 1 {
		t.Errorf("it is said %d times that the tracker is away:\n%s", n, &log)
	}

	f.Down(true)
	if err := tracker(f, dir, &log).Follow(t.Context(), nil, 10*time.Millisecond); err == nil || !strings.Contains(err.Error(), "the same command sends what is missing") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stopped"))
	if err := tracker(f, dir, &log).Follow(ctx, nil, time.Hour); err == nil {
		t.Error("it follows although it was stopped")
	}
}

func TestCommand(t *testing.T) {
	dir := writeRun(t, 10)
	out := filepath.Join(t.TempDir(), "out")
	tr := &Tracker{Folder: dir, Sink: &Command{Args: []string{"sh", "-c", `cat > "$1"`, "sh", out}}, Log: slog.New(slog.DiscardHandler), Poll: time.Millisecond}
	if err := tr.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	if len(lines) != 13 || tr.Count() != 21 {
		t.Fatalf("%d lines and %d values; expected 13 and 21:\n%s", len(lines), tr.Count(), content)
	}
	for i, want := range map[int]string{
		1:  `{"event":"metrics","metrics":{"accuracy":0.5,"loss":1},"phase":"train","step":1}`,
		10: `{"event":"metrics","metrics":{"loss":"NaN"},"phase":"eval","step":10}`,
		12: `{"event":"end","state":"stopped","step":10}`,
	} {
		if lines[i] != want {
			t.Errorf("line %d is %s; expected %s", i+1, lines[i], want)
		}
	}
	if !strings.HasPrefix(lines[0], `{"event":"run",`) || !strings.Contains(lines[0], `"train.learning_rate":"0.1"`) {
		t.Errorf("the first line is %s", lines[0])
	}

	for _, args := range [][]string{{"sh", "-c", "cat >/dev/null; exit 3"}, {filepath.Join(t.TempDir(), "none")}} {
		tr.Sink, tr.sent = &Command{Args: args}, nil
		if err := tr.Send(t.Context()); err == nil {
			t.Errorf("%q fails, and nobody says so", args)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, m := range []MLflow{
		{URL: "", Experiment: "a"}, {URL: "host:5000", Experiment: "a"}, {URL: "http://a:b@h", Experiment: "a"},
		{URL: "http://h"}, {URL: "http://h", Experiment: "a", Token: "t"},
	} {
		if err := m.Validate(); !errors.Is(err, fault.Usage) {
			t.Errorf("%+v: %v; expected a usage error", m, err)
		}
	}
	for _, m := range []MLflow{{URL: "http://h:5000", Experiment: "a"}, {URL: "http://127.0.0.1", Experiment: "a", Token: "t"}, {URL: "https://h", Experiment: "a", Token: "t"}} {
		if err := m.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestDamagedState(t *testing.T) {
	f := newMLflow(t)
	dir := writeRun(t, 3)
	write(t, filepath.Join(dir, StateFile), "{")
	var log bytes.Buffer
	if err := tracker(f, dir, &log).Send(t.Context()); !errors.Is(err, fault.Damaged) {
		t.Errorf("%v; expected damaged data", err)
	}
}

// TestBatches checks that batches hold every point once and whole steps.
func TestBatches(t *testing.T) {
	for _, perStep := range []int{1, 3, 7, 999, 1500} {
		var points []Point
		for step := range int64(2500/perStep + 1) {
			for m := range perStep {
				points = append(points, Point{"train", fmt.Sprint(m), step, 0})
			}
		}
		var joined []Point
		for _, b := range batches(points) {
			if len(joined) > 0 && joined[len(joined)-1].Step == b[0].Step {
				t.Errorf("%d a step: step %d is divided", perStep, b[0].Step)
			}
			if len(b) > atOnce && perStep <= atOnce {
				t.Errorf("%d a step: a batch of %d", perStep, len(b))
			}
			joined = append(joined, b...)
		}
		if !slices.Equal(joined, points) {
			t.Errorf("%d a step: %d points; expected %d", perStep, len(joined), len(points))
		}
	}
}
