package testkit

import (
	"path/filepath"
	"strings"
	"testing"
)

// Library compiles a shared library of C in a folder of its own, and returns its path.
func Library(t testing.TB, name, source string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	cc := Command(t, "cc", "-x", "c", "-shared", "-fPIC", "-o", out, "-", "-ldl")
	cc.Stdin = strings.NewReader(source)
	if text, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}
