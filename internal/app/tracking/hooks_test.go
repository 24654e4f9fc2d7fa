package tracking

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// fakeWandb stands in for the package wandb: it writes what it is told to a file, a line each, and drops
// rows of steps that the run had when it was continued, as the server does.
const fakeWandb = `
import json, os

def note(**what):
    with open(os.environ["FAKE_LOG"], "a") as f:
        f.write(json.dumps(what) + "\n")

def shown(row):
    return {name: v if v == v else "NaN" for name, v in row.items()}

class Run:
    def __init__(self, id):
        self.id, self.summary, self.step = id, {}, 0
        for line in open(os.environ["FAKE_LOG"]):
            row = json.loads(line)
            if row.get("id") == id and "row" in row:
                self.step = row["step"] + 1
                self.summary.update(row["row"])
    def define_metric(self, name, step_metric):
        assert (name, step_metric) == ("*", "step")
    def log(self, row, step):
        if step < self.step:
            raise ValueError(f"step {step} after {self.step}")
        self.step = step
        self.summary.update(row)
        note(id=self.id, row=shown(row), step=step)
    def finish(self, exit_code):
        note(id=self.id, summary=shown(self.summary), exit_code=exit_code)

def init(**given):
    note(init=given)
    return Run(given["id"])
`

// fakeComet stands in for the package comet_ml.
const fakeComet = `
import json, os

def note(**what):
    with open(os.environ["FAKE_LOG"], "a") as f:
        f.write(json.dumps(what) + "\n")

def shown(row):
    return {name: v if v == v else "NaN" for name, v in row.items()}

class Experiment:
    def __init__(self, key):
        self.id = key
    def set_name(self, name):
        note(id=self.id, name=name)
    def log_parameters(self, params):
        note(id=self.id, params=params)
    def log_metrics(self, row, step):
        note(id=self.id, row=shown(row), step=step)
    def log_others(self, others):
        note(id=self.id, summary=others)
    def flush(self):
        return True
    def end(self):
        note(id=self.id, ended=True)

def start(**given):
    note(init=given)
    return Experiment(given["experiment_key"])
`

// noted is a line of what a fake package was told.
type noted struct {
	ID       string
	Init     map[string]any
	Params   map[string]any
	Row      map[string]any
	Step     int64
	Summary  map[string]any
	ExitCode *int `json:"exit_code"`
}

// hook is a script of examples/track with a fake package, and the log of that.
type hook struct {
	script, packages, log string
}

func newHook(t *testing.T, script, module, source string) hook {
	t.Helper()
	h := hook{filepath.Join(testkit.Root(), "examples", "track", script), t.TempDir(), filepath.Join(t.TempDir(), "log")}
	write(t, filepath.Join(h.packages, module+".py"), source)
	write(t, h.log, "")
	return h
}

// start runs the hook, and returns the way to its standard input.
func (h hook) start(t *testing.T) (*exec.Cmd, io.WriteCloser) {
	t.Helper()
	cmd := testkit.Command(t, testkit.Python(t), h.script)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+h.packages, "FAKE_LOG="+h.log)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, in
}

// noted returns what the package was told.
func (h hook) noted(t *testing.T) (out []noted) {
	t.Helper()
	f, err := os.Open(h.log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var n noted
		if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		out = append(out, n)
	}
	return out
}

// events are those of a run of so many steps with an evaluation at the last, in the order in which
// gorbit track sends a run that is there.
func events(folder string, steps int) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	add(`{"event":"run","folder":%q,"params":{"train.steps":"4"},"steps":4}`, folder)
	for step := 1; step <= steps; step++ {
		if step == 4 {
			add(`{"event":"metrics","phase":"eval","step":4,"metrics":{"accuracy":0.75,"loss":"NaN"}}`)
		}
		add(`{"event":"metrics","phase":"train","step":%d,"metrics":{"loss":%g}}`, step, 1/float64(step))
	}
	return out
}

const ending = `{"event":"end","state":"finished","step":4,"best":{"metric":"accuracy","value":0.75,"step":4}}`

// TestHooks runs each hook of examples/track, kills it after some steps, and starts it again as gorbit
// track does. There is then one run, with the params, every step once, and how it ended.
func TestHooks(t *testing.T) {
	for _, h := range []hook{
		newHook(t, "wandb_hook.py", "wandb", fakeWandb),
		newHook(t, "comet_hook.py", "comet_ml", fakeComet),
	} {
		t.Run(filepath.Base(h.script), func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "mrpc")
			write(t, filepath.Join(folder, "params.yaml"), "")
			cmd, in := h.start(t)
			if _, err := io.WriteString(in, strings.Join(events(folder, 3), "\n")+"\n"); err != nil {
				t.Fatal(err)
			}
			for !slices.ContainsFunc(h.noted(t), func(n noted) bool { return n.Row != nil && n.Step == 2 }) {
				time.Sleep(10 * time.Millisecond)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			cmd, in = h.start(t)
			if _, err := io.WriteString(in, strings.Join(append(events(folder, 4), ending), "\n")+"\n"); err != nil {
				t.Fatal(err)
			}
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			h.check(t)
		})
	}
}

// send runs a hook with the events.
func (h hook) send(t *testing.T, events []string) {
	t.Helper()
	cmd, in := h.start(t)
	if _, err := io.WriteString(in, strings.Join(events, "\n")+"\n"); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestHookOfALateEvaluation stops a run at a step without an evaluation, which the continued run makes, and makes it
// again with another value. Weights & Biases has each value once, at its step, and the steps that follow.
func TestHookOfALateEvaluation(t *testing.T) {
	h := newHook(t, "wandb_hook.py", "wandb", fakeWandb)
	folder := filepath.Join(t.TempDir(), "mrpc")
	write(t, filepath.Join(folder, "params.yaml"), "")
	const late = `{"event":"metrics","phase":"eval","step":2,"metrics":{"accuracy":%g,"loss":"NaN"}}`
	stopped := strings.Replace(ending, "finished", "stopped", 1)
	h.send(t, append(events(folder, 2), stopped))
	continued := append(events(folder, 2), fmt.Sprintf(late, 0.5))
	h.send(t, append(continued, stopped))
	h.send(t, append(continued, stopped))
	continued = append(continued, fmt.Sprintf(late, 0.625))
	h.send(t, append(continued, append(events(folder, 4)[3:], ending)...))
	h.send(t, append(continued, append(events(folder, 4)[3:], ending)...))
	var got []string
	for _, n := range h.noted(t) {
		if n.Row != nil {
			row, err := json.Marshal(n.Row)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(row))
		}
	}
	want := []string{
		`{"step":1,"train/loss":1}`, `{"step":2,"train/loss":0.5}`, `{"eval/accuracy":0.5,"eval/loss":"NaN","step":2}`,
		`{"eval/accuracy":0.625,"step":2}`, `{"step":3,"train/loss":0.3333333333333333}`, `{"eval/accuracy":0.75,"eval/loss":"NaN","step":4,"train/loss":0.25}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// check checks what the package was told of the run.
func (h hook) check(t *testing.T) {
	t.Helper()
	rows := make(map[int64]map[string]any)
	ids := make(map[string]bool)
	var params, summary map[string]any
	for _, n := range h.noted(t) {
		if n.Init != nil {
			id, _ := n.Init["id"].(string)
			key, _ := n.Init["experiment_key"].(string)
			ids[id+key] = true
			if config, ok := n.Init["config"].(map[string]any); ok {
				params = config
			}
		}
		if n.Params != nil {
			params = n.Params
		}
		if n.Summary != nil {
			summary = n.Summary
		}
		if n.Row != nil {
			if rows[n.Step] == nil {
				rows[n.Step] = make(map[string]any)
			}
			maps.Copy(rows[n.Step], n.Row)
		}
	}
	if len(ids) != 1 || ids[""] {
		t.Errorf("runs %v, expected one", slices.Collect(maps.Keys(ids)))
	}
	if params["train.steps"] != "4" {
		t.Errorf("params %v", params)
	}
	for step := int64(1); step <= 4; step++ {
		if rows[step]["train/loss"] != 1/float64(step) {
			t.Errorf("step %d has %v", step, rows[step])
		}
	}
	if rows[4]["eval/accuracy"] != 0.75 || rows[4]["eval/loss"] != "NaN" || len(rows) != 4 {
		t.Errorf("rows %v", rows)
	}
	if summary["state"] != "finished" || summary["best/accuracy"] != 0.75 || summary["best/step"] != 4.0 {
		t.Errorf("summary %v", summary)
	}
}
