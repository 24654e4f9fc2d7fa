package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// makeRun writes the folder of a run that is at a step of 100.
func makeRun(t *testing.T, steps int) string {
	t.Helper()
	dir := t.TempDir()
	var metrics strings.Builder
	for i := 1; i <= steps; i++ {
		fmt.Fprintf(&metrics, `{"phase":"train","step":%d,"outputs":{"loss":%v}}`+"\n", i, 1/math.Sqrt(float64(i)))
		if i%25 == 0 {
			fmt.Fprintf(&metrics, `{"phase":"eval","step":%d,"outputs":{"accuracy":%v,"loss":0.5}}`+"\n", i, float64(i)/200)
		}
	}
	for name, content := range map[string]string{
		runfolder.Params:  "seed: 1\n",
		runfolder.Metrics: metrics.String(),
		runfolder.Journal: `{"event":"start","time":"2026-01-02T03:04:05Z","process":7,"steps":100,"best":"accuracy","mode":"max"}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFrame holds the size of pictures, from a narrow terminal to a wide one.
func TestFrame(t *testing.T) {
	dir := makeRun(t, 50)
	r, err := runfolder.Read(dir, false, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r.Folder = "runs/a"
	for _, size := range [][2]int{{60, 24}, {80, 30}, {40, 10}, {200, 60}, {20, 3}, {25, 1}} {
		lines := Frame(r, "", size[0], size[1])
		if len(lines) >= size[1] && size[1] > 1 {
			t.Errorf("%d by %d: %d lines", size[0], size[1], len(lines))
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > size[0] {
				t.Errorf("%d by %d: a line has %d columns: %s", size[0], size[1], n, line)
			}
		}
	}
	picture := strings.Join(Frame(r, "", 60, 24), "\n")
	for _, want := range []string{"runs/a  stopped  step 50 of 100", "best accuracy 0.25 at 50", "loss  train 0.1414  eval (o) 0.5 at 50", "accuracy  eval (o) 0.25 at 50", "┤", "└", "o", "100"} {
		if !strings.Contains(picture, want) {
			t.Errorf("the picture does not have %q:\n%s", want, picture)
		}
	}
	r.Folder = "\x1b[2J"
	if got := Frame(r, "", 60, 24)[0]; !strings.HasPrefix(got, `\x1b[2J  stopped`) {
		t.Errorf("a folder with a name that erases the screen: %q", got)
	}
	r.Problems = []string{"metrics.jsonl: cannot read line 3"}
	if got := Frame(r, "", 60, 24); !slices.Contains(got, r.Problems[0]) || len(got) >= 24 {
		t.Errorf("a damaged run: %q", got)
	}
	empty := &runfolder.Run{Folder: "runs/new", State: runfolder.Running, Log: runfolder.NewLog()}
	if got := strings.Join(Frame(empty, "", 60, 24), "\n"); !strings.Contains(got, "nothing to draw yet") {
		t.Errorf("a run without metrics: %s", got)
	}
}

// TestFollow prints lines until the run ends, and none of them twice.
func TestFollow(t *testing.T) {
	dir := makeRun(t, 24)
	unlock, err := checkpoint.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := &ender{after: 24, end: func() {
		path := filepath.Join(dir, runfolder.Metrics)
		more := "damaged\n" + `{"phase":"train","step":25,"outputs":{"loss":0.2,"accuracy":1}}` + "\n" + `{"phase":"eval","step":25,"outputs":{"loss":0.3}}` + "\n"
		content, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, append(content, more...), 0o666)
		}
		if err := errors.Join(err, unlock()); err != nil {
			t.Error(err)
		}
	}}
	if err := Watch(t.Context(), Config{Folder: dir, Out: out, Follow: true, Every: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 28 || lines[0] != "train step 1: loss 1" || lines[24] != "train step 25: accuracy 1, loss 0.2" || lines[25] != "eval  step 25: loss 0.3" || !strings.HasPrefix(lines[26], "metrics.jsonl: cannot read line 25;") || !strings.Contains(lines[27], "stopped") {
		t.Errorf("printed\n%s", out.String())
	}
}

// ender calls end after a number of writes.
type ender struct {
	buffer bytes.Buffer
	after  int
	end    func()
}

func (e *ender) Write(p []byte) (int, error) {
	if e.after--; e.after == 0 {
		e.end()
	}
	return e.buffer.Write(p)
}

func (e *ender) String() string { return e.buffer.String() }

// TestLive draws on a terminal that is resized, until the run ends or the user ends it.
func TestLive(t *testing.T) {
	for _, how := range []string{"the run ends", "the user ends it"} {
		t.Run(how, func(t *testing.T) {
			dir := makeRun(t, 50)
			unlock, err := checkpoint.Lock(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			resized := make(chan os.Signal, 1)
			width := 100
			out := &ender{after: 4, end: func() {
				if how == "the run ends" {
					unlock()
				} else {
					cancel()
				}
			}}
			err = Watch(ctx, Config{Folder: dir, Out: out, Every: time.Millisecond, Resized: resized, Size: func() (int, int) {
				width -= 10
				return max(width, 60), 24
			}})
			if err != nil {
				t.Fatal(err)
			}
			screen, after, ok := strings.Cut(out.String(), leave)
			if !ok || !strings.HasPrefix(screen, enter+home) || strings.Contains(after, "\x1b") || strings.Count(screen, home) < 2 {
				t.Errorf("wrote %q", out.String())
			}
			if state := map[string]string{"the run ends": "stopped", "the user ends it": "running"}[how]; !strings.Contains(after, state) {
				t.Errorf("the last picture does not say %q:\n%s", state, after)
			}
		})
	}
}

func TestMetricError(t *testing.T) {
	err := Watch(t.Context(), Config{Folder: makeRun(t, 50), Out: &bytes.Buffer{}, Metric: "f1", Every: time.Second})
	if wrong := (*MetricError)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "expected accuracy or loss") {
		t.Errorf("an unknown metric: %v", err)
	}
	if err := Watch(t.Context(), Config{Folder: t.TempDir(), Out: &bytes.Buffer{}, Every: time.Second}); !errors.As(err, new(*runfolder.NotRunError)) {
		t.Errorf("a folder that is no run: %v", err)
	}
}
