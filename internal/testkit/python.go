package testkit

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// warmPython is the environment variable with the address of tools/warm_python.py. It is set by
// make test.
const warmPython = "GORBIT_TEST_PYTHON"

// RunPython runs the source text of a Python script with the arguments as sys.argv[1:], and
// returns its standard output. The script imports this checkout's exporter. TensorFlow's own
// log is off. If the script fails, the test fails with its traceback.
//
// Under make test, the script starts as a fork of a process that has imported TensorFlow.
func RunPython(t testing.TB, script string, args ...string) string {
	t.Helper()
	env := append(os.Environ(), "TF_CPP_MIN_LOG_LEVEL=3", "CUDA_VISIBLE_DEVICES=-1", "PYTHONPATH="+filepath.Join(Root(), "tools"))
	python := Python(t)
	var stdout string
	var err error
	if address := os.Getenv(warmPython); address != "" {
		stdout, err = askWarmPython(address, env, script, args)
	} else {
		stdout, err = startPython(python, env, script, args)
	}
	if err != nil {
		t.Fatalf("python: %v", err)
	}
	return stdout
}

// startPython runs the script in an interpreter of its own.
func startPython(python string, env []string, script string, args []string) (string, error) {
	cmd := exec.Command(python, append([]string{"-c", script}, args...)...)
	cmd.Env = env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, stderr.String())
	}
	return string(out), nil
}

// askWarmPython lets tools/warm_python.py run the script, as its documentation describes.
func askWarmPython(address string, env []string, script string, args []string) (string, error) {
	var request struct {
		Script string            `json:"script"`
		Args   []string          `json:"args"`
		Env    map[string]string `json:"env"`
		Dir    string            `json:"dir"`
	}
	request.Script, request.Args, request.Env = script, append([]string{}, args...), make(map[string]string)
	for _, setting := range env {
		name, value, _ := strings.Cut(setting, "=")
		request.Env[name] = value
	}
	var err error
	if request.Dir, err = os.Getwd(); err != nil {
		return "", err
	}
	conn, err := net.Dial("unix", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return "", err
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return "", err
	}
	var reply struct {
		Code           int
		Stdout, Stderr string
	}
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return "", fmt.Errorf("warm_python.py at %s: %w", address, err)
	}
	if reply.Code != 0 {
		return "", fmt.Errorf("exit status %d\n%s", reply.Code, reply.Stderr)
	}
	return reply.Stdout, nil
}
