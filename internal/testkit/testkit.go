// Package testkit provides what tests need from outside their own package: the Python
// environment made by tools/setup.sh, and real data next to the checkout. Only tests
// import it.
package testkit

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Root returns the root folder of the checkout.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Python returns the interpreter of the checkout's environment, which has TensorFlow,
// TensorBoard and the exporter. If it is missing, the test fails.
func Python(t testing.TB) string {
	t.Helper()
	p := filepath.Join(Root(), ".venv", "bin", "python")
	if _, err := os.Stat(p); err != nil {
		t.Fatalf("no Python environment at %s; run make setup", p)
	}
	return p
}

// SharedData returns the path of a real data file next to the checkout (../shared/data),
// or skips the test if the file does not exist. instead names what is tested without it.
func SharedData(t testing.TB, instead string, elem ...string) string {
	t.Helper()
	p := filepath.Join(append([]string{filepath.Dir(Root()), "shared", "data"}, elem...)...)
	if _, err := os.Stat(p); err != nil {
		t.Skipf("no real data next to the checkout: %s; without it there is %s", p, instead)
	}
	return p
}
