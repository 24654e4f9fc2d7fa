package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

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
