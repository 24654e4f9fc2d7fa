package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestLookingAtRuns runs the commands of docs/guide/report.md on runs that are kept for it, and
// compares what they print with the page.
func TestLookingAtRuns(t *testing.T) {
	u := newUser(t)
	if err := os.CopyFS(filepath.Join(u.dir, "runs"), os.DirFS(filepath.Join(testkit.Root(), "cmd/gorbit/testdata/report/runs"))); err != nil {
		t.Fatal(err)
	}
	turns := transcript(t, "docs/guide/report.md")
	if len(turns) != 3 {
		t.Fatalf("the page has %d commands behind a prompt; expected 3", len(turns))
	}
	for _, turn := range turns {
		cmd := u.command("/bin/sh", "-c", turn.command)
		cmd.Env = append(cmd.Env, "PATH="+u.bin+":"+os.Getenv("PATH"))
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", turn.command, err, out)
		}
		if want := strings.Join(turn.output, "\n"); unindented(string(out)) != unindented(want) {
			t.Errorf("%s prints\n%s\nbut the page has\n%s", turn.command, out, want)
		}
	}
	page, err := os.ReadFile(filepath.Join(u.dir, "compare.html"))
	if err != nil || !strings.Contains(string(page), "optimizer.learning_rate") {
		t.Errorf("the page: %v, %d bytes", err, len(page))
	}
	for command, want := range map[string]string{
		"gorbit runs runs/none":                "no such file or directory",
		"gorbit runs . --sort nothing":         "expected name, state, steps, time, written, best, or a metric of the evaluations: accuracy, f1, loss",
		"gorbit report":                        "0 run folders are given; expected 1 to 8",
		"gorbit report runs":                   "runs is not a run folder: it has no params.yaml, which gorbit train writes",
		"gorbit report runs/a --out runs":      "--out is runs, which is a folder",
		"gorbit watch runs/a --metric bleu":    `the run has no metric "bleu"; expected accuracy, f1, gradient_norm`,
		"gorbit watch gs://bucket/run":         "expected a folder of this machine",
		"gorbit runs runs --sort loss --json":  `"metric": "loss"`,
		"gorbit watch runs/a --follow":         "train step 10: accuracy ",
		"gorbit watch runs/sub/stopped":        "stopped  step 50 of 1490",
		"gorbit report runs/a --out - | wc -c": "",
	} {
		cmd := u.command("/bin/sh", "-c", command)
		cmd.Env = append(cmd.Env, "PATH="+u.bin+":"+os.Getenv("PATH"))
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), want) { // some fail, as they should
			t.Errorf("%s prints\n%s\nexpected %s", command, out, want)
		}
	}
}

// unindented returns a text without the spaces around its lines.
func unindented(text string) string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
