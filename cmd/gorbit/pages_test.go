package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gorbit-ml/gorbit/internal/app/tracking/trackingtest"
	"github.com/gorbit-ml/gorbit/internal/base/vfs/hubfs/hubtest"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestPages runs the commands of pages by the scripts in testdata/pages. They find the vocabulary, the
// configuration and the weights of a small BERT in $SMALL, its export in $GRAPH, the checkout in $ROOT,
// MLflow at $MLFLOW, a hub to push to, and two addresses to listen on. In addition to the commands of TestScripts
// they have
//
//	follow PAGE                runs what stands after a prompt, and compares the output, numbers aside
//	follow -exact PAGE         the same, numbers included
//	follow PAGE HEADING...     runs the commands without a prompt below these headings
//	instead REGEXP TEXT        replaces a part of the commands of pages from here on
func TestPages(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	tiny(t, u)
	model := strings.Replace(smallModel, `"max_position_embeddings": 32`, `"max_position_embeddings": 64`, 1)
	u.run("gorbit", "train", "--graph", testkit.Export(t, model), "--data", "data/reviews", "--run", "run", "--steps", "1", "--batch-size", "8", "--eval-interval", "-2")
	u.run("gorbit", "export", "--run", "run", "--format", "huggingface", "--out", "small")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/pages",
		Setup: func(env *testscript.Env) error {
			mlflow, hub, addresses := trackingtest.New(), hubtest.New(), freeAddresses(t, 2)
			env.Defer(mlflow.Close)
			env.Defer(hub.Close)
			for name, value := range map[string]string{
				"SMALL": filepath.Join(u.dir, "small"), "GRAPH": testkit.Export(t, model, "--pooling", "mean"), "ROOT": testkit.Root(), "MLFLOW": mlflow.URL, "ADDRESS": addresses[0], "ADDRESS2": addresses[1], "GIVEN": given,
				"HF_ENDPOINT": hub.URL, "HF_TOKEN": hubtest.Token,
				"PATH": u.bin + ":" + env.Getenv("PATH"), "PYTHONPATH": filepath.Join(testkit.Root(), "tools"), "XDG_CACHE_HOME": filepath.Join(env.WorkDir, "cache"),
				"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "CI": "true",
			} {
				env.Setenv(name, value)
			}
			r := &reader{t: t, dir: env.WorkDir, env: env.Vars}
			env.Defer(func() { _ = r.kill() })
			env.Values["reader"] = r
			return os.Symlink(filepath.Join(testkit.Root(), ".venv"), filepath.Join(env.WorkDir, ".venv"))
		},
		Condition: func(name string) (bool, error) {
			data := testkit.Command(t, testkit.Python(t), "examples/digits/data.py", "--out", t.TempDir())
			data.Dir = testkit.Root()
			return data.Run() == nil, nil // the only condition: the digits can be fetched
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": exitCodeIs,
			"listens":  awaitListener,
			"instead": func(ts *testscript.TestScript, _ bool, args []string) {
				r := ts.Value("reader").(*reader)
				r.instead = append(r.instead, replacement{regexp.MustCompile(args[0]), args[1]})
			},
			"follow": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(ts.Value("reader").(*reader).follow(ts.Stdout(), args...))
			},
		},
	})
}

// TestPromptsAreFollowed wants each page that shows what commands print in a script or a test, except
// where a page shows a machine.
func TestPromptsAreFollowed(t *testing.T) {
	var follows strings.Builder
	for _, pattern := range []string{"*_test.go", "testdata/pages/*.txtar"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			follows.Write(text)
		}
	}
	for _, page := range documents(t) {
		prompted := regexp.MustCompile(`(?m)^( {4})?\$ `).MatchString(strings.Join(page.lines, "\n"))
		machines := page.name == "docs/guide/install.md" || page.name == "docs/guide/launch.md"
		if prompted && !machines && !regexp.MustCompile(`(follow(\(.*"| | -exact )|const page = ")`+page.name).MatchString(follows.String()) {
			t.Errorf("nothing runs the commands of %s that stand after a prompt; add them to testdata/pages", page.name)
		}
	}
}

// reader runs the commands of pages one after the other, as one does in a terminal.
type reader struct {
	t       testing.TB
	dir     string
	env     []string
	instead []replacement
	server  *exec.Cmd // what a gorbit serve started, until the page ends or says kill %1
	address string    // of the server, in the place of the page's
}

type replacement struct {
	old *regexp.Regexp
	new string
}

// turn is a command of a page and the output that the page shows.
type turn struct {
	command string
	output  []string
}

// follow runs commands of a page; see TestPages. It writes to out what the last one printed.
func (r *reader) follow(out io.Writer, args ...string) error {
	exact := args[0] == "-exact"
	if exact {
		args = args[1:]
	}
	turns, err := turnsOf(args[0], args[1:])
	if err != nil {
		return err
	}
	var printed string
	for _, turn := range turns {
		if printed, err = r.run(turn.command); err == nil {
			err = turn.compare(printed, exact)
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", args[0], turn.command, err)
		}
	}
	_, err = io.WriteString(out, printed)
	return errors.Join(err, r.kill())
}

// turnsOf returns the commands of a page that stand after a prompt or, if there are headings, those
// without one below these.
func turnsOf(page string, headings []string) ([]turn, error) {
	d, err := readDocument(page)
	if err != nil {
		return nil, err
	}
	var turns []turn
	for _, b := range d.blocks() {
		prompted := strings.HasPrefix(b.text, "$ ")
		if prompted == (len(headings) > 0) || !prompted && !slices.Contains(headings, b.heading) {
			continue
		}
		for line := range strings.Lines(strings.Trim(b.text, "\n")) {
			line = strings.TrimSuffix(line, "\n")
			switch command, ok := strings.CutPrefix(line, "$ "); {
			case ok:
				turns = append(turns, turn{command: command})
			case prompted:
				last := &turns[len(turns)-1]
				last.output = append(last.output, line)
			case commandLine.MatchString(line) || regexp.MustCompile(`^(cp|curl|export|mkdir|time) `).MatchString(line):
				turns = append(turns, turn{command: line})
			}
		}
	}
	if len(turns) == 0 {
		return nil, fmt.Errorf("%s has no such commands %q", page, headings)
	}
	return turns, nil
}

// run runs a command and returns what it printed.
func (r *reader) run(command string) (string, error) {
	for _, i := range r.instead {
		command = i.old.ReplaceAllString(command, i.new)
	}
	if r.server != nil {
		command = strings.ReplaceAll(command, "127.0.0.1:8501", r.address)
	}
	switch {
	case command == "kill %1" && r.server == nil:
		return "", errors.New("nothing runs in the background")
	case command == "kill %1":
		return "", r.kill()
	case strings.HasPrefix(command, "gorbit serve "):
		return r.serve(command)
	}
	cmd := testkit.Command(r.t, "/bin/bash", "-o", "pipefail", "-c", command)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = r.dir, r.env, &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w\n%s%s", err, out, &stderr)
	}
	return string(out), nil
}

// serve starts gorbit serve on a free port instead of the page's, and returns its first line.
func (r *reader) serve(command string) (string, error) {
	command, _, _ = strings.Cut(command, " #")
	cmd := testkit.Command(r.t, "/bin/bash", "-c", "exec "+strings.TrimSuffix(command, "&")+" --listen 127.0.0.1:0")
	var stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = r.dir, r.env, &stderr
	lines, err := cmd.StdoutPipe()
	if err = errors.Join(err, r.kill()); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", err
	}
	r.server = cmd
	line, err := bufio.NewReader(lines).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on http://")
	if err != nil || !ok {
		return "", errors.Join(fmt.Errorf("it printed %q: %w", line, err), r.kill(), errors.New(stderr.String()))
	}
	r.address = address
	return line, nil
}

// kill ends the server, if there is one, which must stop as it should.
func (r *reader) kill() error {
	server := r.server
	if r.server = nil; server == nil {
		return nil
	}
	return errors.Join(server.Process.Signal(os.Interrupt), server.Wait())
}

// compare compares what a command printed with the page.
func (s turn) compare(out string, exact bool) error {
	same := aside
	if exact {
		same = strings.TrimSpace
	}
	printed := map[string]bool{}
	for line := range strings.Lines(out) {
		printed[same(line)] = true
	}
	for _, line := range s.output {
		if line != "..." && !printed[same(line)] {
			return fmt.Errorf("does not print\n%s\nbut\n%s", line, out)
		}
	}
	return nil
}

// aside returns a line without what differs from run to run: addresses, numbers, their units and width,
// and the share of the machine's peak, which is not known where the cores were busy.
func aside(line string) string {
	for _, r := range []struct{ old, new string }{
		{`, [\d.]+ % of the machine's peak \(MFU\)`, ""}, {`https?://[^/\s]+`, "#"}, {`\d+(:\d\d)+`, "# s"},
		{`\d+(,\d{3})*(\.\d+)?(e[-+]?\d+)?`, "#"}, {`# [kMGT]?(B|FLOP/s)\b`, "# $1"},
	} {
		line = regexp.MustCompile(r.old).ReplaceAllString(line, r.new)
	}
	return strings.Join(strings.Fields(line), " ")
}

// curl is the part of curl that the pages use, so that tests do not depend on it: curl [-s] [-d BODY]
// [-H HEADER] URL. Like curl, it prints the body whatever the status is.
func curl() {
	f := flag.NewFlagSet("curl", flag.ExitOnError)
	f.Bool("s", false, "")
	body := f.String("d", "", "")
	header := f.String("H", "", "")
	_ = f.Parse(os.Args[1:]) // which ends the program if it fails
	method := http.MethodGet
	if *body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequest(method, f.Arg(0), strings.NewReader(*body))
	if err == nil {
		if name, value, ok := strings.Cut(*header, ": "); ok {
			r.Header.Set(name, value)
		}
		var response *http.Response
		if response, err = http.DefaultClient.Do(r); err == nil {
			defer response.Body.Close()
			_, err = io.Copy(os.Stdout, response.Body)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "curl:", err)
		os.Exit(1)
	}
}
