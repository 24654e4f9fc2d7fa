package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// RunPython runs the source text of a Python script with the arguments as sys.argv[1:], and
// returns its standard output. The script imports this checkout's exporter. TensorFlow's own
// log is off. If the script fails, the test fails with its traceback.
func RunPython(t testing.TB, script string, args ...string) string {
	t.Helper()
	cmd := Command(t, Python(t), append([]string{"-c", script}, args...)...)
	cmd.Env = append(os.Environ(), "TF_CPP_MIN_LOG_LEVEL=3", "CUDA_VISIBLE_DEVICES=-1", "PYTHONPATH="+filepath.Join(Root(), "tools"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python: %v\n%s", err, stderr.String())
	}
	return string(out)
}
