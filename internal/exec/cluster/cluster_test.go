package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
	cpb "github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/exec/peertls"
	_ "github.com/gorbit-ml/gorbit/internal/exec/tfprocess"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// TestMain lets the test binary be a worker, its child, or a chief.
func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "child":
		err = Child(context.Background())
	case len(os.Args) == 4 && os.Args[1] == "worker":
		err = runWorker(os.Args[2], os.Args[3], nil, "")
	case len(os.Args) == 5 && os.Args[1] == "worker" && filepath.IsAbs(os.Args[4]):
		err = runWorker(os.Args[2], os.Args[3], nil, os.Args[4])
	case len(os.Args) == 5 && os.Args[1] == "worker":
		var keys *peertls.Keys
		if keys, err = peertls.FromToken(os.Args[4]); err == nil {
			err = runWorker(os.Args[2], os.Args[3], keys, "")
		}
	case len(os.Args) > 2 && os.Args[1] == "chief":
		err = runChief(os.Args[2:])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runWorker(listen, devices string, keys *peertls.Keys, sockets string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := Listen(SupervisorConfig{
		Listen: listen, Devices: devices, Keys: keys, Sockets: sockets, Threads: 1, Version: "test", Child: []string{os.Args[0], "child"},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})), ChildLog: os.Stderr,
	})
	if err != nil {
		return err
	}
	fmt.Println(s.Addr())
	return s.Serve(ctx)
}

// runChief connects to workers, whose folder of sockets is the first argument if it is a path, and
// stays.
func runChief(addresses []string) error {
	c := Config{Addresses: addresses, Timeout: short}
	if filepath.IsAbs(addresses[0]) {
		c.Sockets, c.Addresses = addresses[0], addresses[1:]
	}
	f, err := Connect(context.Background(), c)
	if err != nil {
		return err
	}
	fmt.Println(f.Target())
	<-f.Failed()
	return f.Err()
}

const (
	// long is a timeout that no test waits for.
	long = 2 * time.Minute
	// brief is the worker timeout of tests that wait until it is over. A chief that does not run for so
	// long, because other work has the processors, says that instead of what is tested.
	brief = time.Second
	// short is one that some do. A worker can start within it on a busy machine.
	short = pace * 8 * time.Second
	// settle lets a reduction that will wait get as far as that. What follows holds
	// too if it does not.
	settle = 500 * time.Millisecond
)

// local is the test's process for a worker or a chief.
type local struct {
	cmd     *exec.Cmd
	address string // what it printed
	log     *lockedBuffer
	ended   chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// launch starts the test binary with arguments and reads the line that it prints.
func launch(t testing.TB, args ...string) *local {
	t.Helper()
	l := &local{cmd: testkit.Command(t, os.Args[0], args...), log: new(lockedBuffer), ended: make(chan struct{})}
	l.cmd.Stderr = l.log
	// Neither the workers' talk nor the session's goes through a proxy.
	l.cmd.Env = append(os.Environ(), "http_proxy=http://127.0.0.1:1", "no_proxy=")
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		_ = l.cmd.Wait() // tests look at ProcessState
		close(l.ended)
	}()
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill()
		<-l.ended
		if t.Failed() {
			t.Logf("%v (%d):\n%s", args, l.cmd.Process.Pid, l.log)
		}
	})
	if err != nil {
		<-l.ended
		t.Fatalf("%v: %v\n%s", args, err, l.log)
	}
	l.address = strings.TrimSpace(line)
	return l
}

func (l *local) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := l.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// children lists the processes that a worker has started.
func (l *local) children(t *testing.T) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it ended
		}
		// pid (name) state ppid
		f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		if f[1] == strconv.Itoa(l.cmd.Process.Pid) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, pid)
		}
	}
	return out
}

// child is the process of the worker's session.
func (l *local) child(t *testing.T) int {
	t.Helper()
	pids := l.children(t)
	if len(pids) != 1 {
		t.Fatalf("worker %d has children %v, want one", l.cmd.Process.Pid, pids)
	}
	return pids[0]
}

// alive reports whether a process runs; one that ended and was not waited for does not.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	return strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))[0] != "Z"
}

// until waits for what has to come about.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

// pair starts two workers, with a token or a folder of sockets if one is given.
func pair(t testing.TB, access ...string) []*local {
	t.Helper()
	var out []*local
	for _, address := range []string{"127.0.0.1:1", "localhost:2"} {
		if len(access) == 0 || !filepath.IsAbs(access[0]) {
			address = "127.0.0.1:0"
		}
		out = append(out, launch(t, append([]string{"worker", address, "cpu:1"}, access...)...))
	}
	return out
}

// sockets is a worker's folder of sockets; "" without one.
func (l *local) sockets() string {
	if args := l.cmd.Args; len(args) == 5 && filepath.IsAbs(args[4]) {
		return args[4]
	}
	return ""
}

// keys are those of a worker's token; nil without one.
func (l *local) keys(t testing.TB) ClientKeys {
	t.Helper()
	if len(l.cmd.Args) < 5 || l.sockets() != "" {
		return nil
	}
	k, err := peertls.FromToken(l.cmd.Args[4])
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func addresses(workers []*local) []string {
	var out []string
	for _, w := range workers {
		out = append(out, w.address)
	}
	return out
}

func connect(t *testing.T, timeout time.Duration, workers []*local) *Cluster {
	t.Helper()
	begin := time.Now()
	f, err := Connect(t.Context(), Config{Addresses: addresses(workers), Timeout: timeout, Version: "test", IntraOpThreads: 1, Keys: workers[0].keys(t), Sockets: workers[0].sockets()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("connected in %v", time.Since(begin))
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// sum has every device of the cluster reduce its number, 1, 10, 100 and so on, with those
// of the others, and returns what each got. More members than there are devices keep
// them waiting.
func sum(t *testing.T, f *Cluster, more int) ([]float32, error) {
	t.Helper()
	var devices []string
	for _, w := range f.Workers() {
		devices = append(devices, w.Devices...)
	}
	graph := tf.NewGraph()
	add := func(spec tf.OpSpec) tf.Output {
		op, err := graph.AddOperation(spec)
		if err != nil {
			t.Fatal(err)
		}
		return op.Output(0)
	}
	constant := func(name, device string, value any) tf.Output {
		tensor, err := tf.NewTensor(value)
		if err != nil {
			t.Fatal(err)
		}
		return add(tf.OpSpec{Type: "Const", Name: name, Device: device, Attrs: map[string]any{"dtype": tensor.DataType(), "value": tensor}})
	}
	var fetches []tf.Output
	value := float32(1)
	for i, device := range devices {
		name := fmt.Sprintf("replica%d_", i)
		fetches = append(fetches, add(tf.OpSpec{
			Type: "CollectiveReduceV2", Name: name + "reduce", Device: device,
			Input: []tf.Input{
				constant(name+"value", device, []float32{value}),
				constant(name+"group_size", device, int32(len(devices)+more)),
				constant(name+"group_key", device, int32(1+more)),
				constant(name+"instance_key", device, int32(1)),
				tf.OutputList{},
			},
			Attrs: map[string]any{"merge_op": "Add", "final_op": "Id"},
		}))
		value *= 10
	}
	config, err := proto.Marshal(&cpb.ConfigProto{
		Experimental: &cpb.ConfigProto_Experimental{CollectiveGroupLeader: GroupLeader},
	})
	if err != nil {
		t.Fatal(err)
	}
	session, err := tf.NewSession(graph, &tf.SessionOptions{Target: f.Target(), Config: config})
	if err != nil {
		return nil, err
	}
	defer session.Close()
	tensors, err := session.Run(nil, fetches, nil)
	if err != nil {
		return nil, err
	}
	var out []float32
	for _, tensor := range tensors {
		out = append(out, tensor.Value().([]float32)...)
	}
	return out, nil
}

func wantSum(t *testing.T, f *Cluster, want ...float32) {
	t.Helper()
	got, err := sum(t, f, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("reduced to %v, want %v", got, want)
	}
}

func TestReduceAcrossWorkers(t *testing.T) {
	workers := []*local{launch(t, "worker", "127.0.0.1:0", "cpu:2"), launch(t, "worker", ":0", "cpu")}
	for range 2 { // a second session, as good as the first
		f := connect(t, long, workers)
		wantSum(t, f, 111, 111, 111)

		got := f.Workers()
		var names []string
		for i, w := range got {
			names = append(names, w.Devices...)
			if w.Address != workers[i].address || w.PID != workers[i].cmd.Process.Pid || w.Gorbit != "test" ||
				w.TensorFlow != tf.Version() || w.Cores != runtime.NumCPU() || w.Instructions == "" || w.NativeBF16 != devices.NativeBF16() {
				t.Errorf("worker %+v", w)
			}
		}
		if want := []string{
			"/job:worker/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:1", "/job:worker/replica:0/task:1/device:CPU:0",
		}; !slices.Equal(names, want) {
			t.Errorf("devices %v, want %v", names, want)
		}
		until(t, "what the workers use", func() bool {
			return !slices.ContainsFunc(f.Usage(), func(u Usage) bool {
				return u.At.IsZero() || u.RSS < 1<<20 || u.PeakRSS < u.RSS || u.CPU <= 0
			})
		})
		var children []int
		for _, w := range workers {
			pid := w.child(t)
			children = append(children, pid)
			if got := testkit.Listening(t, pid); len(got) != 1 || !got[0].Addr().IsLoopback() {
				t.Errorf("the child listens on %v", got)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		// Close has waited for it.
		if slices.ContainsFunc(children, alive) {
			t.Errorf("children %v are left", children)
		}
		if err := f.Err(); err != nil {
			t.Errorf("after Close: %v", err)
		}
	}
}

// TestWorkerFails lets a worker fail in several ways, the first or the second, while
// a reduction continues that would never end. The chief is told, the reduction fails, and once
// the worker is back the next session works.
func TestWorkerFails(t *testing.T) {
	// again starts a worker anew.
	again := func(t *testing.T, w *local) *local {
		args := slices.Clone(w.cmd.Args[1:])
		args[1] = w.address
		return launch(t, args...)
	}
	token, sockets := []string{peertls.NewToken()}, []string{socketFolder(t)}
	for n, test := range []struct {
		name    string
		access  []string
		timeout time.Duration
		fail    func(t *testing.T, w *local)
		want    []string
		back    func(t *testing.T, w *local) *local
	}{
		{
			"child killed", nil, long,
			func(t *testing.T, w *local) { kill(t, w.child(t), syscall.SIGKILL) },
			[]string{"signal: killed", "memory"},
			func(_ *testing.T, w *local) *local { return w },
		},
		{
			"child killed, with keys", token, long,
			func(t *testing.T, w *local) { kill(t, w.child(t), syscall.SIGKILL) },
			[]string{"signal: killed", "memory"},
			func(_ *testing.T, w *local) *local { return w },
		},
		{
			"child aborted", nil, long,
			func(t *testing.T, w *local) { kill(t, w.child(t), syscall.SIGABRT) },
			[]string{"process ended", "its last log lines", "SIGABRT"},
			func(_ *testing.T, w *local) *local { return w },
		},
		{
			"child stopped", nil, short,
			func(t *testing.T, w *local) { kill(t, w.child(t), syscall.SIGSTOP) },
			[]string{"sent nothing for", short.String()},
			func(_ *testing.T, w *local) *local { return w },
		},
		{
			"worker killed", nil, long,
			func(t *testing.T, w *local) { w.signal(t, syscall.SIGKILL) },
			[]string{"closed the connection", "start it again"},
			again,
		},
		{
			"worker killed, by sockets", sockets, long,
			func(t *testing.T, w *local) { w.signal(t, syscall.SIGKILL) },
			[]string{"closed the connection", "start it again"},
			again,
		},
		{
			"worker killed, with keys", token, long,
			func(t *testing.T, w *local) { w.signal(t, syscall.SIGKILL) },
			[]string{"closed the connection", "start it again"},
			again,
		},
		{
			"worker stopped, by sockets", []string{socketFolder(t)}, short,
			func(t *testing.T, w *local) { w.signal(t, syscall.SIGSTOP) },
			[]string{"nothing was heard", "is stopped"},
			func(t *testing.T, w *local) *local { w.signal(t, syscall.SIGCONT); return w },
		},
		{
			"worker stopped", nil, short,
			func(t *testing.T, w *local) { w.signal(t, syscall.SIGSTOP) },
			[]string{"nothing was heard", "is stopped"},
			func(t *testing.T, w *local) *local { w.signal(t, syscall.SIGCONT); return w },
		},
		{
			"worker ended", nil, long,
			func(t *testing.T, w *local) { w.signal(t, syscall.SIGTERM) },
			[]string{"was stopped"},
			func(t *testing.T, w *local) *local {
				<-w.ended
				if !w.cmd.ProcessState.Success() {
					t.Errorf("the worker ended with %v", w.cmd.ProcessState)
				}
				return again(t, w)
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			workers, i := pair(t, test.access...), n%2
			f := connect(t, test.timeout, workers)
			wantSum(t, f, 11, 11)
			child := workers[i].child(t)
			reduced := make(chan error, 1)
			go func() {
				_, err := sum(t, f, 1)
				reduced <- err
			}()
			time.Sleep(settle)
			test.fail(t, workers[i])
			<-f.Failed()
			var failure *WorkerError
			if err := f.Err(); !errors.As(err, &failure) || failure.Address != workers[i].address || failure.Phase != PhaseRun {
				t.Fatalf("got %v", err)
			}
			t.Log(failure)
			if told := (*FailedError)(nil); errors.As(failure, &told) && told.Final {
				t.Error("a worker that can be had again has failed for good")
			}
			for _, want := range test.want {
				if !strings.Contains(failure.Error(), want) {
					t.Errorf("%q does not say %q", failure, want)
				}
			}
			if err := <-reduced; err == nil {
				t.Error("the reduction went on without a worker")
			}
			if _, err := sum(t, f, 0); err == nil || !strings.Contains(err.Error(), workers[i].address) {
				t.Errorf("a session on a cluster that failed: %v", err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			// A child ends without its supervisor's help, too.
			until(t, "the child's end", func() bool { return !alive(child) })
			workers[i] = test.back(t, workers[i])
			wantSum(t, connect(t, long, workers), 11, 11)
		})
	}
}

// socketFolder makes a folder of workers' sockets.
func socketFolder(t testing.TB) string {
	t.Helper()
	path, remove, err := MakeSockets()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	return path
}

func kill(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// TestChiefFails lets a chief fail. The workers kill their children and serve the
// next.
func TestChiefFails(t *testing.T) {
	for s, access := range map[syscall.Signal][]string{syscall.SIGKILL: {socketFolder(t)}, syscall.SIGSTOP: nil} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			workers := pair(t, access...)
			chief := launch(t, slices.Concat([]string{"chief"}, access, addresses(workers))...)
			children := []int{workers[0].child(t), workers[1].child(t)}
			chief.signal(t, s)
			until(t, "the children's end", func() bool { return !slices.ContainsFunc(children, alive) })
			wantSum(t, connect(t, long, workers), 11, 11)
		})
	}
}

func TestOneChiefAtATime(t *testing.T) {
	workers := pair(t)
	first := connect(t, long, workers)
	_, err := Connect(t.Context(), Config{Addresses: addresses(workers[1:]), Timeout: brief})
	var busy *BusyError
	if !errors.As(err, &busy) || busy.Peer == "" || busy.Since.IsZero() || busy.Since.After(time.Now()) {
		t.Fatalf("got %v", err)
	}
	t.Log(err)
	wantSum(t, first, 11, 11)

	// A chief that waits gets the worker when the first is done.
	var log lockedBuffer
	type result struct {
		cluster *Cluster
		err     error
	}
	second := make(chan result)
	go func() {
		f, err := Connect(t.Context(), Config{Addresses: addresses(workers), Timeout: long, Log: slog.New(slog.NewTextHandler(&log, nil))})
		second <- result{f, err}
	}()
	until(t, "the second chief to wait", func() bool { return strings.Count(log.String(), "waiting for a worker") == 2 })
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	r := <-second
	if r.err != nil {
		t.Fatal(r.err)
	}
	wantSum(t, r.cluster, 11, 11)
	if err := r.cluster.Close(); err != nil {
		t.Error(err)
	}
	if got := strings.Count(log.String(), "waiting for a worker"); got != 2 {
		t.Errorf("said %d times that it waits, want once a worker:\n%s", got, &log)
	}
}

// TestBusyThenSilent connects to a worker that says that it is busy, and then nothing for the
// rest of the time.
func TestBusyThenSilent(t *testing.T) {
	l := listen(t)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		// Only a chief's greeting is answered: input that is not read takes the answer
		// along.
		link := newLink(conn, conn)
		if _, err = link.read(time.Now().Add(long)); err == nil {
			err = link.write(message{Busy: &busy{Peer: "10.0.0.9:4711", Since: time.Now()}}, time.Now().Add(long))
		}
		if err != nil {
			t.Error(err)
		}
	}()
	_, err := Connect(t.Context(), Config{Addresses: []string{l.Addr().String()}, Timeout: 2 * time.Second})
	var busy *BusyError
	if !errors.As(err, &busy) || !strings.Contains(err.Error(), "busy with 10.0.0.9:4711 since ") || !strings.Contains(err.Error(), "stop that chief") {
		t.Errorf("got %v", err)
	}
}

// TestNotAWorker connects to what is no worker, next to one that is.
func TestNotAWorker(t *testing.T) {
	worker := launch(t, "worker", "127.0.0.1:0", "cpu:1")
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	other := pair(t)
	connect(t, long, other)
	server := testkit.Listening(t, other[0].child(t))[0].String()
	silent := listen(t)

	closed := listen(t)
	closed.Close()
	fake := func(h hello) string {
		l := listen(t)
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				if err := newLink(conn, conn).write(message{Hello: &h}, time.Now().Add(long)); err != nil {
					return
				}
			}
		}()
		return l.Addr().String()
	}
	for _, test := range []struct {
		name, address string
		phase         Phase
		timeout       time.Duration
		want          []string
	}{
		{"refused", closed.Addr().String(), PhaseConnect, 500 * time.Millisecond, []string{"refused", "gorbit worker --listen " + closed.Addr().String()}},
		{"silent", silent.Addr().String(), PhaseGreet, 500 * time.Millisecond, []string{"nothing was heard", "does not speak"}},
		{"name", "no-such-host.invalid:2222", PhaseConnect, 500 * time.Millisecond, []string{"no-such-host", "check the host"}},
		{"web", web.Listener.Addr().String(), PhaseGreet, long, []string{"HTTP/1.1 400", "web server"}},
		{"TensorFlow's server", server, PhaseGreet, long, []string{"gRPC server"}},
		{"TensorFlow", fake(hello{Protocol: protocol, TensorFlow: "1.15.0"}), PhaseGreet, long, []string{`"` + tf.Version() + `"`, `"1.15.0"`, "same release"}},
		{"protocol", fake(hello{Protocol: "gorbit worker 99", TensorFlow: tf.Version()}), PhaseGreet, long, []string{`"gorbit worker 2"`, `"gorbit worker 99"`}},
		{"other", fake(hello{Protocol: "smtp"}), PhaseGreet, long, []string{"not gorbit worker's protocol"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			_, err := Connect(t.Context(), Config{Addresses: []string{worker.address, test.address}, Timeout: test.timeout})
			var failure *WorkerError
			if !errors.As(err, &failure) || failure.Address != test.address || failure.Phase != test.phase {
				t.Fatalf("got %v", err)
			}
			t.Log(err)
			for _, want := range append(test.want, test.address) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			until(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
	f := connect(t, long, []*local{worker})
	wantSum(t, f, 1)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestNotAChief sends a worker what no chief sends.
func TestNotAChief(t *testing.T) {
	worker := launch(t, "worker", "127.0.0.1:0", "cpu:1")
	greeting := fmt.Sprintf(`{"hello":{"protocol":%q,"timeout_ms":1000}}`, protocol) + "\n"
	for _, sent := range []string{
		"", "GET / HTTP/1.1\r\n\r\n", "{\n", greeting[:20], "{\"hello\":" + strings.Repeat(" ", 2*maxLine), `{"bye":{}}` + "\n",
		greeting + "x", greeting + `{"start":{"cluster":["127.0.0.1:1"],"task":0}}` + "\n", greeting + `{"started":{"devices":["a"]}}` + "\n",
		greeting + `{"reserve":{}}` + "\n" + `{"reserve":{}}` + "\n",
	} {
		conn, err := net.Dial("tcp", worker.address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(sent)); err != nil {
			t.Logf("%.40q: %v", sent, err) // it did not wait for the end
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Logf("%.40q: %v", sent, err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%.40q: %v", sent, err)
		}
		conn.Close()
	}
	// One that greets and then says nothing is given up after its own timeout.
	conn, err := net.Dial("tcp", worker.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(greeting)); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	wantSum(t, connect(t, long, []*local{worker}), 1)
	if !strings.Contains(worker.log.String(), "nothing was heard") {
		t.Errorf("the worker did not say why:\n%s", worker.log)
	}
}

func TestConnectIsCancelled(t *testing.T) {
	silent := listen(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("changed my mind")
	go func() {
		if _, err := silent.Accept(); err == nil {
			cancel(reason)
		}
	}()
	if _, err := Connect(ctx, Config{Addresses: []string{silent.Addr().String()}, Timeout: long}); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
}

// TestServerDoesNotStart asks for devices that no machine has.
func TestServerDoesNotStart(t *testing.T) {
	worker := launch(t, "worker", "127.0.0.1:0", "gpu:250")
	_, err := Connect(t.Context(), Config{Addresses: []string{worker.address}, Timeout: long})
	var failure *WorkerError
	var told *FailedError
	if !errors.As(err, &failure) || failure.Phase != PhaseStart || !errors.As(err, &told) || !told.Final || !strings.Contains(err.Error(), "gpu:250 were requested") {
		t.Fatalf("got %v", err)
	}
	t.Log(err)
	until(t, "the child's end", func() bool { return len(worker.children(t)) == 0 })
}

// TestFail has the chief itself end what runs on its workers.
func TestFail(t *testing.T) {
	before := runtime.NumGoroutine()
	worker := launch(t, "worker", "127.0.0.1:0", "cpu:1")
	f := connect(t, long, []*local{worker})
	wantSum(t, f, 1)
	reduced := make(chan error)
	go func() {
		_, err := sum(t, f, 1)
		reduced <- err
	}()
	time.Sleep(settle)
	reason := errors.New("enough of it: 100 % done")
	f.Fail(reason)
	<-f.Failed()
	if err := <-reduced; err == nil || !strings.Contains(err.Error(), reason.Error()) {
		t.Errorf("the reduction ended with %v", err)
	}
	if err := f.Err(); err != reason {
		t.Errorf("the cluster's error is %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	worker.signal(t, syscall.SIGTERM)
	<-worker.ended
	until(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestSameNetwork(t *testing.T) {
	f := new(Cluster)
	for _, a := range []string{"127.0.0.1:1", "10.0.0.2:1"} {
		at := netip.MustParseAddrPort(a)
		f.peers = append(f.peers, &peer{worker: Worker{Address: a}, server: at})
	}
	if err := f.sameNetwork(); err == nil || !strings.Contains(err.Error(), "worker 127.0.0.1:1: ") || !strings.Contains(err.Error(), "10.0.0.2:1 cannot reach;") {
		t.Errorf("got %v", err)
	}
	f.peers = f.peers[1:]
	if err := f.sameNetwork(); err != nil {
		t.Error(err)
	}
}

func TestCompare(t *testing.T) {
	const (
		version      = `msg="a worker has another version of gorbit; results may differ" worker=%s version=1 chief=2`
		instructions = `msg="the workers' kernels use different instructions and round differently; set GORBIT_KERNELS on the workers to use the same" ` +
			`"first worker"="a (avx2)" others="b (avx512), c (generic)"`
		processors = `msg="the workers' processors are of different kinds and round differently, whatever GORBIT_KERNELS is; workers of one kind would end in other bits" ` +
			`"first worker"="a (amd64)" others="c (arm64), d (arm64)"`
	)
	worker := func(address, version, processor, instructions string) Worker {
		return Worker{Address: address, Gorbit: version, Processor: processor, Instructions: instructions}
	}
	for _, tt := range []struct {
		name    string
		workers []Worker
		want    []string
	}{
		{"equal", []Worker{worker("a", "2", "amd64", "generic"), worker("b", "2", "amd64", "generic")}, nil},
		{"versions", []Worker{worker("a", "2", "amd64", "avx2"), worker("b", "1", "", "avx2"), worker("c", "1", "", "avx2")},
			[]string{fmt.Sprintf(version, "b"), fmt.Sprintf(version, "c")}},
		{"instructions", []Worker{worker("a", "2", "amd64", "avx2"), worker("b", "2", "amd64", "avx512"), worker("c", "2", "amd64", "generic")},
			[]string{instructions}},
		{"processors", []Worker{worker("a", "2", "amd64", "generic"), worker("b", "2", "amd64", "generic"), worker("c", "2", "arm64", "generic"), worker("d", "2", "arm64", "neon")},
			[]string{processors}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log strings.Builder
			f := &Cluster{config: Config{Version: "2"}, log: slog.New(slog.NewTextHandler(&log, nil))}
			for _, w := range tt.workers {
				f.peers = append(f.peers, &peer{worker: w})
			}
			f.compare()
			got := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
			if log.Len() == 0 {
				got = nil
			}
			if !slices.EqualFunc(got, tt.want, strings.HasSuffix) {
				t.Errorf("warned of:\n%s\nexpected\n%s", log.String(), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for want, c := range map[string]Config{
		"0 workers": {},
		`worker address is "a"; expected HOST:PORT`:                              {Addresses: []string{"a"}},
		`worker address is ":1"; expected HOST:PORT`:                             {Addresses: []string{":1"}},
		`worker address is "a:0" with port "0"; expected a port from 1 to 65535`: {Addresses: []string{"a:0"}},
		`worker address is "a:99999" with port "99999"`:                          {Addresses: []string{"a:99999"}},
		"is given twice":          {Addresses: []string{"a:1", "a:1"}},
		"worker timeout is 1ms":   {Addresses: []string{"a:1"}, Timeout: time.Millisecond},
		"number of threads is -1": {Addresses: []string{"a:1"}, IntraOpThreads: -1},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := Connect(t.Context(), c); err == nil {
			t.Errorf("connected with %+v", c)
		}
	}
	for want, c := range map[string]SupervisorConfig{
		`listen address is "a"; expected HOST:PORT`:    {Listen: "a", Devices: "cpu", Child: []string{"a"}},
		`listen address is ":99999" with port "99999"`: {Listen: ":99999", Devices: "cpu", Child: []string{"a"}},
		"expected cpu, gpu":                            {Listen: ":0", Devices: "cpus", Child: []string{"a"}},
		"the number is \"0\"; expected 1":              {Listen: ":0", Devices: "gpu:0", Child: []string{"a"}},
		"number of threads is -1":                      {Listen: ":0", Devices: "gpu", Threads: -1, Child: []string{"a"}},
		"no arguments":                                 {Listen: ":0", Devices: "gpu"},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
