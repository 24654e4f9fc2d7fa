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
	"strings"
	"testing"
)

// terminal runs the commands of pages one after the other, as a reader does in one terminal.
type terminal struct {
	u   *user
	env []string
	// addresses are those of a page and of what stands in for them here.
	addresses map[string]string
	// server is what a command that ends with & started, until kill %1.
	server *exec.Cmd
}

// follow runs the commands of a page that stand behind a prompt and compares what they print.
func (e *terminal) follow(t *testing.T, page string, atLeast int) {
	t.Helper()
	turns := transcript(t, page)
	if len(turns) < atLeast {
		t.Fatalf("%s has %d commands behind a prompt; expected %d or more", page, len(turns), atLeast)
	}
	for _, turn := range turns {
		turn.compare(t, e.run(t, turn.command))
	}
	if e.server != nil {
		t.Errorf("%s does not end its server with kill %%1", page)
		e.kill(t)
	}
}

// run runs a command and returns what it printed, with the page's addresses in it.
func (e *terminal) run(t *testing.T, command string) string {
	t.Helper()
	if command == "kill %1" {
		e.kill(t)
		return ""
	}
	background, ok := strings.CutSuffix(command, " &")
	if ok {
		return e.serve(t, background)
	}
	here, there := []string{}, []string{}
	for page, address := range e.addresses {
		here, there = append(here, page, address), append(there, address, page)
	}
	var stderr bytes.Buffer
	cmd := e.u.command("/bin/bash", "-c", "set -o pipefail; "+strings.NewReplacer(here...).Replace(command))
	cmd.Env = append(cmd.Env, e.env...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", command, err, out, &stderr)
	}
	return strings.NewReplacer(there...).Replace(string(out))
}

// serve starts gorbit serve on a free port instead of the page's, and returns its first line.
func (e *terminal) serve(t *testing.T, command string) string {
	t.Helper()
	const port = "127.0.0.1:8501"
	if e.server != nil || !strings.HasPrefix(command, "gorbit serve ") {
		t.Fatalf("%s &: only one gorbit serve at a time runs in the background", command)
	}
	var stderr bytes.Buffer
	server := e.u.command("/bin/bash", "-c", `exec "$0/"`+command+" --listen 127.0.0.1:0", e.u.bin)
	server.Env = append(server.Env, e.env...)
	server.Stderr = &stderr
	lines, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill() }) // it has ended, unless the test failed
	line, err := bufio.NewReader(lines).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on http://")
	if err != nil || !ok {
		t.Fatalf("%s printed %q, %v\n%s", command, line, err, &stderr)
	}
	e.addresses[port], e.server = address, server
	return strings.ReplaceAll(line, address, port)
}

// kill ends the server, which must stop as it should.
func (e *terminal) kill(t *testing.T) {
	t.Helper()
	if e.server == nil {
		t.Fatal("kill %1: nothing runs in the background")
	}
	err := e.server.Process.Signal(os.Interrupt)
	if err = errors.Join(err, e.server.Wait()); err != nil {
		t.Errorf("kill %%1: %v\n%s", err, e.server.Stderr)
	}
	e.server = nil
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
