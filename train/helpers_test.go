package train

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/task"
)

// classifier is the task of a classifier of two labels.
var classifier = task.New(classifierContract, nil)

var classifierContract = &graphs.Contract{
	Task: task.Classification, Best: graphs.Best{Metric: "accuracy", Better: graphs.Higher}}

// long skips a test that computes for long where tests must be short.
func long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("computes for long")
	}
}

func writeFile[T string | []byte](t testing.TB, path string, content T) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}

func copyFolder(t testing.TB, to, from string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// metricsLine is a line of a run's metrics.jsonl.
type metricsLine struct {
	Phase   string
	Step    int64
	Outputs map[string]float64
}

// evaluations returns the evaluations in a run's metrics.jsonl.
func evaluations(t testing.TB, run string) []metricsLine {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(run, runfolder.Metrics))
	if err != nil {
		t.Fatal(err)
	}
	var out []metricsLine
	for line := range strings.Lines(string(content)) {
		var l metricsLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Phase == "eval" {
			out = append(out, l)
		}
	}
	return out
}
