package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/exec/peertls"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

func keysOf(t *testing.T, token string) *peertls.Keys {
	t.Helper()
	k, err := peertls.FromToken(token)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestLockedCluster reduces across workers with keys, with strangers at their ports. TensorFlow
// listens on no port, and only its user may enter the folder of its sockets.
func TestLockedCluster(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	folders := func() []string {
		all, err := filepath.Glob(filepath.Join(tmp, folders+"*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	token := peertls.NewToken()
	workers := pair(t, token)
	f := connect(t, long, workers)
	wantSum(t, f, 11, 11)
	for _, w := range workers {
		if got := testkit.Listening(t, w.child(t)); len(got) > 0 {
			t.Errorf("a TensorFlow server listens on %v", got)
		}
	}
	if got := testkit.Listening(t, os.Getpid()); len(got) > 0 {
		t.Errorf("the chief listens on %v", got)
	}
	dirs := folders()
	if len(dirs) != 3 {
		t.Errorf("folders of sockets: %v, want those of the chief and two workers", dirs)
	}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
	for _, w := range workers {
		scan(t, w.address)
	}
	wantSum(t, f, 11, 11)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if left := folders(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	wantSum(t, connect(t, long, workers), 11, 11)
}

// scan sends what strangers send to a port, and checks that a worker with keys gives nothing away
// but what TLS and the advice to use it are.
func scan(t *testing.T, address string) {
	t.Helper()
	for _, sent := range []string{
		"", "\x00", "GET / HTTP/1.1\r\n\r\n", `{"hello":{"protocol":"gorbit worker 2"}}` + "\n", `{"open":{"session":""}}` + "\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x16\x03\x01\x00\x05hello", "\x16\x03\x01\xff\xff" + strings.Repeat("a", 1<<16),
		"\x17\x03\x03\x00\x01a",
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, sent) // it may not wait for the end
		conn.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(conn)
		conn.Close()
		alert := len(got) == 7 && got[0] == 0x15
		told := strings.HasPrefix(string(got), `{"failed":{"message":"the worker takes connections with TLS only;`) && strings.HasPrefix(sent, "{")
		if len(got) > 0 && !alert && !told {
			t.Errorf("%.20q was answered with %q", sent, got)
		}
	}
}

// TestWrongKeys connects chiefs and workers whose keys differ.
func TestWrongKeys(t *testing.T) {
	one, other := peertls.NewToken(), peertls.NewToken()
	locked, open := launch(t, "worker", "127.0.0.1:0", "cpu:1", one), launch(t, "worker", "127.0.0.1:0", "cpu:1")
	closing := listen(t)
	go func() {
		for {
			conn, err := closing.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	for _, test := range []struct {
		name    string
		worker  string
		keys    ClientKeys
		timeout time.Duration
		want    []string
		log     string
	}{
		{"another token", locked.address, keysOf(t, other), long, []string{"it has another token; give both sides the same --token-file"},
			"rejected a connection with other keys"},
		{"no token", locked.address, nil, long, []string{"takes connections with TLS only; start the training with its --token-file"}, "rejected a chief without keys"},
		{"a worker without keys", open.address, keysOf(t, one), long, []string{"it does not speak TLS; give it the same --token-file"}, "this worker was started without keys"},
		{"no worker", closing.Addr().String(), keysOf(t, one), 500 * time.Millisecond, []string{"closed the connection before it gave a certificate; check its log"}, ""},
		{"silent", listen(t).Addr().String(), keysOf(t, one), 500 * time.Millisecond, []string{"nothing was heard"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			_, err := Connect(t.Context(), Config{Addresses: []string{test.worker}, Timeout: test.timeout, Keys: test.keys})
			var failure *WorkerError
			if !errors.As(err, &failure) || failure.Address != test.worker || failure.Phase != PhaseGreet {
				t.Fatalf("got %v", err)
			}
			t.Log(err)
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			until(t, "the worker to say it", func() bool { return strings.Contains(locked.log.String()+open.log.String(), test.log) })
			until(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
	if log := locked.log.String() + open.log.String(); strings.Contains(log, one) || strings.Contains(log, other) {
		t.Error("a token is in a log")
	}
	wantSum(t, connect(t, long, []*local{locked}), 1)
}

// supervise runs a worker in this process, whose session has a server of the test behind its gate.
// It returns the worker's address and how many connections and bytes the server got.
func supervise(t *testing.T, keys *peertls.Keys, session string) (address string, got func() (conns, bytes int)) {
	t.Helper()
	s, err := Listen(SupervisorConfig{Listen: "127.0.0.1:0", Devices: "cpu", Child: []string{"none"}, Keys: keys, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGate(session)
	if err != nil {
		t.Fatal(err)
	}
	server, err := net.Listen("unix", ownSocket(g.dir))
	if err != nil {
		t.Fatal(err)
	}
	s.setGate(g)
	var mu sync.Mutex
	conns, received := 0, 0
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns++
			mu.Unlock()
			running.Go(func() {
				defer conn.Close()
				b := make([]byte, 1<<10)
				for {
					n, err := conn.Read(b)
					mu.Lock()
					received += n
					mu.Unlock()
					if err != nil {
						return
					}
					conn.Write(b[:n])
				}
			})
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { s.Serve(ctx) })
	t.Cleanup(func() {
		cancel()
		server.Close()
		g.close()
		running.Wait()
	})
	return s.Addr(), func() (int, int) {
		mu.Lock()
		defer mu.Unlock()
		return conns, received
	}
}

// recorder keeps what is written to a connection.
type recorder struct {
	net.Conn
	mu   sync.Mutex
	sent bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	r.sent.Write(b)
	r.mu.Unlock()
	return r.Conn.Write(b)
}

// TestNoByteWithoutKeys tries to reach the server behind a locked worker.
func TestNoByteWithoutKeys(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("", func(t *testing.T) { // what it starts has ended after it
		keys := keysOf(t, peertls.NewToken())
		address, got := supervise(t, keys, "session")
		dial := func() net.Conn {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		talk := func(conn net.Conn) { // until the worker closes
			io.WriteString(conn, `{"open":{"session":"session"}}`+"\nhello")
			io.Copy(io.Discard, conn)
		}
		scan(t, address)
		talk(dial())
		talk(tls.Client(dial(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{streamProtocol}}))
		stranger := keysOf(t, peertls.NewToken())
		if _, err := (passage{keys: stranger, address: address, host: "127.0.0.1", session: "session"}).dial(t.Context()); err == nil {
			t.Error("a stranger connected")
		}
		if conn, err := (passage{keys: keys, address: address, host: "127.0.0.1", session: "another"}).dial(t.Context()); err == nil {
			io.WriteString(conn, "hello")
			io.Copy(io.Discard, conn)
			conn.Close()
		}
		if conns, n := got(); conns != 0 || n != 0 {
			t.Fatalf("%d connections with %d bytes reached the server", conns, n)
		}

		// With the keys, and once more without them what was sent then.
		r := &recorder{Conn: dial()}
		conn, err := secure(t.Context(), keys, r, "127.0.0.1", streamProtocol)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, `{"open":{"session":"session"}}`+"\nhello")
		answer := make([]byte, 5)
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "hello" {
			t.Fatalf("%q, %v", answer, err)
		}
		again := dial()
		r.mu.Lock()
		sent := r.sent.Bytes()
		r.mu.Unlock()
		again.Write(sent)
		io.Copy(io.Discard, again)
		if conns, n := got(); conns != 1 || n != 5 {
			t.Errorf("%d connections with %d bytes reached the server, want 1 with 5", conns, n)
		}
		conn.Close()
	})
	until(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// TestCrowd holds more connections open than a worker takes. One with keys gets in.
func TestCrowd(t *testing.T) {
	keys := keysOf(t, peertls.NewToken())
	address, got := supervise(t, keys, "session")
	for range 2 * maxGreetings {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	conn, err := (passage{keys: keys, address: address, host: "127.0.0.1", session: "session"}).dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 * maxGreetings { // more strangers do not take its place
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("\x16")); err != nil {
			t.Logf("closed already: %v", err)
		}
	}
	io.WriteString(conn, "hello")
	answer := make([]byte, 5)
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "hello" {
		t.Errorf("%q, %v", answer, err)
	}
	if conns, n := got(); conns != 1 || n != 5 {
		t.Errorf("%d connections with %d bytes reached the server", conns, n)
	}
}

// TestFolderIsRemoved leaves a folder as a killed process does. The next one removes it, and none in
// use.
func TestFolderIsRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var all [3]*folder
	for i := range all {
		f, err := newFolder()
		if err != nil {
			t.Fatal(err)
		}
		all[i] = f
		if i == 0 {
			if err := os.WriteFile(ownSocket(f.path), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			f.lock.Close() // as the system does for a process that ended
		}
	}
	if _, err := os.Stat(all[0].path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that was left is there: %v", err)
	}
	for _, f := range all[1:] {
		if _, err := os.Stat(f.path); err != nil {
			t.Error(err)
		}
		f.remove()
		if _, err := os.Stat(f.path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a folder that was removed is there: %v", err)
		}
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), strings.Repeat("a", 100)))
	if err := os.Mkdir(os.TempDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := newFolder(); err == nil || !strings.Contains(err.Error(), "set TMPDIR to a folder with a shorter name") {
		t.Errorf("got %v", err)
	}
}

// TestGateBreaks has a worker find that another worker has other keys than the chief's.
func TestGateBreaks(t *testing.T) {
	address, _ := supervise(t, keysOf(t, peertls.NewToken()), "session")
	g, err := newGate("session")
	if err != nil {
		t.Fatal(err)
	}
	s := start{Cluster: []string{"127.0.0.1:1", address}, Names: []string{"127.0.0.1", "127.0.0.1"}}
	if err := g.reach(keysOf(t, peertls.NewToken()), &s); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", socket(g.dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := <-g.broken; !strings.Contains(err.Error(), "it cannot reach worker "+address+": it has another token; give both sides the same --token-file") {
		t.Errorf("got %v", err)
	}
	g.close()
	if _, err := os.Stat(g.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}
