package main

import (
	"bytes"
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/cluster/clustertest"
	"github.com/gorbit-ml/gorbit/internal/fault"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// patience bounds the wait for anything that a process does. It is far more than any needs.
const patience = 5 * time.Minute

// output collects what a process prints, to be looked at while it runs.
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

// running is a process of a test.
type running struct {
	t *testing.T
	*exec.Cmd
	out   output
	ended chan struct{}
	err   error
}

// start starts gorbit. What is left of it at the test's end is killed.
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

// await waits for something that comes about while the process runs.
func (r *running) await(what string, there func() bool) {
	r.t.Helper()
	late := time.After(patience)
	for !there() {
		select {
		case <-r.ended:
			if !there() {
				r.t.Fatalf("ended without %s: %v\n%s", what, r.err, &r.out)
			}
		case <-late:
			r.t.Fatalf("waited %v for %s of %v\n%s", patience, what, r.Args, &r.out)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// says waits until the process has printed a text.
func (r *running) says(text string) {
	r.t.Helper()
	r.await(fmt.Sprintf("%q", text), func() bool { return strings.Contains(r.out.String(), text) })
}

// wait waits for the process' end.
func (r *running) wait() {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		r.t.Fatalf("waited %v for the end of %v\n%s", patience, r.Args, &r.out)
	}
}

// exits waits for the process' end and wants an exit code.
func (r *running) exits(code int) {
	r.t.Helper()
	r.wait()
	if got := r.ProcessState.ExitCode(); got != code {
		r.t.Fatalf("exit code %d (%v), want %d\n%s", got, r.err, code, &r.out)
	}
}

// child returns the process that a worker has for its session.
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

// mark is what the processes of a test, and those that they start, have in their
// environment.
func mark(t *testing.T) string { return fmt.Sprintf("GORBIT_TEST=%d %s", os.Getpid(), t.Name()) }

// marked returns the arguments of the processes of the test, by their numbers. One that
// ended and was not waited for has no environment any more.
func marked(t *testing.T) map[int][]string {
	out := make(map[int][]string)
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range all {
		// One that cannot be read has ended, or is not ours.
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

// gone waits until no process of the test runs whose command line has an argument; ""
// is any.
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

// TestFaults breaks a training with two workers in many ways. It must go on by itself
// and end with the variables of a training that was left alone, or end with one
// sentence that names the worker.
func TestFaults(t *testing.T) {
	u := newUser(t)
	u.fixture(400, "--split-by-hash", "id")

	const steps = 360
	const lost = "a worker was lost: the run goes on from its last checkpoint"
	worker := func(t *testing.T, address string, more ...string) *running {
		w := u.start(t, append([]string{"worker", "--listen", address, "--threads", "1"}, more...)...)
		w.says("listening on ")
		return w
	}
	address := func(w *running) string {
		_, rest, _ := strings.Cut(w.out.String(), "listening on ")
		return strings.Fields(rest)[0]
	}
	train := func(run string, more ...string) []string {
		return append([]string{"train", "--graph", "graph", "--data", "data", "--run", run, "--steps", fmt.Sprint(steps), "--batch-size", "13",
			"--learning-rate", "1e-3", "--steps-per-loop", "40", "--checkpoint-interval", "120", "--eval-interval", "-1"}, more...)
	}
	// short is for who is waited for in vain.
	short := []string{"--worker-timeout", "5s"}
	two := func(t *testing.T, run string, more ...string) (chief, first, second *running) {
		first, second = worker(t, "127.0.0.1:0"), worker(t, "127.0.0.1:0")
		return u.start(t, train(run, append([]string{"--workers", address(first) + "," + address(second)}, more...)...)...), first, second
	}

	// scenario is a case at whose end the workers have no child, and nothing is left
	// without them.
	scenario := func(name string, do func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { gone(t, "") })
			do(t)
			gone(t, "--child")
		})
	}

	undisturbed, _, _ := two(t, "undisturbed")
	undisturbed.exits(fault.ExitDone)
	gone(t, "--child")
	want, wantMetrics := u.state("undisturbed", steps)
	alike := func(t *testing.T, run string, want map[string]string, wantMetrics string) {
		t.Helper()
		got, metrics := u.state(run, steps)
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s differs from that of the undisturbed run", name)
			}
		}
		if len(got) != len(want) || metrics != wantMetrics {
			t.Errorf("%d tensors, want %d; metrics\n%swant\n%s", len(got), len(want), metrics, wantMetrics)
		}
	}
	same := func(t *testing.T, run string) {
		t.Helper()
		alike(t, run, want, wantMetrics)
	}
	// Without dropout it does not matter how many replicas make a step, but for rounding,
	// which is some 1e-4 in the end.
	without := []string{"--set", "optimizer.hyperparameters.hidden_dropout=0", "--set", "optimizer.hyperparameters.attention_dropout=0",
		"--set", "optimizer.hyperparameters.classifier_dropout=0"}
	u.start(t, train("alone", append(without, "--devices", "cpu:1")...)...).exits(fault.ExitDone)
	alone, _ := u.state("alone", steps)
	near := func(t *testing.T, run string) {
		t.Helper()
		got, _ := u.state(run, steps)
		if len(got) != len(alone) {
			t.Errorf("%d tensors, want %d", len(got), len(alone))
		}
		for name, want := range alone {
			if strings.HasPrefix(name, "optimizer/iterations") || len(got[name]) != len(want) {
				if got[name] != want {
					t.Errorf("%s is %q, on one device it is %q", name, got[name], want)
				}
				continue
			}
			for i := 0; i < len(want); i += 4 {
				g := math.Float32frombits(binary.LittleEndian.Uint32([]byte(got[name][i:])))
				w := math.Float32frombits(binary.LittleEndian.Uint32([]byte(want[i:])))
				if !(math.Abs(float64(g-w)) <= 1e-3) {
					t.Errorf("%s[%d] is %v, on one device it is %v", name, i/4, g, w)
					break
				}
			}
		}
	}
	// fails wants a training's end to be one error, of a worker, and nothing tried again.
	fails := func(t *testing.T, chief *running, worker, says string) {
		t.Helper()
		chief.exits(fault.ExitFailed)
		_, after, _ := strings.Cut("\n"+chief.out.String(), "\ngorbit: ")
		if !strings.HasPrefix(after, "worker "+worker+": ") || !strings.Contains(after, says) || strings.Count(after, "\n") != 1 {
			t.Errorf("the last words are %q, want one line of worker %s with %q", after, worker, says)
		}
		if strings.Contains(chief.out.String(), lost) {
			t.Errorf("it was tried again:\n%s", &chief.out)
		}
	}
	saving := func(run string) func() bool {
		return func() bool {
			all, _ := filepath.Glob(filepath.Join(u.dir, run, "checkpoints", ".saving-*"))
			return len(all) > 0
		}
	}
	kill := func(t *testing.T, pid int, signal syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(pid, signal); err != nil {
			t.Fatal(err)
		}
	}

	// replace kills a worker and starts another at its address.
	replace := func(t *testing.T, w *running) {
		t.Helper()
		kill(t, w.Process.Pid, syscall.SIGKILL)
		w.wait()
		worker(t, address(w))
	}

	for name, breaks := range map[string]func(t *testing.T, run string, chief, second *running){
		"worker killed in a step": func(t *testing.T, run string, chief, second *running) {
			chief.says("step:    200 ")
			replace(t, second)
		},
		"worker killed while a checkpoint is written": func(t *testing.T, run string, chief, second *running) {
			chief.await("a checkpoint being written", saving(run))
			replace(t, second)
		},
		"worker killed at the start": func(t *testing.T, run string, chief, second *running) {
			// One that goes before it has a child was not there yet, and is waited for.
			second.child()
			replace(t, second)
		},
		"its TensorFlow killed": func(t *testing.T, run string, chief, second *running) {
			chief.says("step:    200 ")
			kill(t, second.child(), syscall.SIGKILL)
		},
		"its TensorFlow stopped": func(t *testing.T, run string, chief, second *running) {
			chief.says("step:    200 ")
			kill(t, second.child(), syscall.SIGSTOP)
		},
		"worker stopped for longer than the deadline": func(t *testing.T, run string, chief, second *running) {
			chief.says("step:     40 ")
			kill(t, second.child(), syscall.SIGSTOP)
			kill(t, second.Process.Pid, syscall.SIGSTOP)
			chief.says(lost)
			kill(t, second.Process.Pid, syscall.SIGCONT)
		},
	} {
		scenario(name, func(t *testing.T) {
			run := strings.ReplaceAll(name, " ", "-")
			var more []string
			if strings.Contains(name, "stopped") {
				more = short
			}
			chief, _, second := two(t, run, more...)
			breaks(t, run, chief, second)
			chief.exits(fault.ExitDone)
			if log := chief.out.String(); !strings.Contains(log, lost+"\" error=\"worker "+address(second)+": ") {
				t.Errorf("nothing of the lost worker %s:\n%s", address(second), log)
			}
			same(t, run)
		})
	}

	scenario("chief killed", func(t *testing.T) {
		chief, first, second := two(t, "chief")
		chief.says("step:    200 ")
		workers := []*running{first, second}
		children := []int{first.child(), second.child()}
		kill(t, chief.Process.Pid, syscall.SIGKILL)
		for i, w := range workers {
			w.says("listening again")
			w.await("its child's end", func() bool { return errors.Is(syscall.Kill(children[i], 0), syscall.ESRCH) })
		}
		u.start(t, train("chief", "--workers", address(first)+","+address(second))...).exits(fault.ExitDone)
		same(t, "chief")
	})
	scenario("chief stopped for longer than the deadline", func(t *testing.T) {
		chief, first, second := two(t, "paused", append(short, "--max-restarts", "1")...)
		chief.says("step:    200 ")
		kill(t, chief.Process.Pid, syscall.SIGSTOP)
		first.says("listening again")
		second.says("listening again")
		kill(t, chief.Process.Pid, syscall.SIGCONT)
		chief.exits(fault.ExitDone)
		if log := chief.out.String(); !strings.Contains(log, "the chief itself did not run for ") || strings.Contains(log, lost) || strings.Contains(log, "can they reach each other") {
			t.Errorf("the workers are blamed:\n%s", log)
		}
		same(t, "paused")
	})
	scenario("stopped by a signal", func(t *testing.T) {
		chief, first, second := two(t, "stopped")
		chief.says("step:     40 ")
		kill(t, chief.Process.Pid, syscall.SIGTERM)
		chief.exits(fault.ExitStopped)
		u.start(t, train("stopped", "--workers", address(first)+","+address(second))...).exits(fault.ExitDone)
		same(t, "stopped")
	})
	scenario("goes on with other devices", func(t *testing.T) {
		chief, _, _ := two(t, "devices")
		chief.says("step:     40 ")
		kill(t, chief.Process.Pid, syscall.SIGTERM)
		chief.exits(fault.ExitStopped)
		chief = u.start(t, train("devices", "--devices", "cpu:3", "--shard-optimizer")...)
		chief.exits(fault.ExitDone)
		if log := chief.out.String(); !strings.Contains(log, "restored from checkpoint") || !strings.Contains(log, "step:    360 ") {
			t.Errorf("the run did not go on:\n%s", log)
		}
	})
	scenario("a worker gone for good", func(t *testing.T) {
		chief, _, second := two(t, "gone", short...)
		chief.says("step:     40 ")
		kill(t, second.Process.Pid, syscall.SIGKILL)
		chief.exits(fault.ExitFailed)
		if log := chief.out.String(); !strings.Contains(log, "gorbit: worker "+address(second)+": connect: after 5s") {
			t.Errorf("the last words are not of the worker:\n%s", log)
		}
	})
	scenario("elastic", func(t *testing.T) {
		chief, _, second := two(t, "elastic", append(without, "--elastic", "--worker-timeout", "5s")...)
		chief.says("step:    200 ")
		kill(t, second.Process.Pid, syscall.SIGKILL)
		chief.exits(fault.ExitDone)
		if log := chief.out.String(); !strings.Contains(log, "going on without workers that did not come back") || !strings.Contains(log, "restored from checkpoint") {
			t.Errorf("nothing of the worker left behind, or of the checkpoint:\n%s", log)
		}
		near(t, "elastic")
	})
	scenario("a worker without its devices", func(t *testing.T) {
		first, second := worker(t, "127.0.0.1:0"), worker(t, "127.0.0.1:0", "--devices", "gpu:250")
		fails(t, u.start(t, train("none", "--workers", address(first)+","+address(second))...), address(second), "devices gpu:250 were asked for")
		second.says("listening again")
	})
	scenario("a worker of another TensorFlow", func(t *testing.T) {
		first, second := worker(t, "127.0.0.1:0"), worker(t, "127.0.0.1:0")
		between := clustertest.Greet(t, address(second), func(hello map[string]any) { hello["tensorflow"] = "1.15.0" })
		chief := u.start(t, train("none", "--workers", address(first)+","+between)...)
		fails(t, chief, between, fmt.Sprintf("the chief has TensorFlow %q, the worker %q", tf.Version(), "1.15.0"))
	})
	scenario("a worker whose TensorFlow has no gRPC server", func(t *testing.T) {
		first := worker(t, "127.0.0.1:0")
		cmd := u.command("gorbit", "worker", "--listen", "127.0.0.1:0", "--threads", "1")
		cmd.Env = append(cmd.Env, preload(t, withoutGRPC))
		second := begin(t, cmd)
		second.says("listening on ")
		chief := u.start(t, train("none", append(short, "--workers", address(first)+","+address(second))...)...)
		fails(t, chief, address(second), "TensorFlow has no gRPC server here (No server factory registered")
		second.says("listening again")
	})
	// inCluster trains on two machines that TF_CONFIG names.
	inCluster := func(t *testing.T, run string, more [2][]string) {
		t.Helper()
		addresses := freeAddresses(t, 2)
		var all []*running
		for i := range addresses {
			cmd := u.command("gorbit", train(run, more[i]...)...)
			cmd.Env = append(cmd.Env, fmt.Sprintf(`TF_CONFIG={"cluster": {"worker": [%q, %q]}, "task": {"type": "worker", "index": %d}}`, addresses[0], addresses[1], i))
			all = append(all, begin(t, cmd))
		}
		for _, r := range all {
			r.exits(fault.ExitDone)
		}
	}
	scenario("TF_CONFIG", func(t *testing.T) {
		inCluster(t, "tfconfig", [2][]string{})
		same(t, "tfconfig")
	})

	scenario("TF_CONFIG without its first machine", func(t *testing.T) {
		addresses := freeAddresses(t, 2)
		cmd := u.command("gorbit", train("nobody", short...)...)
		cmd.Env = append(cmd.Env, fmt.Sprintf(`TF_CONFIG={"cluster": {"worker": [%q, %q]}, "task": {"type": "worker", "index": 1}}`, addresses[0], addresses[1]))
		r := begin(t, cmd)
		r.exits(fault.ExitFailed)
		for _, want := range []string{`msg="waiting for the chief to connect" chief=` + addresses[0], "gorbit: chief " + addresses[0] + ": no answer for ", "start the first process of TF_CONFIG there"} {
			if log := r.out.String(); !strings.Contains(log, want) {
				t.Errorf("not said: %s\n%s", want, log)
			}
		}
	})

	scenario("local input", func(t *testing.T) {
		chief, _, _ := two(t, "local", "--input", "local")
		chief.exits(fault.ExitDone)
		want, wantMetrics := u.state("local", steps)

		chief, _, second := two(t, "local-killed", "--input", "local")
		chief.says("step:    200 ")
		replace(t, second)
		chief.exits(fault.ExitDone)
		if log := chief.out.String(); !strings.Contains(log, lost) || !strings.Contains(log, address(second)) {
			t.Errorf("nothing of the lost worker %s:\n%s", address(second), log)
		}
		alike(t, "local-killed", want, wantMetrics)

		chief, _, second = two(t, "local-elastic", append(without, "--input", "local", "--elastic", "--worker-timeout", "5s")...)
		chief.says("step:    200 ")
		kill(t, second.Process.Pid, syscall.SIGKILL)
		chief.exits(fault.ExitDone)
		near(t, "local-elastic")

		// Every machine has the data where it says.
		if err := os.CopyFS(filepath.Join(u.dir, "copied"), os.DirFS(filepath.Join(u.dir, "data"))); err != nil {
			t.Fatal(err)
		}
		inCluster(t, "local-tfconfig", [2][]string{{"--input", "local"}, {"--input", "local", "--data", "copied"}})
		alike(t, "local-tfconfig", want, wantMetrics)

		first := worker(t, "127.0.0.1:0")
		second = worker(t, "127.0.0.1:0", "--data", "nowhere")
		chief = u.start(t, train("local-nowhere", "--input", "local", "--workers", address(first)+","+address(second))...)
		fails(t, chief, address(second), "there is no file "+filepath.Join(u.dir, "nowhere"))
	})

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	babbling, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer babbling.Close()
	go func() {
		for {
			conn, err := babbling.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			conn.Close()
		}
	}()
	for name, test := range map[string]struct{ address, says string }{
		"nobody listens":     {"127.0.0.1:1", "nothing listens there"},
		"no such host":       {"nobody.invalid:2222", "check the host's name"},
		"a silent port":      {silent.Addr().String(), "nothing was heard from it"},
		"another protocol":   {babbling.Addr().String(), "is not gorbit worker's protocol"},
		"not an address":     {"localhost", `"localhost" is not of the form host:port`},
		"no port":            {"localhost:0", `"localhost:0" is not of the form host:port`},
		"the same two times": {"a:1,a:1", "a:1 is named twice"},
	} {
		t.Run(name, func(t *testing.T) {
			code := fault.ExitFailed
			if strings.Contains(test.says, "form") || strings.Contains(test.says, "twice") {
				code = fault.ExitUsage
			}
			chief := u.start(t, train("nobody", append(short, "--workers", test.address)...)...)
			chief.exits(code)
			lines := strings.Split(strings.TrimSpace(chief.out.String()), "\n")
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, "gorbit: ") || !strings.Contains(last, test.says) {
				t.Errorf("the last words are %q, want %q", last, test.says)
			}
		})
	}
}

// withoutGRPC has TensorFlow look for a server that it does not have, whichever is asked
// for.
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

// freeAddresses returns addresses of this machine at which nobody listens.
func freeAddresses(t testing.TB, n int) (addresses []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, l.Addr().String())
		l.Close()
	}
	return addresses
}
