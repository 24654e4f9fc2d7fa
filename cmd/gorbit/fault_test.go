package main

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster/clustertest"
	"github.com/gorbit-ml/gorbit/internal/exec/peertls"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// patience limits how long tests wait for processes to be gone. It is far more than needed.
const patience = 15 * time.Minute

// output collects what a process prints, so that it can be read while the process runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Reset()
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// running is a process started by a test.
type running struct {
	t *testing.T
	*exec.Cmd
	out   output
	ended chan struct{}
	err   error
}

// start starts gorbit. It is killed at the end of the test if it still runs.
func (u *user) start(t *testing.T, args ...string) *running {
	t.Helper()
	return begin(t, u.command("gorbit", args...))
}

func begin(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{t: t, Cmd: cmd, ended: make(chan struct{})}
	r.Stdout, r.Stderr, r.WaitDelay = &r.out, &r.out, time.Second
	r.Env = append(r.Env, mark(t))
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.err = r.Wait()
		close(r.ended)
	}()
	t.Cleanup(func() {
		r.Process.Signal(syscall.SIGCONT)
		r.Process.Kill()
		<-r.ended
	})
	return r
}

// await waits until a condition holds while the process runs, which testkit.Command bounds.
func (r *running) await(what string, there func() bool) {
	r.t.Helper()
	for !there() {
		select {
		case <-r.ended:
			if !there() {
				r.t.Fatalf("ended without %s: %v\n%s", what, r.err, &r.out)
			}
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// says waits until the process has printed a text.
func (r *running) says(text string) {
	r.t.Helper()
	r.await(fmt.Sprintf("%q", text), func() bool { return strings.Contains(r.out.String(), text) })
}

// wait waits for the process to end.
func (r *running) wait() {
	r.t.Helper()
	<-r.ended
}

// exits waits for the process to end and checks its exit code.
func (r *running) exits(code int) {
	r.t.Helper()
	r.wait()
	if got := r.ProcessState.ExitCode(); got != code {
		r.t.Fatalf("exit code %d (%v), want %d\n%s", got, r.err, code, &r.out)
	}
}

// child returns the ID of the process that a worker runs for its session.
func (r *running) child() int {
	r.t.Helper()
	var pid int
	r.await("a child", func() bool {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.Process.Pid))
		for _, list := range lists {
			content, _ := os.ReadFile(list)
			if n, _ := fmt.Sscan(string(content), &pid); n == 1 {
				return true
			}
		}
		return false
	})
	return pid
}

// mark returns the setting of the environment that marks the processes of a test and their
// children.
func mark(t *testing.T) string { return fmt.Sprintf("GORBIT_TEST=%d %s", os.Getpid(), t.Name()) }

// marked returns the arguments of the test's processes by process ID. A process that has ended and
// was not waited for has no environment and is not included.
func marked(t *testing.T) map[int][]string {
	out := make(map[int][]string)
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range all {
		// A process that cannot be read has ended or is not ours.
		environment, _ := os.ReadFile(filepath.Join(process, "environ"))
		if !slices.Contains(strings.Split(string(environment), "\x00"), mark(t)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			t.Fatal(err)
		}
		line, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		out[pid] = strings.Split(string(line), "\x00")
	}
	return out
}

// gone waits until no process of the test has the argument in its command line; "" matches all.
func gone(t *testing.T, argument string) {
	t.Helper()
	var left map[int][]string
	for late := time.Now().Add(patience); time.Now().Before(late); time.Sleep(20 * time.Millisecond) {
		left = marked(t)
		maps.DeleteFunc(left, func(_ int, arguments []string) bool {
			return argument != "" && !slices.Contains(arguments, argument)
		})
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("processes are left: %v", left)
}

// fixture makes the folders data and graph of so many reviews, with what is said to
// gorbit convert besides.
func (u *user) fixture(reviews int, convert ...string) {
	u.t.Helper()
	u.write(reviews)
	u.run("gorbit", append([]string{"convert", "--vocab", "vocab.txt", "--train", "reviews.tsv", "--text-column", "text",
		"--label-column", "label", "--labels", "bad,good", "--max-length", "24", "--out", "data"}, convert...)...)
	graph := testkit.Export(u.t, `{"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
		"intermediate_size": 48, "vocab_size": 29, "max_position_embeddings": 32}`, "--pooling", "mean")
	if err := os.Symlink(graph, filepath.Join(u.dir, "graph")); err != nil {
		u.t.Fatal(err)
	}
}

// faultSteps is the number of steps of the runs of TestFaults.
const faultSteps = 140

// workerLost is the message of a run that continues after losing a worker.
const workerLost = "a worker was lost; continuing from the last checkpoint"

// shortTimeout is for workers that never answer.
var shortTimeout = []string{"--worker-timeout", "5s"}

// noDropout trains without dropout. Then the number of replicas affects only rounding, by about
// 1e-4 at the end.
var noDropout = []string{"--set", "optimizer.hyperparameters.hidden_dropout=0", "--set", "optimizer.hyperparameters.attention_dropout=0",
	"--set", "optimizer.hyperparameters.classifier_dropout=0"}

// faults is a folder with a graph and data, and the results of undisturbed runs.
type faults struct {
	*user
	undisturbed        map[string]string // tensors of two workers' run
	undisturbedMetrics string
	alone              map[string]string // tensors of one device's run without dropout
}

// TestFaults breaks a training with two workers in many ways. The training must recover by itself
// and end with the variables of an undisturbed run, or fail with one sentence that names the
// worker.
func TestFaults(t *testing.T) {
	t.Parallel()
	f := &faults{user: newUser(t)}
	f.fixture(400, "--split-by-hash", "id")

	undisturbed, _, _ := f.two(t, "undisturbed")
	undisturbed.exits(fault.ExitDone)
	gone(t, "--child")
	f.undisturbed, f.undisturbedMetrics = f.state("undisturbed", faultSteps)
	f.start(t, f.train("alone", append(noDropout, "--devices", "cpu:1")...)...).exits(fault.ExitDone)
	f.alone, _ = f.state("alone", faultSteps)

	for name, breaks := range breaksOfWorkers {
		scenario(t, name, func(t *testing.T) { f.goesOn(t, name, breaks) })
	}
	for _, test := range []struct {
		name string
		do   func(*faults, *testing.T)
	}{
		{"chief killed", (*faults).chiefKilled},
		{"chief stopped for longer than the deadline", (*faults).chiefStoppedLong},
		{"stopped by a signal", (*faults).stoppedBySignal},
		{"goes on with other devices", (*faults).otherDevices},
		{"a worker gone for good", (*faults).workerGone},
		{"elastic", (*faults).elastic},
		{"a worker without its devices", (*faults).workerWithoutDevices},
		{"a worker of another TensorFlow", (*faults).otherTensorFlow},
		{"a worker whose TensorFlow has no gRPC server", (*faults).noGRPC},
		{"with keys", (*faults).withKeys},
		{"TF_CONFIG", (*faults).tfConfig},
		{"TF_CONFIG without its first machine", (*faults).tfConfigAlone},
		{"local input", (*faults).localInput},
	} {
		scenario(t, test.name, func(t *testing.T) { test.do(f, t) })
	}
}

// scenario runs a test case. At its end, the workers must have no child processes, and no process
// must be left after the workers are killed.
func scenario(t *testing.T, name string, do func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Cleanup(func() { gone(t, "") })
		do(t)
		gone(t, "--child")
	})
}

// worker starts a worker with one thread.
func (f *faults) worker(t *testing.T, address string, more ...string) *running {
	w := f.start(t, append([]string{"worker", "--listen", address, "--threads", "1"}, more...)...)
	w.says("listening on ")
	return w
}

// address returns the address on which a worker listens.
func address(w *running) string {
	_, rest, _ := strings.Cut(w.out.String(), "listening on ")
	return strings.Fields(rest)[0]
}

// train returns the command line of a run.
func (f *faults) train(run string, more ...string) []string {
	return append([]string{"train", "--graph", "graph", "--data", "data", "--run", run, "--steps", fmt.Sprint(faultSteps), "--batch-size", "13",
		"--learning-rate", "1e-3", "--steps-per-loop", "20", "--checkpoint-interval", "40", "--eval-interval", "-1"}, more...)
}

// bySockets are the runs of two whose processes reach each other by Unix sockets; others use ports.
// All end as the undisturbed one, which uses ports.
var bySockets = map[string]bool{"worker-killed-in-a-step": true, "worker-killed-at-the-start": true, "worker-stopped-for-longer-than-the-deadline": true,
	"chief": true, "paused": true, "elastic": true}

// two starts two workers and a run on them.
func (f *faults) two(t *testing.T, run string, more ...string) (chief, first, second *running) {
	at, by := [2]string{"127.0.0.1:0", "127.0.0.1:0"}, []string(nil)
	if bySockets[run] {
		folder, remove, err := cluster.MakeSockets()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(remove)
		at, by = [2]string{"127.0.0.1:1", "127.0.0.1:2"}, []string{"--sockets", folder}
	}
	first, second = f.worker(t, at[0], by...), f.worker(t, at[1], by...)
	return f.start(t, f.train(run, append(workersOf(first, second), more...)...)...), first, second
}

// accessTo returns the flags by which a worker that two started is reached.
func accessTo(w *running) []string {
	if i := slices.Index(w.Args, "--sockets"); i >= 0 {
		return w.Args[i : i+2]
	}
	return nil
}

// workersOf returns the flags of a training on workers that two started.
func workersOf(first, second *running) []string {
	return append([]string{"--workers", address(first) + "," + address(second)}, accessTo(first)...)
}

// alike checks that a run ended, after so many steps, in the bits of these tensors and in these metrics.
func (u *user) alike(t *testing.T, run string, steps int, want map[string]string, wantMetrics string) {
	t.Helper()
	got, metrics := u.state(run, steps)
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s of %s differs", name, run)
		}
	}
	if len(got) != len(want) || metrics != wantMetrics || metrics == "" {
		t.Errorf("%d tensors of %s, want %d; metrics\n%swant\n%s", len(got), run, len(want), metrics, wantMetrics)
	}
}

// same checks that a run ended as the undisturbed one.
func (f *faults) same(t *testing.T, run string) {
	t.Helper()
	f.alike(t, run, faultSteps, f.undisturbed, f.undisturbedMetrics)
}

// near checks that a run ended as that of one device, but for rounding.
func (f *faults) near(t *testing.T, run string) {
	t.Helper()
	got, _ := f.state(run, faultSteps)
	nearTensors(t, got, f.alone, 1e-3)
}

// nearTensors compares the tensors of two runs but for rounding.
func nearTensors(t *testing.T, got, want map[string]string, most float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d tensors, want %d", len(got), len(want))
	}
	for name, want := range want {
		if strings.HasPrefix(name, "optimizer/iterations") || len(got[name]) != len(want) {
			if got[name] != want {
				t.Errorf("%s is %q, want %q", name, got[name], want)
			}
			continue
		}
		for i := 0; i+4 <= len(want); i += 4 {
			g := math.Float32frombits(binary.LittleEndian.Uint32([]byte(got[name][i:])))
			w := math.Float32frombits(binary.LittleEndian.Uint32([]byte(want[i:])))
			if !(math.Abs(float64(g-w)) <= most) {
				t.Errorf("%s[%d] is %v, want %v", name, i/4, g, w)
				break
			}
		}
	}
}

// fails checks that a training's end is one error, of a worker, and nothing was tried again.
func fails(t *testing.T, chief *running, worker, says string) {
	t.Helper()
	chief.exits(fault.ExitFailed)
	_, after, _ := strings.Cut("\n"+chief.out.String(), "\ngorbit: ")
	if !strings.HasPrefix(after, "worker "+worker+": ") || !strings.Contains(after, says) || strings.Count(after, "\n") != 1 {
		t.Errorf("the last words are %q, want one line of worker %s with %q", after, worker, says)
	}
	if strings.Contains(chief.out.String(), workerLost) {
		t.Errorf("it was tried again:\n%s", &chief.out)
	}
}

// saving tells whether a checkpoint of a run is being written.
func (f *faults) saving(run string) func() bool {
	return func() bool {
		all, _ := filepath.Glob(filepath.Join(f.dir, run, "checkpoints", ".saving-*"))
		return len(all) > 0
	}
}

func kill(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
}

// replace kills a worker and starts another at its address.
func (f *faults) replace(t *testing.T, w *running) {
	t.Helper()
	kill(t, w.Process.Pid, syscall.SIGKILL)
	w.wait()
	f.worker(t, address(w), accessTo(w)...)
}

// token writes a token and returns its file's path.
func (f *faults) token(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(peertls.NewToken()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// withKeys trains with keys, while strangers send garbage to all ports and a worker is lost, to the
// same variables and metrics as without keys.
func (f *faults) withKeys(t *testing.T) {
	keys := []string{"--token-file", f.token(t)}
	first, second := f.worker(t, "127.0.0.1:0", keys...), f.worker(t, "127.0.0.1:0", keys...)
	if log := first.out.String() + second.out.String(); strings.Contains(log, "no authentication") {
		t.Errorf("a worker with keys says that it has none:\n%s", log)
	}
	addresses := "--workers=" + address(first) + "," + address(second)
	stranger := f.start(t, f.train("stranger", "--token-file", f.token(t), "--workers", address(first))...)
	fails(t, stranger, address(first), "it has another token; give both sides the same --token-file")
	chief := f.start(t, f.train("keys", append(keys, addresses)...)...)
	chief.says("step:     20 ")
	garble(t, address(first), address(second))
	chief.says("step:     60 ")
	garble(t, address(first), address(second))
	kill(t, second.Process.Pid, syscall.SIGKILL)
	second.wait()
	f.worker(t, address(second), keys...)
	chief.exits(fault.ExitDone)
	if log := chief.out.String(); !strings.Contains(log, workerLost+"\" error=\"worker "+address(second)+": ") {
		t.Errorf("nothing of the lost worker %s:\n%s", address(second), log)
	}
	f.same(t, "keys")
}

// garble sends to ports what strangers do: nothing, other protocols, random bytes.
func garble(t *testing.T, addresses ...string) {
	t.Helper()
	random := make([]byte, 1<<16)
	_, _ = rand.Read(random) // never fails
	for _, address := range addresses {
		for _, sent := range []string{"", "GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", `{"bye":{}}` + "\n", "\x16\x03\x01", string(random)} {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				continue
			}
			t.Cleanup(func() { conn.Close() }) // they stay, as those of a scan may
			_, _ = io.WriteString(conn, sent)  // the worker may close before
		}
	}
}

// inCluster trains on two machines that TF_CONFIG names.
func (f *faults) inCluster(t *testing.T, run string, more [2][]string) {
	t.Helper()
	addresses := freeAddresses(t, 2)
	var all []*running
	for i := range addresses {
		cmd := f.command("gorbit", f.train(run, more[i]...)...)
		cmd.Env = append(cmd.Env, fmt.Sprintf(`TF_CONFIG={"cluster": {"worker": [%q, %q]}, "task": {"type": "worker", "index": %d}}`, addresses[0], addresses[1], i))
		all = append(all, begin(t, cmd))
	}
	for _, r := range all {
		r.exits(fault.ExitDone)
	}
}

// breaksOfWorkers disturb a run on two workers, which then continues with both.
var breaksOfWorkers = map[string]func(f *faults, t *testing.T, run string, chief, second *running){
	"worker killed in a step": func(f *faults, t *testing.T, run string, chief, second *running) {
		chief.says("step:     60 ")
		f.replace(t, second)
	},
	"worker killed while a checkpoint is written": func(f *faults, t *testing.T, run string, chief, second *running) {
		chief.await("a checkpoint being written", f.saving(run))
		f.replace(t, second)
	},
	"worker killed at the start": func(f *faults, t *testing.T, run string, chief, second *running) {
		// One that goes before it has a child was not there yet, and is waited for.
		second.child()
		f.replace(t, second)
	},
	"its TensorFlow killed": func(f *faults, t *testing.T, run string, chief, second *running) {
		chief.says("step:     60 ")
		kill(t, second.child(), syscall.SIGKILL)
	},
	"its TensorFlow stopped": func(f *faults, t *testing.T, run string, chief, second *running) {
		chief.says("step:     60 ")
		kill(t, second.child(), syscall.SIGSTOP)
	},
	"worker stopped for longer than the deadline": func(f *faults, t *testing.T, run string, chief, second *running) {
		chief.says("step:     20 ")
		kill(t, second.child(), syscall.SIGSTOP)
		kill(t, second.Process.Pid, syscall.SIGSTOP)
		chief.says(workerLost)
		kill(t, second.Process.Pid, syscall.SIGCONT)
	},
}

// goesOn checks that a run whose second worker breaks ends as the undisturbed one.
func (f *faults) goesOn(t *testing.T, name string, breaks func(f *faults, t *testing.T, run string, chief, second *running)) {
	run := strings.ReplaceAll(name, " ", "-")
	var more []string
	if strings.Contains(name, "stopped") {
		more = shortTimeout
	}
	chief, _, second := f.two(t, run, more...)
	breaks(f, t, run, chief, second)
	chief.exits(fault.ExitDone)
	if log := chief.out.String(); !strings.Contains(log, workerLost+"\" error=\"worker "+address(second)+": ") {
		t.Errorf("nothing of the lost worker %s:\n%s", address(second), log)
	}
	f.same(t, run)
}

func (f *faults) chiefKilled(t *testing.T) {
	chief, first, second := f.two(t, "chief")
	chief.says("step:     60 ")
	workers := []*running{first, second}
	children := []int{first.child(), second.child()}
	kill(t, chief.Process.Pid, syscall.SIGKILL)
	for i, w := range workers {
		w.says("listening again")
		w.await("its child's end", func() bool { return errors.Is(syscall.Kill(children[i], 0), syscall.ESRCH) })
	}
	f.start(t, f.train("chief", workersOf(first, second)...)...).exits(fault.ExitDone)
	f.same(t, "chief")
}

func (f *faults) chiefStoppedLong(t *testing.T) {
	// Longer than shortTimeout: on a busy machine, workers must be heard again in this time.
	chief, first, second := f.two(t, "paused", "--worker-timeout", "10s", "--max-restarts", "1")
	chief.says("step:     60 ")
	kill(t, chief.Process.Pid, syscall.SIGSTOP)
	first.says("listening again")
	second.says("listening again")
	kill(t, chief.Process.Pid, syscall.SIGCONT)
	chief.exits(fault.ExitDone)
	if log := chief.out.String(); !strings.Contains(log, "the chief itself did not run for ") || strings.Contains(log, workerLost) || strings.Contains(log, "can reach each other") {
		t.Errorf("the workers are blamed:\n%s", log)
	}
	f.same(t, "paused")
}

func (f *faults) stoppedBySignal(t *testing.T) {
	chief, first, second := f.two(t, "stopped")
	chief.says("step:     20 ")
	kill(t, chief.Process.Pid, syscall.SIGTERM)
	chief.exits(fault.ExitStopped)
	f.start(t, f.train("stopped", workersOf(first, second)...)...).exits(fault.ExitDone)
	f.same(t, "stopped")
}

func (f *faults) otherDevices(t *testing.T) {
	chief, _, _ := f.two(t, "devices")
	chief.says("step:     20 ")
	kill(t, chief.Process.Pid, syscall.SIGTERM)
	chief.exits(fault.ExitStopped)
	chief = f.start(t, f.train("devices", "--devices", "cpu:3", "--shard-optimizer")...)
	chief.exits(fault.ExitDone)
	if log := chief.out.String(); !strings.Contains(log, "restored from checkpoint") || !strings.Contains(log, fmt.Sprintf("step: %6d ", faultSteps)) {
		t.Errorf("the run did not go on:\n%s", log)
	}
}

func (f *faults) workerGone(t *testing.T) {
	chief, _, second := f.two(t, "gone", shortTimeout...)
	chief.says("step:     20 ")
	kill(t, second.Process.Pid, syscall.SIGKILL)
	chief.exits(fault.ExitFailed)
	want := regexp.MustCompile("gorbit: worker " + regexp.QuoteMeta(address(second)) + `: connect: after [5-9](\.\d+)?s`)
	if log := chief.out.String(); !want.MatchString(log) {
		t.Errorf("the last words are not of the worker:\n%s", log)
	}
}

func (f *faults) elastic(t *testing.T) {
	chief, _, second := f.two(t, "elastic", append(noDropout, "--elastic", "--worker-timeout", "5s")...)
	chief.says("step:     60 ")
	kill(t, second.Process.Pid, syscall.SIGKILL)
	chief.exits(fault.ExitDone)
	if log := chief.out.String(); !strings.Contains(log, "continuing without workers that did not come back") || !strings.Contains(log, "restored from checkpoint") {
		t.Errorf("nothing of the worker left behind, or of the checkpoint:\n%s", log)
	}
	f.near(t, "elastic")
}

func (f *faults) workerWithoutDevices(t *testing.T) {
	first, second := f.worker(t, "127.0.0.1:0"), f.worker(t, "127.0.0.1:0", "--devices", "gpu:250")
	fails(t, f.start(t, f.train("none", "--workers", address(first)+","+address(second))...), address(second), "devices gpu:250 were requested")
	second.says("listening again")
}

func (f *faults) otherTensorFlow(t *testing.T) {
	first, second := f.worker(t, "127.0.0.1:0"), f.worker(t, "127.0.0.1:0")
	between := clustertest.Greet(t, address(second), func(hello map[string]any) { hello["tensorflow"] = "1.15.0" })
	chief := f.start(t, f.train("none", "--workers", address(first)+","+between)...)
	fails(t, chief, between, fmt.Sprintf("the chief has TensorFlow %q, the worker %q", tf.Version(), "1.15.0"))
}

func (f *faults) noGRPC(t *testing.T) {
	first := f.worker(t, "127.0.0.1:0")
	cmd := f.command("gorbit", "worker", "--listen", "127.0.0.1:0", "--threads", "1")
	cmd.Env = append(cmd.Env, preload(t, withoutGRPC))
	second := begin(t, cmd)
	second.says("listening on ")
	chief := f.start(t, f.train("none", append(shortTimeout, "--workers", address(first)+","+address(second))...)...)
	fails(t, chief, address(second), "TensorFlow has no gRPC server here (No server factory registered")
	second.says("listening again")
}

func (f *faults) tfConfig(t *testing.T) {
	keys := []string{"--token-file", f.token(t)} // without them: localInput
	f.inCluster(t, "tfconfig", [2][]string{keys, keys})
	f.same(t, "tfconfig")
}

func (f *faults) tfConfigAlone(t *testing.T) {
	addresses := freeAddresses(t, 2)
	cmd := f.command("gorbit", f.train("nobody", shortTimeout...)...)
	cmd.Env = append(cmd.Env, fmt.Sprintf(`TF_CONFIG={"cluster": {"worker": [%q, %q]}, "task": {"type": "worker", "index": 1}}`, addresses[0], addresses[1]))
	r := begin(t, cmd)
	r.exits(fault.ExitFailed)
	for _, want := range []string{`msg="waiting for the chief to connect" chief=` + addresses[0], "gorbit: chief " + addresses[0] + ": no answer for ", "start the first process of TF_CONFIG there"} {
		if log := r.out.String(); !strings.Contains(log, want) {
			t.Errorf("not said: %s\n%s", want, log)
		}
	}
}

func (f *faults) localInput(t *testing.T) {
	chief, _, _ := f.two(t, "local", "--input", "local")
	chief.exits(fault.ExitDone)
	want, wantMetrics := f.state("local", faultSteps)

	chief, _, second := f.two(t, "local-killed", "--input", "local")
	chief.says("step:     60 ")
	f.replace(t, second)
	chief.exits(fault.ExitDone)
	if log := chief.out.String(); !strings.Contains(log, workerLost) || !strings.Contains(log, address(second)) {
		t.Errorf("nothing of the lost worker %s:\n%s", address(second), log)
	}
	f.alike(t, "local-killed", faultSteps, want, wantMetrics)

	chief, _, second = f.two(t, "local-elastic", append(noDropout, "--input", "local", "--elastic", "--worker-timeout", "5s")...)
	chief.says("step:     60 ")
	kill(t, second.Process.Pid, syscall.SIGKILL)
	chief.exits(fault.ExitDone)
	f.near(t, "local-elastic")

	// Every machine has the data where it says.
	if err := os.CopyFS(filepath.Join(f.dir, "copied"), os.DirFS(filepath.Join(f.dir, "data"))); err != nil {
		t.Fatal(err)
	}
	f.inCluster(t, "local-tfconfig", [2][]string{{"--input", "local"}, {"--input", "local", "--data", "copied"}})
	f.alike(t, "local-tfconfig", faultSteps, want, wantMetrics)

	if err := os.Mkdir(filepath.Join(f.dir, "empty"), 0o777); err != nil {
		t.Fatal(err)
	}
	first := f.worker(t, "127.0.0.1:0")
	second = f.worker(t, "127.0.0.1:0", "--data", "empty")
	chief = f.start(t, f.train("local-empty", "--input", "local", "--workers", address(first)+","+address(second))...)
	fails(t, chief, address(second), "file "+filepath.Join(f.dir, "empty", "train-00000-of-00001.tfrecord")+" not found")
}

// withoutGRPC makes TensorFlow look for a server type that it does not have instead of grpc.
const withoutGRPC = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

void *TF_NewServer(char *def, size_t size, void *status) {
	void *(*tensorflow)(char *, size_t, void *) = dlsym(RTLD_NEXT, "TF_NewServer");
	char *protocol = memmem(def, size, "\x2a\x04grpc", 6);
	if (protocol != NULL) memcpy(protocol + 2, "none", 4);
	return tensorflow(def, size, status);
}`

// ports counts the ports that freeAddresses has tried.
var ports atomic.Int64

// freeAddresses returns addresses of this machine on which nobody listens. Their ports are below those
// that systems give to connections and to listeners that take any, so nobody is given one of them
// before the test listens there. Processes begin at different ones.
func freeAddresses(t testing.TB, n int) (addresses []string) {
	t.Helper()
	const first, count = 18000, 14000
	for range count {
		if len(addresses) == n {
			return addresses
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+(97*int64(os.Getpid())+ports.Add(1))%count))
		if err != nil {
			continue
		}
		addresses = append(addresses, l.Addr().String())
		l.Close()
	}
	t.Fatalf("%d free ports found, expected %d", len(addresses), n)
	return nil
}
