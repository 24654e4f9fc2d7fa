package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/peertls"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestSockets reduces across workers of this machine that reach each other by Unix sockets. Nothing
// listens on a port, and nothing is left.
func TestSockets(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	shared := socketFolder(t)
	workers := pair(t, shared)
	for range 2 { // a second session, as good as the first
		f := connect(t, long, workers)
		wantSum(t, f, 11, 11)
		for _, pid := range []int{os.Getpid(), workers[0].cmd.Process.Pid, workers[1].cmd.Process.Pid, workers[0].child(t), workers[1].child(t)} {
			if got := testkit.Listening(t, pid); len(got) > 0 {
				t.Errorf("process %d listens on %v", pid, got)
			}
		}
		all, err := filepath.Glob(filepath.Join(tmp, folders+"*"))
		if err != nil || len(all) != 4 {
			t.Errorf("folders %v, %v; want the workers', two of servers and the chief's", all, err)
		}
		for _, dir := range all {
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s: %v, %v", dir, info.Mode(), err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if all, _ := filepath.Glob(filepath.Join(tmp, folders+"*")); len(all) != 1 || all[0] != shared {
			t.Errorf("left: %v, want %s", all, shared)
		}
	}
	if log := workers[0].log.String(); !strings.Contains(log, `msg="a chief connected" peer="process `) {
		t.Errorf("the chief is not named:\n%s", log)
	}
	// A chief that does not know the folder finds nobody; one with keys cannot have sockets.
	c := Config{Addresses: addresses(workers), Timeout: brief}
	var failure *WorkerError
	if _, err := Connect(t.Context(), c); !errors.As(err, &failure) || failure.Phase != PhaseConnect {
		t.Errorf("without the folder: %v", err)
	}
	if c.Sockets, c.Keys = shared, keysOf(t, peertls.NewToken()); c.Validate() == nil {
		t.Error("sockets go with keys")
	}
}

// TestNoSocket connects where no worker is, and where one was killed.
func TestNoSocket(t *testing.T) {
	folder := socketFolder(t)
	const address = "127.0.0.1:1"
	for range 2 {
		_, err := Connect(t.Context(), Config{Addresses: []string{address}, Timeout: brief, Sockets: folder})
		if want := "no worker has this socket; start gorbit worker --listen " + address + " with the same --sockets"; err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		path, err := workerSocket(folder, address)
		if err != nil {
			t.Fatal(err)
		}
		left(t, path)
	}
}

// left leaves a socket as a process does that is killed.
func left(t *testing.T, path string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		_ = os.Remove(path)
		err = errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Close(fd))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestListenSocket(t *testing.T) {
	path, err := workerSocket(socketFolder(t), "LOCALHOST:02")
	if err != nil || filepath.Base(path) != "127.0.0.1:2" {
		t.Fatalf("%s, %v", path, err)
	}
	left(t, path)
	l, err := listenSocket(path)
	if err != nil {
		t.Fatalf("in the place of a killed process: %v", err)
	}
	if second, err := listenSocket(path); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("beside another: %v, %v", second, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is left")
	}
}

// TestSocketsAreOurs gives workers and chiefs folders that are not for sockets.
func TestSocketsAreOurs(t *testing.T) {
	open, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.Chmod(open, 0o711), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{open: "run chmod 700 " + open, file: "not a folder", file + "s": "no such file"} {
		chief := Config{Addresses: []string{"a:1"}, Timeout: time.Second, Sockets: folder}
		worker := SupervisorConfig{Listen: "127.0.0.1:1", Devices: "cpu", Child: []string{"a"}, Sockets: folder}
		for _, err := range []error{chief.Validate(), worker.Validate()} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %s", folder, err, want)
			}
		}
	}
	worker := SupervisorConfig{Listen: "127.0.0.1:0", Devices: "cpu", Child: []string{"a"}, Sockets: socketFolder(t)}
	if err := worker.Validate(); err == nil || !strings.Contains(err.Error(), "expected a port from 1") {
		t.Errorf("got %v", err)
	}
	for address, want := range map[string]string{"../a:1": "cannot be the name of a socket", strings.Repeat("a", 100) + ":1": "set TMPDIR"} {
		if _, err := workerSocket(worker.Sockets, address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", address, err, want)
		}
	}
}
