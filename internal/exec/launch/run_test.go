package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// output collects what is written, and calls a function once some text is there.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	text string
	then func()
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(p)
	if o.then != nil && strings.Contains(o.b.String(), o.text) {
		o.then()
		o.then = nil
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// trial is a run of the fake programs.
type trial struct {
	Config
	dir            string
	out, said, log *output
}

func newTrial(t *testing.T, workers int, do ...string) *trial {
	t.Helper()
	r := &trial{dir: t.TempDir(), out: new(output), said: new(output), log: new(output)}
	var p Plan
	p.Strategy = devices.MultiWorker
	for range workers {
		p.Hosts = append(p.Hosts, Host{Address: freeAddress(t)})
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r.Commands, err = p.Make(program, Access{}, append([]string{"--do"}, do...))
	if err != nil {
		t.Fatal(err)
	}
	r.Env = append(os.Environ(), fakeDir+"="+r.dir)
	r.Stdout, r.Stderr, r.Log = r.out, r.said, slog.New(slog.NewTextHandler(r.log, nil))
	r.Grace, r.MaxRestarts = time.Minute, 3
	return r
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// run runs, and checks that all processes are gone.
func (r *trial) run(t *testing.T, ctx context.Context) (int, error) {
	t.Helper()
	code, err := Run(ctx, r.Config)
	gone(t, r.dir)
	return code, err
}

// started counts the processes of a kind that were started.
func started(t *testing.T, dir, kind string) int {
	t.Helper()
	n := 0
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if text, err := os.ReadFile(filepath.Join(dir, f.Name())); err == nil && string(text) == kind {
			n++
		}
	}
	return n
}

// gone waits until no process that left a file is alive.
func gone(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		for try := 0; alive(f.Name()); try++ {
			if try == 1000 {
				kind, _ := os.ReadFile(filepath.Join(dir, f.Name()))
				t.Fatalf("a process of %q is left behind: %s", kind, f.Name())
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// alive reports whether a process runs; one that nobody has waited for does not.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestExitCodeIsTheChiefs(t *testing.T) {
	for _, want := range []int{0, 1, 2, 3, 75} {
		r := newTrial(t, 2, "step", fmt.Sprintf("exit:%d", want))
		code, err := r.run(t, context.Background())
		if err != nil || code != want {
			t.Errorf("exit code %d, %v, want %d", code, err, want)
		}
		if got := r.out.String(); got != "step done\n" {
			t.Errorf("standard output is %q, want the chief's own", got)
		}
		for _, line := range []string{"[worker 0] serving\n", "[worker 1] serving\n"} {
			if !strings.Contains(r.said.String(), line) {
				t.Errorf("standard error lacks %q:\n%s", line, r.said)
			}
		}
		if n := started(t, r.dir, "worker"); n != 2 {
			t.Errorf("%d workers were started, want 2", n)
		}
	}
}

func TestWorkerIsStartedAgain(t *testing.T) {
	r := newTrial(t, 2, "step", "die:1", "step", "exit:0")
	r.Env = append(r.Env, fakeOrphan+"=1")
	code, err := r.run(t, context.Background())
	if code != 0 || err != nil {
		t.Fatalf("exit code %d, %v\n%s", code, err, r.said)
	}
	if n := started(t, r.dir, "worker"); n != 3 {
		t.Errorf("%d workers were started, want 3", n)
	}
	for _, want := range []string{"restarting it", `worker="worker 1"`, `ended_with="signal SIGKILL"`, "restart=1 max_restarts=3"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, r.log)
		}
	}
}

func TestWorkerThatDiesTooOften(t *testing.T) {
	r := newTrial(t, 2, "step", "die:0", "step", "die:1", "step", "exit:0")
	r.MaxRestarts, r.Grace = 1, 100*time.Millisecond
	_, err := r.run(t, context.Background())
	var worker *WorkerError
	if !errors.As(err, &worker) {
		t.Fatalf("the error is %v, want a *WorkerError", err)
	}
	want := "worker 1 at " + r.Workers[1].Address + " ended with signal SIGKILL, after 1 restarts; its last line was: serving"
	if worker.Error() != want {
		t.Errorf("%v\nwant %s", worker, want)
	}
}

func TestWrongUsageIsNotTriedAgain(t *testing.T) {
	r := newTrial(t, 1, "wait")
	r.Env = append(r.Env, fakeExit+"=2")
	// The chief would wait for the worker as long as it likes.
	r.Grace = time.Millisecond
	_, err := r.run(t, context.Background())
	var worker *WorkerError
	if !errors.As(err, &worker) || worker.Restarts != 0 || worker.How != "exit code 2" || worker.Last != "flags are wrong" {
		t.Errorf("the error is %v", err)
	}
	if n := started(t, r.dir, "worker"); n != 1 {
		t.Errorf("%d workers were started, want 1", n)
	}
}

// Workers must be there until the chief has saved.
func TestStopSaves(t *testing.T) {
	r := newTrial(t, 2, "step", "wait")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.said.text, r.said.then = "waiting", cancel
	code, err := r.run(t, ctx)
	if code != 75 || err != nil {
		t.Errorf("exit code %d, %v, want 75", code, err)
	}
	if got := r.out.String(); got != "step done\nstep done\nsaved\n" {
		t.Errorf("standard output is %q", got)
	}
}

// TestTokenOnInput checks that processes get the token on standard input, which stays open, and have
// it nowhere else.
func TestTokenOnInput(t *testing.T) {
	const token = "f00ba4"
	dir := t.TempDir()
	script := func(name, then string) []string {
		return []string{"sh", "-c", "read -r token && tr '\\0' ' ' < /proc/$$/cmdline > " + name + " && env >> " + name + " && echo \"$token\" > " + name + ".got && " + then, dir}
	}
	var out, log output
	c := Config{Token: token, Env: os.Environ(), Stdout: &out, Stderr: &out, Grace: time.Minute, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	c.Workers = []Command{{Name: "worker", Local: true, Token: true, Args: script(filepath.Join(dir, "worker"), "cat > /dev/null")}}
	c.Chief = Command{Name: "train", Local: true, Token: true, Args: script(filepath.Join(dir, "train"), "until [ -s "+filepath.Join(dir, "worker.got")+" ]; do sleep 0.01; done")}
	if code, err := Run(t.Context(), c); code != 0 || err != nil {
		t.Fatalf("%d, %v\n%s", code, err, &out)
	}
	for _, name := range []string{"worker", "train"} {
		got, err := os.ReadFile(filepath.Join(dir, name+".got"))
		if err != nil || string(got) != token+"\n" {
			t.Errorf("%s got %q, %v", name, got, err)
		}
		if shown, err := os.ReadFile(filepath.Join(dir, name)); err != nil || strings.Contains(string(shown), token) {
			t.Errorf("%s shows the token: %v\n%s", name, err, shown)
		}
	}
	if said := out.String() + log.String(); strings.Contains(said, token) || strings.Contains(said, "restarting") {
		t.Errorf("said:\n%s", said)
	}
}

func TestKillsWhatDoesNotEnd(t *testing.T) {
	r := newTrial(t, 1, "step", "hang")
	r.Grace = time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.said.text, r.said.then = "waiting", cancel
	if _, err := r.run(t, ctx); err == nil || err.Error() != "train ended with signal SIGKILL" {
		t.Errorf("the error is %v", err)
	}
	if !strings.Contains(r.log.String(), "killed a process that did not end when asked to\" process=train") {
		t.Errorf("the log does not say so:\n%s", r.log)
	}
}

func TestChiefKilled(t *testing.T) {
	r := newTrial(t, 1, "step", "kill")
	if _, err := r.run(t, context.Background()); err == nil || err.Error() != "train ended with signal SIGKILL" {
		t.Errorf("the error is %v", err)
	}
}

// TestChiefCrashes restarts a chief that crashes, within the limit, unless it would then begin anew.
func TestChiefCrashes(t *testing.T) {
	const last = "train ended with signal SIGABRT"
	for _, c := range []struct {
		do      []string
		started int
		err     string // "" for a run that ends well
	}{
		{[]string{"crash:2", "step", "exit:0"}, 3, ""},
		{[]string{"crash:3", "step", "exit:0"}, 3, last + ", after 2 restarts"},
		{[]string{"crash:1", "exit:0", "--overwrite"}, 1, last + "; it was not started again, since --overwrite would remove what it has saved: leave that out to continue the run"},
	} {
		r := newTrial(t, 1, c.do...)
		r.MaxRestarts = 2
		code, err := r.run(t, t.Context())
		if code != 0 || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%v: exit code %d, %v; expected %q", c.do, code, err, c.err)
		}
		if n := started(t, r.dir, "train"); n != c.started {
			t.Errorf("%v: the chief was started %d times, expected %d", c.do, n, c.started)
		}
		// None, if it was stopped before it could say that it runs.
		if n := started(t, r.dir, "worker"); n > 1 {
			t.Errorf("%v: the worker was started %d times, expected 1", c.do, n)
		}
	}
}

func TestProgramMissing(t *testing.T) {
	r := newTrial(t, 1, "step", "exit:0")
	r.Chief.Args[0] = filepath.Join(r.dir, "missing")
	if _, err := r.run(t, context.Background()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
	r = newTrial(t, 1, "wait")
	r.Grace = time.Millisecond
	r.Workers[0].Args[0] = filepath.Join(r.dir, "missing")
	var worker *WorkerError
	if _, err := r.run(t, context.Background()); !errors.As(err, &worker) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
}

// A launch that is killed cannot stop anything; the system does.
func TestLaunchKilled(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := testkit.Command(t, program, "launch", freeAddress(t), "--do", "step", "stop")
	cmd.Env = append(os.Environ(), fakeDir+"="+dir)
	said := &output{text: "waiting"}
	waiting := make(chan struct{})
	said.then = func() { close(waiting) }
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-waiting
	if n := started(t, dir, "server"); n != 1 {
		t.Errorf("%d servers were started, want 1", n)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	gone(t, dir)
}

func TestLines(t *testing.T) {
	out := new(output)
	l := &lines{prefix: "> ", out: out}
	for _, part := range []string{"one\ntw", "o\x1b[2J\n\n", "three"} {
		fmt.Fprint(l, part)
	}
	if last := l.flush(); last != "three" {
		t.Errorf("the last line is %q", last)
	}
	if want := "> one\n> two\\x1b[2J\n> \n> three\n"; out.String() != want {
		t.Errorf("%q, want %q", out, want)
	}
	fmt.Fprint(l, strings.Repeat("x", maxLine+1))
	if !strings.HasSuffix(out.String(), "x\n") {
		t.Error("a line without an end is kept for ever")
	}
}
