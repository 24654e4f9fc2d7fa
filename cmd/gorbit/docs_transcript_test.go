package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// turn is a command of a transcript and the output that the page shows.
type turn struct {
	command string
	output  []string
}

// transcript returns the commands of a page that stand behind a prompt, in order.
func transcript(t *testing.T, page string) []turn {
	t.Helper()
	var turns []turn
	for _, d := range documents(t) {
		if d.name != page {
			continue
		}
		for _, b := range d.blocks() {
			if !strings.HasPrefix(strings.TrimSpace(b.text), "$ ") {
				continue
			}
			for _, line := range strings.Split(strings.Trim(b.text, "\n"), "\n") {
				line = strings.TrimPrefix(line, "    ")
				if command, ok := strings.CutPrefix(line, "$ "); ok {
					turns = append(turns, turn{command: command})
				} else {
					last := &turns[len(turns)-1]
					last.output = append(last.output, line)
				}
			}
		}
	}
	return turns
}

// compare compares what a command printed with the page, numbers aside.
func (s turn) compare(t *testing.T, out string) {
	t.Helper()
	printed := map[string]bool{}
	for line := range strings.Lines(out) {
		printed[aside(line)] = true
	}
	for _, line := range s.output {
		if line != "..." && !printed[aside(line)] {
			t.Errorf("%s does not print\n%s\nbut\n%s", s.command, line, out)
		}
	}
}

// aside returns a line without what differs from run to run: its numbers, their units and width, and
// the share of the machine's peak, which is not known where the cores were busy.
func aside(line string) string {
	line = regexp.MustCompile(`, [\d.]+ % of the machine's peak \(MFU\)`).ReplaceAllString(line, "")
	line = regexp.MustCompile(`\d+(:\d\d)+`).ReplaceAllString(line, "# s")
	line = regexp.MustCompile(`\d+(,\d{3})*(\.\d+)?(e[-+]?\d+)?`).ReplaceAllString(line, "#")
	line = regexp.MustCompile(`# [kMGT]?(B|FLOP/s)\b`).ReplaceAllString(line, "# $1")
	return strings.Join(strings.Fields(line), " ")
}

// TestYourOwnModel runs the commands of docs/guide/your-own-model.md and compares what they print
// with the page, numbers aside. The files that the page shows must be those of the example.
func TestYourOwnModel(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("trains a model")
	}
	const page = "docs/guide/your-own-model.md"
	u := newUser(t)
	for _, name := range []string{"examples", ".cache"} {
		if err := os.Symlink(filepath.Join(testkit.Root(), name), filepath.Join(u.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	python := filepath.Join(u.dir, ".venv/bin/python")
	if err := os.MkdirAll(filepath.Dir(python), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(python, []byte(`#!/bin/sh
exec "$PYTHON" "$@"
`), 0o777); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + u.bin + ":" + os.Getenv("PATH"), "PYTHON=" + testkit.Python(t), "WARM=" + filepath.Join(testkit.Root(), "tools", "warm_python.py"),
		"PYTHONPATH=" + filepath.Join(testkit.Root(), "tools"), "TF_CPP_MIN_LOG_LEVEL=2"}
	var accuracy, digits string
	turns := transcript(t, page)
	if len(turns) < 8 {
		t.Fatalf("%s has %d commands behind a prompt; expected 8 or more", page, len(turns))
	}
	for i, turn := range turns {
		cmd := u.command("/bin/bash", "-c", "set -o pipefail; "+turn.command)
		cmd.Env = append(cmd.Env, env...)
		var out, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if err := cmd.Run(); err != nil {
			if _, isExit := err.(*exec.ExitError); isExit && i == 0 && strings.Contains(stderr.String(), "pip could not download") {
				t.Skipf("the digits cannot be fetched: %s", stderr.String())
			}
			t.Fatalf("%s: %v\n%s%s", turn.command, err, &out, &stderr)
		}
		turn.compare(t, out.String())
		if strings.Contains(turn.command, "ask.py --model") {
			digits = out.String()
		}
		if strings.HasPrefix(turn.command, "gorbit evaluate ") {
			if m := regexp.MustCompile(`'accuracy': ([\d.]+)`).FindStringSubmatch(out.String()); m != nil {
				accuracy = m[1]
			}
		}
	}
	if a, err := strconv.ParseFloat(accuracy, 64); err != nil || a < 0.95 {
		t.Errorf("the accuracy is %q; expected 0.95 or more", accuracy)
	}
	if got := askServer(t, u, env); got != digits {
		t.Errorf("gorbit serve reads\n%s\nand TensorFlow\n%s", got, digits)
	}
	shown, err := os.ReadFile(filepath.Join(testkit.Root(), page))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"schema.yaml", "model.py"} {
		path := filepath.Join("examples/digits", name)
		content, err := os.ReadFile(filepath.Join(testkit.Root(), path))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(shown), "# "+path+"\n"+string(content)+"```") {
			t.Errorf("%s does not show %s as it is", page, path)
		}
	}
}

// askServer returns what the page's ask.py prints when gorbit serve answers. The server has a port of its
// own instead of the page's.
func askServer(t *testing.T, u *user, env []string) string {
	t.Helper()
	server := u.command(filepath.Join(u.bin, "gorbit"), "serve", "served/digits", "--listen", "127.0.0.1:0")
	server.Stderr = new(bytes.Buffer)
	lines, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Signal(os.Interrupt)
	line, err := bufio.NewReader(lines).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("gorbit serve printed %q, %v\n%s", line, err, server.Stderr)
	}
	ask := u.command("/bin/bash", "-c", ".venv/bin/python examples/digits/ask.py --url "+url+"/v1/models/digits:predict --table digits/dev.csv")
	ask.Env = append(ask.Env, env...)
	out, err := ask.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
