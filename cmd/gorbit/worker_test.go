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
	return "LD_PRELOAD=" + testkit.Library(t, "preload.so", source)
}

// TestWorkerTakesGPUs starts workers without --devices: without GPUs, and with a driver that reports two
// and a TensorFlow that says that it was built with CUDA.
func TestWorkerTakesGPUs(t *testing.T) {
	driver := testkit.Library(t, "libcuda.so.1", "int cuInit(unsigned flags) { return 0; }\nint cuDeviceGetCount(int *n) { *n = 2; return 0; }\n")
	built := preload(t, "int _ZN10tensorflow19IsGoogleCudaEnabledEv(void) { return 1; }\n")
	for with, environment := range map[string][]string{
		"cpu:1": {"CUDA_VISIBLE_DEVICES=-1"},
		"gpu":   {built, "LD_LIBRARY_PATH=" + filepath.Dir(driver)},
	} {
		cmd := testkit.Command(t, "gorbit", "worker", "--listen", "127.0.0.1:0")
		cmd.Env = append(os.Environ(), environment...)
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
