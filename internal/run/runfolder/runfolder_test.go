package runfolder

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/vfstest"
)

// fill writes files into a folder.
func fill(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	written = "graph: exports/tiny\nseed: 1\ndata:\n  dir: data\n  features: {}\ntrain:\n  batch_size: 32\n"
	metrics = `{"phase":"train","step":10,"outputs":{"loss":0.7}}
{"phase":"eval","step":10,"outputs":{"accuracy":0.5,"loss":0.69}}
{"phase":"train","step":20,"outputs":{"loss":"NaN"}}
{"phase":"eval","step":20,"outputs":{"accuracy":0.75,"loss":0.6}}
{"phase":"eval","step":30,"outputs":{"accuracy":0.75,"loss":0.5}}
`
	start = `{"event":"start","time":"2026-01-02T03:04:05Z","process":7,"host":"h","step":0,"steps":30,"best":"accuracy","mode":"max"}` + "\n"
	end   = `{"event":"end","time":"2026-01-02T03:05:05Z","process":7,"outcome":"finished","step":30,"seconds":60.5,"peak_memory_mib":100}` + "\n"
)

func TestRead(t *testing.T) {
	failed := strings.Replace(end, `"finished"`, `"failed","error":"no space"`, 1)
	for _, tt := range []struct {
		name    string
		files   map[string]string
		state   Outcome
		reason  string
		seconds float64
		best    Best
		problem string
	}{
		{"finished", map[string]string{Params: written, Metrics: metrics, Journal: start + end}, Finished, "", 60.5,
			Best{"accuracy", "max", true, 0.75, 20}, ""},
		{"failed", map[string]string{Params: written, Metrics: metrics, Journal: start + failed}, Failed, "no space", 60.5,
			Best{"accuracy", "max", true, 0.75, 20}, ""},
		{"killed, then finished", map[string]string{Params: written, Metrics: metrics, Journal: start + start + end}, Finished, "", 60.5,
			Best{"accuracy", "max", true, 0.75, 20}, ""},
		{"of the lowest loss", map[string]string{Params: written, Metrics: metrics,
			Journal: strings.Replace(start, `"accuracy","mode":"max"`, `"loss","mode":"min"`, 1) + end}, Finished, "", 60.5,
			Best{"loss", "min", true, 0.5, 30}, ""},
		{"without a journal", map[string]string{Params: written, Metrics: metrics}, Stopped, "", 0, Best{}, ""},
		{"not evaluated", map[string]string{Params: written, Metrics: "", Journal: start + end}, Finished, "", 60.5,
			Best{Metric: "accuracy", Mode: "max"}, ""},
		{"damaged metrics", map[string]string{Params: written, Metrics: "{\n" + metrics + "\x00\x00\n", Journal: start + end}, Finished, "", 60.5,
			Best{"accuracy", "max", true, 0.75, 20}, "metrics.jsonl: cannot read 2 lines, the first of them line 1"},
		{"half a line", map[string]string{Params: written, Metrics: metrics + `{"phase":"ev`, Journal: start + end}, Finished, "", 60.5,
			Best{"accuracy", "max", true, 0.75, 20}, ""},
		{"damaged journal", map[string]string{Params: written, Metrics: metrics, Journal: start + "?\n" + end}, Finished, "", 60.5,
			Best{"accuracy", "max", true, 0.75, 20}, "processes.jsonl:2: is not a line of the journal"},
		{"damaged checkpoint", map[string]string{Params: written, Metrics: metrics, Journal: start + end, filepath.Join(Checkpoints, "ckpt-30.index"): "short"}, Finished, "", 60.5,
			Best{"accuracy", "max", true, 0.75, 20}, "checkpoint ckpt-30 is damaged, and is passed over: "},
		{"damaged description of the data", map[string]string{Params: written, Metrics: metrics, Journal: start + end, Data: "{"}, Finished, "", 60.5,
			Best{"accuracy", "max", true, 0.75, 20}, "data.json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir, tt.files)
			r, err := Read(dir, true, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if r.State != tt.state || r.Reason != tt.reason || r.Seconds != tt.seconds || r.Best != tt.best {
				t.Errorf("the run is %s (%q) after %v s with best %+v; expected %s (%q), %v and %+v",
					r.State, r.Reason, r.Seconds, r.Best, tt.state, tt.reason, tt.seconds, tt.best)
			}
			if all := strings.Join(r.Problems, "\n"); (tt.problem == "") != (all == "") || !strings.Contains(all, tt.problem) {
				t.Errorf("problems are %q; expected %q", all, tt.problem)
			}
			if r.Params["train.batch_size"] != "32" {
				t.Errorf("params are %v", r.Params)
			}
		})
	}
	if _, err := Read(t.TempDir(), false, time.Now()); !errors.As(err, new(*NotRunError)) {
		t.Errorf("an empty folder: %v; expected a NotRunError", err)
	}
	file := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file, false, time.Now()); !errors.As(err, new(*NotRunError)) {
		t.Errorf("a file: %v; expected a NotRunError", err)
	}
}

// TestReadUnread reads a run whose newest checkpoint the disk cannot read now.
func TestReadUnread(t *testing.T) {
	dir := t.TempDir()
	index := filepath.Join(dir, Checkpoints, "ckpt-30.index")
	fill(t, dir, map[string]string{Params: written, Metrics: metrics, Journal: start + end, filepath.Join(Checkpoints, "ckpt-30.index"): ""})
	defer vfs.Mount(index, &vfstest.Unread{WorkFS: vfs.OS{}, From: 1, Times: math.MaxInt, Err: syscall.EIO})()
	synctest.Test(t, func(t *testing.T) { // the pauses between tries take no time
		r, err := Read(dir, false, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(r.Problems, "\n"); !strings.Contains(all, index) || !strings.Contains(all, syscall.EIO.Error()) {
			t.Errorf("problems are %q; expected %s and %q", all, index, syscall.EIO)
		}
	})
}

// TestRunning looks at a run while a process trains it, and after that process was killed.
func TestRunning(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, map[string]string{Params: written, Metrics: metrics, Journal: start})
	unlock, err := checkpoint.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 3, 4, 15, 0, time.UTC)
	r, err := Read(dir, false, now)
	if err != nil || r.State != Running || r.Seconds != 10 || r.Steps != 30 || r.Step != 30 {
		t.Errorf("with a lock: %+v, %v; expected a running run of 10 s", r, err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if r, err = Read(dir, false, now); err != nil || r.State != Stopped || !strings.Contains(r.Reason, "killed") {
		t.Errorf("without a lock: %+v, %v; expected a killed run", r, err)
	}
}

// TestFollow reads a log that grows, and one that a run going back to a checkpoint has cut.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	l := NewLog()
	write := func(content string) {
		t.Helper()
		fill(t, dir, map[string]string{Metrics: content})
		if err := l.Follow(dir); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.SplitAfter(metrics, "\n")
	write(lines[0] + lines[1][:5])
	if got := l.Train["loss"]; got.Len() != 1 || l.Eval["accuracy"] != nil {
		t.Errorf("after a line and a half: %+v", l)
	}
	write(metrics)
	if got := l.Train["loss"]; got.Len() != 2 || !math.IsNaN(got.Values[1]) || l.Eval["accuracy"].Len() != 3 {
		t.Errorf("after all lines: %+v", got)
	}
	write(lines[0] + strings.Replace(lines[1], "0.5", "0.25", 1))
	if got := l.Eval["accuracy"]; got.Len() != 1 || got.Values[0] != 0.25 || l.Step != 10 {
		t.Errorf("after the log was cut: %+v at step %d", got, l.Step)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, map[string]string{"a/params.yaml": "", "a/metrics.jsonl": "", "a/inner/params.yaml": "", "a/inner/metrics.jsonl": "",
		"b/c/params.yaml": "", "b/c/processes.jsonl": "", "config/params.yaml": "", ".hidden/params.yaml": "", ".hidden/metrics.jsonl": ""})
	found, err := Find(dir)
	if want := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b/c")}; err != nil || !slices.Equal(found, want) {
		t.Errorf("Find = %v, %v; expected %v", found, err, want)
	}
	if found, err := Find(filepath.Join(dir, "a")); err != nil || len(found) != 1 {
		t.Errorf("Find of a run = %v, %v", found, err)
	}
	if _, err := Find(filepath.Join(dir, "none")); err == nil {
		t.Error("a folder that is not there is found")
	}
}

func TestReadFilled(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, map[string]string{Init: "w/model.safetensors: 1 matched, 1 missing, 1 mismatched, 1 unused (names there begin with \"bert.\")\n" +
		"  matched     a <- x transposed\n  missing     b float32[2]\n  mismatched  c float32[2] <- y float32[3]\n  unused      z float32[4]\n"})
	f, err := readFilled(filepath.Join(dir, Init))
	if err != nil || f.Source != "w/model.safetensors" || len(f.Matched) != 1 || f.Missing[0] != "b float32[2]" || len(f.Mismatched) != 1 || len(f.Unused) != 1 {
		t.Errorf("readFilled = %+v, %v", f, err)
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add([]byte(metrics))
	f.Add([]byte("{\"phase\":\"eval\",\"step\":1,\"outputs\":{\"a\":\"inf\"}}\nx"))
	f.Fuzz(func(t *testing.T, content []byte) {
		l := NewLog()
		if err := l.read(strings.NewReader(string(content))); err != nil {
			t.Fatal(err)
		}
		for _, all := range []map[string]*Series{l.Train, l.Eval} {
			for name, s := range all {
				if len(s.Steps) != len(s.Values) || !slices.IsSorted(s.Steps) {
					t.Errorf("%s: %+v", name, s)
				}
			}
		}
	})
}

// TestDamagedParams wants the class of damaged data, by which commands that list runs end.
func TestDamagedParams(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, map[string]string{Params: "train: {\n", Metrics: ""})
	if _, err := Read(dir, false, time.Now()); fault.Of(err) != fault.Damaged || !strings.Contains(err.Error(), filepath.Join(dir, Params)) {
		t.Errorf("got %v (%s)", err, fault.Of(err))
	}
}
