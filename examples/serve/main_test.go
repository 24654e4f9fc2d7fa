package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// TestServe builds the server, asks it, and ends it.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	script, err := os.ReadFile(filepath.Join(testkit.Root(), "cmd/gorbit-predict/testdata/make_model.py"))
	if err != nil {
		t.Fatal(err)
	}
	testkit.RunPython(t, string(script), dir)
	var golden [][]float64
	data, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err == nil {
		err = json.Unmarshal(data, &golden)
	}
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "serve")
	if out, err := testkit.Command(t, "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := testkit.Command(t, binary, "--model", filepath.Join(dir, "model"), "--listen", "127.0.0.1:0")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("it said %q, %v", line, err)
	}
	ask := func(body string) (int, []byte) {
		t.Helper()
		resp, err := http.Post(url+"/predict", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, data
	}
	code, body := ask(`{"texts": [{"text": "a b c"}, {"text": "d e", "text_pair": "f g"}, {"text": "` + strings.Repeat("a ", 20) + `"}]}`)
	var answers []predict.Label
	if err := json.Unmarshal(body, &answers); err != nil || code != http.StatusOK || len(answers) != 3 {
		t.Fatalf("status %d, %v: %s", code, err, body)
	}
	for i, want := range golden {
		for j, p := range want {
			if d := answers[i].Probabilities[j] - p; d > 1e-6 || d < -1e-6 || answers[i].Truncated {
				t.Errorf("answer %d is %+v, expected %v", i, answers[i], want)
			}
		}
	}
	if !answers[2].Truncated {
		t.Error("a text that is too long is not marked")
	}
	for _, bad := range []string{"", "[]", `{"texts": []}`, `{"texts": "a"}`} {
		if code, body := ask(bad); code != http.StatusBadRequest {
			t.Errorf("%q: status %d: %s", bad, code, body)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
