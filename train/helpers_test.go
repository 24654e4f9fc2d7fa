package train

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/internal/testkit/records"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/params"
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

// writeExamples writes a file of n records.
func writeExamples(t testing.TB, path string, n int, example func(i int) []tfrecord.Feature) {
	t.Helper()
	records.WriteFile(t, path, n, func(i int) []byte {
		record, err := tfrecord.AppendExample(nil, example(i)...)
		if err != nil {
			t.Fatal(err)
		}
		return record
	})
}

// stoppedEndsAsAnother stops a run after some steps, where it must save, and continues it. It must end as
// one that was not stopped, whose folder is returned as well.
func stoppedEndsAsAnother(t *testing.T, p params.Params, at ...int64) (run, whole string) {
	t.Helper()
	run, whole = filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "whole")
	mustTrain(t, p, whole)
	for _, step := range at {
		stopAt(t, p, run, step)
		if _, saved := final(t, run); saved != step {
			t.Errorf("stopped at step %d, saved step %d", step, saved)
		}
	}
	mustTrain(t, p, run)
	sameRuns(t, run, whole)
	return run, whole
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
