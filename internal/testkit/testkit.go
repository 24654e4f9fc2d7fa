// Package testkit finds what tests need outside their own package: the Python
// environment that tools/setup.sh made, and the real data that may lie beside
// the checkout. It is imported by tests only.
package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Root returns the top folder of the checkout.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Python returns the interpreter of the checkout's environment, which holds
// TensorFlow, TensorBoard and the exporter. Set-up makes it before any test
// runs, so a missing one fails the test.
func Python(t testing.TB) string {
	t.Helper()
	p := filepath.Join(Root(), ".venv", "bin", "python")
	if _, err := os.Stat(p); err != nil {
		t.Fatalf("no Python environment at %s: run make setup", p)
	}
	return p
}

// RunPython runs a Python script, given as source text, with the arguments as
// sys.argv[1:], and returns what it wrote to standard output. It imports this checkout's
// exporter. TensorFlow's own log is kept quiet. A script that fails fails the test with its
// traceback.
func RunPython(t testing.TB, script string, args ...string) string {
	t.Helper()
	cmd := exec.Command(Python(t), append([]string{"-c", script}, args...)...)
	cmd.Env = append(os.Environ(), "TF_CPP_MIN_LOG_LEVEL=3", "CUDA_VISIBLE_DEVICES=-1", "PYTHONPATH="+filepath.Join(Root(), "tools"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python: %v\n%s", err, stderr.String())
	}
	return string(out)
}

// SharedData returns the path of a real data file kept beside the checkout
// (../shared/data), or skips the test, saying so, where it is not there.
func SharedData(t testing.TB, elem ...string) string {
	t.Helper()
	p := filepath.Join(append([]string{filepath.Dir(Root()), "shared", "data"}, elem...)...)
	if _, err := os.Stat(p); err != nil {
		t.Skipf("real data is not beside the checkout: %s", p)
	}
	return p
}
