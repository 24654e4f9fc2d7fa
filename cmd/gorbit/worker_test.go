package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/version"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestWorker starts the worker command, connects to it, and stops it with SIGINT as a terminal
// does.
func TestWorker(t *testing.T) {
	t.Parallel()
	cmd := testkit.Command(t, "gorbit", "worker", "--listen", "127.0.0.1:0", "--devices", "cpu:2", "--threads", "1")
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, found := strings.CutPrefix(line, "listening on ")
	address, rest, _ := strings.Cut(address, " ")
	if !found || rest != "with cpu:2\n" {
		t.Fatalf("printed %q", line)
	}
	listed, err := testkit.Command(t, "gorbit", "devices", "--workers", address).Output()
	if err != nil || strings.Count(string(listed), address) != 2 || !strings.Contains(string(listed), cluster.GroupLeader+"/device:CPU:1") {
		t.Errorf("gorbit devices --workers: %v\n%s", err, listed)
	}
	f, err := cluster.Connect(t.Context(), cluster.Config{Addresses: []string{address}, Timeout: time.Minute, Version: version.String()})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{cluster.GroupLeader + "/device:CPU:0", cluster.GroupLeader + "/device:CPU:1"}
	if got := f.Workers()[0].Devices; !slices.Equal(got, want) {
		t.Errorf("devices %v, want %v", got, want)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("printed %q too (%v)", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &log)
	}
	if !strings.Contains(log.String(), "TensorFlow's gRPC has no authentication") {
		t.Errorf("no warning about security:\n%s", &log)
	}
}

// preload compiles a library and returns the setting of the environment that makes a program load
// it before its own libraries.
func preload(t *testing.T, source string) string {
	t.Helper()
	library := filepath.Join(t.TempDir(), "preload.so")
	cc := testkit.Command(t, "cc", "-x", "c", "-shared", "-fPIC", "-o", library, "-", "-ldl")
	cc.Stdin = strings.NewReader(source)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return "LD_PRELOAD=" + library
}

// TestWorkerTakesGPUs starts workers without --devices, on this machine and with a CUDA library
// that reports two GPUs.
func TestWorkerTakesGPUs(t *testing.T) {
	cuda := preload(t, "int cuInit(unsigned flags) { return 0; }\nint cuDeviceGetCount(int *n) { *n = 2; return 0; }\n")
	for with, variable := range map[string]string{"cpu:1": "CUDA_VISIBLE_DEVICES=-1", "gpu": cuda} {
		cmd := testkit.Command(t, "gorbit", "worker", "--listen", "127.0.0.1:0")
		cmd.Env = append(os.Environ(), variable)
		begin(t, cmd).says(" with " + with + "\n")
	}
}

func TestWorkerUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"expected cpu, gpu, cpu:N or gpu:N":     {"--devices", "cpus"},
		"a TPU is not a device of this machine": {"--devices", "tpu"},
		"expected HOST:PORT":                    {"--listen", "localhost"},
		"number of threads is -1":               {"--threads", "-1"},
		"unexpected argument":                   {"127.0.0.1:2222"},
		"--sockets is empty":                    {"--sockets", ""},
		"sockets are for one machine":           {"--sockets", "/tmp", "--token-file", "t"},
		"leave it out: a TPU's server":          {"--sockets", "/tmp", "--tpu"},
		"run chmod 700 .":                       {"--sockets", "."},
	} {
		out, err := testkit.Command(t, "gorbit", append([]string{"worker"}, args...)...).CombinedOutput()
		exit, ok := err.(*exec.ExitError)
		if !ok || exit.ExitCode() != fault.ExitUsage || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v, want %d and %s:\n%s", args, err, fault.ExitUsage, want, out)
		}
	}
}
