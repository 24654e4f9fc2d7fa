package main

import (
	"net"
	"os"
	"os/exec"
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

// TestWorkerTakesGPUs starts workers without --devices: without GPUs, with two, and with one that TensorFlow's
// kernels do not run on.
func TestWorkerTakesGPUs(t *testing.T) {
	for with, environment := range map[string][]string{
		"cpu:1": {"CUDA_VISIBLE_DEVICES=-1"},
		"gpu":   testkit.Driver(t, true, 90, 90),
	} {
		cmd := testkit.Command(t, "gorbit", "worker", "--listen", "127.0.0.1:0")
		cmd.Env = append(os.Environ(), environment...)
		begin(t, cmd).says(" with " + with + "\n")
	}
	cmd := testkit.Command(t, "gorbit", "worker", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), testkit.Driver(t, true, 90, 120)...)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "gorbit: GPU GPU-1 has compute capability 12.0") || !strings.Contains(string(out), "CUDA_VISIBLE_DEVICES") {
		t.Errorf("a GPU without kernels: %v\n%s", err, out)
	}
}

// TestTPUWorkerWhosePortIsTaken starts a TPU's server at a port at which another listens.
func TestTPUWorkerWhosePortIsTaken(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	cmd := testkit.Command(t, "gorbit", "worker", "--tpu", "--listen", other.Addr().String())
	cmd.Env = append(os.Environ(), "GCE_METADATA_HOST=127.0.0.1:1")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"TPU_MESH_CONTROLLER_ADDRESS, are left as they are", "address already in use; if a server for TPUs listens there already"} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, want %s:\n%s", err, want, out)
		}
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
