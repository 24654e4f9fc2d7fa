package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/gcs/gcstest"
)

var stops = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// TestSecondSignal sends every pair of signals.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	for _, first := range stops {
		for _, second := range stops {
			ctx, cancel := context.WithCancelCause(t.Context())
			signals, exited := make(chan os.Signal), make(chan int)
			var log bytes.Buffer
			go stopOn(signals, func() string { return "stopping" }, &log, cancel, func(code int) { exited <- code })
			signals <- first
			<-ctx.Done()
			if cause := context.Cause(ctx); cause.Error() != first.String() || !errors.Is(cause, fault.Stopped) {
				t.Errorf("%v: the cause is %q", first, cause)
			}
			signals <- second
			if code := <-exited; code != fault.ExitFailed {
				t.Errorf("%v, %v: exit code %d, want %d", first, second, code, fault.ExitFailed)
			}
			if want := fmt.Sprintf("gorbit: %v: stopping; a second signal stops at once\n", first); log.String() != want {
				t.Errorf("said %q, want %q", &log, want)
			}
		}
	}
}

// TestNohup launches a training with a worker, with SIGHUP ignored from the start as under nohup.
// The training process starts itself again for oneDNN. All processes must keep ignoring SIGHUP.
func TestNohup(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.fixture(100)
	plan := fmt.Sprintf("strategy: multiworker\nhosts: [{address: %q, devices: cpu, threads: 1}]\n", freeAddresses(t, 1)[0])
	if err := os.WriteFile(filepath.Join(u.dir, "hosts.yaml"), []byte(plan), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := u.command("/bin/sh", "-c", `trap "" HUP; exec "$@"`, "sh", filepath.Join(u.bin, "gorbit"), "launch", "--config", "hosts.yaml", "--",
		"--graph", "graph", "--data", "data", "--run", "run", "--steps", "100", "--batch-size", "13", "--steps-per-loop", "10",
		"--eval-interval", "-2", "--set", "runtime.onednn=off")
	r := begin(t, cmd)
	t.Cleanup(func() { gone(t, "") })
	r.says("step:     10 ")
	all := marked(t)
	var kinds []string
	for pid, arguments := range all {
		for _, kind := range []string{"launch", "worker", "--child", "train"} {
			if slices.Contains(arguments, kind) {
				kinds = append(kinds, kind)
			}
		}
		if !ignores(t, pid, syscall.SIGHUP) {
			t.Errorf("%v does not ignore SIGHUP", arguments)
		}
	}
	slices.Sort(kinds)
	if want := []string{"--child", "launch", "train", "worker", "worker"}; !slices.Equal(kinds, want) {
		t.Fatalf("the processes are %v, want %v: %v", kinds, want, all)
	}
	for pid := range all {
		syscall.Kill(pid, syscall.SIGHUP) // fails if the process has ended already
	}
	r.exits(fault.ExitDone)
	if said := r.out.String(); strings.Contains(said, "hangup") || !strings.Contains(said, "step:    100 ") {
		t.Errorf("the run did not continue to its end:\n%s", said)
	}
}

// ignores reports whether a process ignores a signal.
func ignores(t *testing.T, pid int, signal syscall.Signal) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nSigIgn:")
	mask, err := strconv.ParseUint(strings.Fields(rest)[0], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return mask&(1<<(signal-1)) != 0
}

// TestSecondSignalWhileBlocked stops a training that is blocked in a TensorFlow call, by signals that are not
// ignored, as SIGHUP is where the test runs under nohup.
func TestSecondSignalWhileBlocked(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.fixture(100)
	worker := u.start(t, "worker", "--listen", "127.0.0.1:0", "--threads", "1")
	worker.says("listening on ")
	_, rest, _ := strings.Cut(worker.out.String(), "listening on ")
	heeded := slices.DeleteFunc(slices.Clone(stops), func(s syscall.Signal) bool { return signal.Ignored(s) })
	for i, second := range heeded {
		chief := u.start(t, "train", "--graph", "graph", "--data", "data", "--run", fmt.Sprint("run", i), "--steps", "1000000", "--batch-size", "13",
			"--steps-per-loop", "10", "--eval-interval", "-2", "--strategy", "multiworker", "--workers", strings.Fields(rest)[0], "--worker-timeout", "1h")
		chief.says("step:     10 ")
		child := worker.child()
		if err := syscall.Kill(child, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		first := heeded[(i+1)%len(heeded)]
		chief.Process.Signal(first)
		chief.says("saving and stopping within a step; a second signal stops at once")
		chief.Process.Signal(second)
		chief.exits(fault.ExitFailed)
		syscall.Kill(child, syscall.SIGKILL)
		worker.says("listening again")
		worker.out.reset()
	}
}

// TestStopWhileReading stops commands that wait for input, or whose input never ends.
func TestStopWhileReading(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.fixture(100)
	u.run("gorbit", "train", "--graph", "graph", "--data", "data", "--run", "run", "--steps", "1", "--eval-interval", "-2")
	pipe := filepath.Join(u.dir, "pipe.tsv")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	convert := []string{"convert", "--vocab", "vocab.txt", "--train", "pipe.tsv", "--text-column", "text", "--label-column", "label", "--labels", "bad,good", "--out", "piped"}
	const header = "label\ttext\n"
	for _, test := range []struct {
		name    string
		args    []string
		stdin   bool
		endless bool
	}{
		{"predict from standard input", []string{"predict", "--run", "run", "--file", "-"}, true, false},
		{"predict from a pipe", []string{"predict", "--run", "run", "--file", "pipe.tsv"}, false, false},
		{"predict without end", []string{"predict", "--run", "run", "--file", "pipe.tsv"}, false, true},
		{"convert from a pipe", convert, false, false},
		{"convert without end", convert, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := u.command("gorbit", test.args...)
			var w *os.File
			if test.stdin {
				in, out, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer in.Close()
				cmd.Stdin, w = in, out
			}
			r := begin(t, cmd)
			if w == nil {
				var err error
				if w, err = os.OpenFile(pipe, os.O_WRONLY, 0); err != nil { // once it is opened for reading
					t.Fatal(err)
				}
			}
			defer w.Close()
			// This is more than a pipe holds: once it is written, the process is reading.
			if _, err := io.WriteString(w, header+strings.Repeat("good\ta fine film\n", 20_000)); err != nil {
				t.Fatal(err)
			}
			if test.endless {
				go func() {
					for err := error(nil); err == nil; {
						_, err = io.WriteString(w, "bad\ta dull film\n")
					}
				}()
			}
			r.Process.Signal(syscall.SIGTERM)
			r.exits(fault.ExitStopped)
			if want := "gorbit: terminated: stopping; a second signal stops at once\n"; !strings.Contains(r.out.String(), want) {
				t.Errorf("no message %q", want)
			}
			// An incomplete dataset must leave nothing behind.
			if left, _ := filepath.Glob(filepath.Join(u.dir, "*piped*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestKilledAtTheEndOfAnUpload kills a conversion into a bucket before it gives its lease back. The same
// command says that all is there, and removes the lease.
func TestKilledAtTheEndOfAnUpload(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	bucket := gcstest.NewServer("b")
	defer bucket.Close()
	convert := func() (*exec.Cmd, *bytes.Buffer) {
		cmd := u.command("gorbit", "convert", "--vocab", filepath.Join(given, "vocab.txt"), "--train", filepath.Join(given, "train.tsv"), "--text-column", "text", "--label-column", "label", "--out", "gs://b/data")
		cmd.Env = append(cmd.Env, "STORAGE_EMULATOR_HOST="+bucket.URL, gcs.CacheVariable+"="+filepath.Join(u.dir, "cache"))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		return cmd, &stderr
	}
	killed, _ := convert()
	bucket.Fail(func(r *http.Request) *gcstest.Fault {
		if r.Method != http.MethodDelete {
			return nil
		}
		_ = killed.Process.Kill() // Run says whether it was
		return &gcstest.Fault{Status: http.StatusBadRequest}
	})
	if err := killed.Run(); killed.ProcessState == nil || killed.ProcessState.ExitCode() != -1 {
		t.Fatalf("the process was not killed: %v", err)
	}
	bucket.Fail(nil)
	const lease = "data/.gorbit-lease"
	if state := bucket.State(); state[lease].Data == nil || state["data/manifest.json"].Data == nil {
		t.Fatal("the process was not killed between its last file and its lease")
	}
	again, stderr := convert()
	if err := again.Run(); again.ProcessState == nil || again.ProcessState.ExitCode() != fault.ExitUsage || !strings.Contains(stderr.String(), "gs://b/data already has a dataset") {
		t.Errorf("the same command: %v\n%s", err, stderr)
	}
	if bucket.State()[lease].Data != nil {
		t.Error("the lease is still there")
	}
}
