package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/cluster/clustertest"
	_ "github.com/gorbit-ml/gorbit/internal/exec/tfprocess"
	"github.com/gorbit-ml/gorbit/tpu"
	"github.com/gorbit-ml/gorbit/tpu/emulator"
)

// backends are the addresses of TensorFlow's servers by hosts of the TPU 2x2x1x2. The servers
// end with the test binary.
var backends = make(map[int]string)

func TestMain(m *testing.M) {
	for _, hosts := range []int{1, 2} {
		t, err := emulator.ParseTopology("2x2x1x2", hosts)
		if err == nil {
			backends[hosts], err = emulator.StartBackend(t)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// emulate starts an emulator of a TPU 2x2x1x2, which ends with the test, and returns its
// address.
func emulate(t testing.TB, hosts int, fault emulator.Fault) string {
	t.Helper()
	topology, err := emulator.ParseTopology("2x2x1x2", hosts)
	if err != nil {
		t.Fatal(err)
	}
	return emulateWith(t, emulator.Config{Topology: topology, Fault: fault})
}

// emulateWith is emulate with a Config, whose topology is that of one host if it has none.
func emulateWith(t testing.TB, c emulator.Config) string {
	t.Helper()
	var err error
	if c.Topology == nil {
		if c.Topology, err = emulator.ParseTopology("2x2x1x2", 1); err != nil {
			t.Fatal(err)
		}
	}
	c.Backend = backends[c.Topology.Tasks]
	e, err := emulator.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	address := l.Addr().String()
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { served <- e.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return address
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestStart(t *testing.T) {
	for _, c := range []struct {
		hosts int
		job   string
		last  tpu.Core // at 1, 1, 0, 1
	}{
		{1, "worker", tpu.Core{Task: 0, Device: 7}},
		{2, "tpu_worker", tpu.Core{Task: 1, Device: 3}},
	} {
		t.Run(fmt.Sprint(c.hosts), func(t *testing.T) {
			cluster := tpu.Cluster{Job: c.job, Workers: []string{emulate(t, c.hosts, emulator.None), "127.0.0.1:1"}[:c.hosts]}
			// Again, as the next program does.
			for range 2 {
				s, err := tpu.Start(t.Context(), cluster, tpu.SystemConfig{Timeout: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				if s.Job != c.job || !s.Emulated || s.Topology.Mesh != (tpu.Coordinate{2, 2, 1, 2}) || s.Topology.Tasks != c.hosts {
					t.Errorf("job %s, emulated %v, topology %+v", s.Job, s.Emulated, s.Topology)
				}
				if core, ok := s.Topology.At(tpu.Coordinate{1, 1, 0, 1}); !ok || core != c.last {
					t.Errorf("the last core is %v, want %v", core, c.last)
				}
				if err := s.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestStartFails starts what is no TPU, or one that fails, and looks at the phase and the
// words of the error.
func TestStartFails(t *testing.T) {
	silent := listen(t)
	t.Cleanup(func() { silent.Close() })
	closed := listen(t)
	closed.Close()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	worker := clustertest.Start(t, "cpu:1", []string{"none"})[0]
	const long, short = time.Minute, 2 * time.Second
	for _, c := range []struct {
		name    string
		cluster []string
		timeout time.Duration
		phase   tpu.Phase
		want    []string
	}{
		{"nothing", []string{closed.Addr().String()}, long, tpu.PhaseConnect, []string{"refused", "start TensorFlow's server on the TPU VM"}},
		{"a web server", []string{web.Listener.Addr().String()}, long, tpu.PhaseConnect, []string{"does not speak gRPC", `"HTTP/1.1 "`, "expected a TPU's TensorFlow server"}},
		{"a silent server", []string{silent.Addr().String()}, short, tpu.PhaseConnect, []string{"connect: no answer in 2s", "start TensorFlow's server on the TPU VM, again if it hangs", "the port (usually 8470)"}},
		{"a gorbit worker", []string{worker}, long, tpu.PhaseConnect, []string{"does not speak gRPC", "a gorbit worker is for --workers"}},
		{"a server without TPUs", []string{backends[1]}, long, tpu.PhaseDevices, []string{"no TPU is among the devices (/job:worker/replica:0/task:0/device:CPU:0", "expected TPU_SYSTEM:0 and TPU:0"}},
		{"too few hosts", []string{emulate(t, 1, emulator.None), "127.0.0.1:1"}, long, tpu.PhaseDevices, []string{"2 tasks", "1 hosts", "--hosts 2"}},
		{"hang", []string{emulate(t, 1, emulator.Hang)}, short, tpu.PhaseConfigure, []string{"no answer in 2s", "--tpu-timeout"}},
		{"forget", []string{emulate(t, 1, emulator.Forget)}, long, tpu.PhaseConfigure, []string{"is not found", "type the same command"}},
		{"fail", []string{emulate(t, 1, emulator.Fail)}, long, tpu.PhaseConfigure, []string{"no TPU", "the configuration fails", "restart the servers"}},
		{"mismatch", []string{emulate(t, 1, emulator.Mismatch)}, long, tpu.PhaseTopology, []string{"1 tasks with 1 cores each; expected 1 tasks with 8 cores each"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := tpu.Start(t.Context(), tpu.Cluster{Job: "worker", Workers: c.cluster}, tpu.SystemConfig{Timeout: c.timeout})
			var failed *tpu.SystemError
			if !errors.As(err, &failed) {
				t.Fatalf("got %v", err)
			}
			if failed.Phase != c.phase || failed.Peer != "grpc://"+c.cluster[0] {
				t.Errorf("phase %q of %s, want %q", failed.Phase, failed.Peer, c.phase)
			}
			for _, want := range append(c.want, failed.Peer, string(c.phase), failed.Next) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in: %v", want, err)
				}
			}
		})
	}
}

// TestStartStops starts a TPU that hangs, and stops.
func TestStartStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		time.Sleep(200 * time.Millisecond)
		cancel()
	}()
	_, err := tpu.Start(ctx, tpu.Cluster{Job: "worker", Workers: []string{emulate(t, 1, emulator.Hang)}}, tpu.SystemConfig{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestLocal has no TPU: the library that tests link is that for CPUs.
func TestLocal(t *testing.T) {
	_, err := tpu.Start(t.Context(), tpu.Cluster{Local: true, Job: "worker"}, tpu.SystemConfig{})
	if err == nil || !strings.Contains(err.Error(), "TPU at local: list the devices: no TPU is among the devices") || !strings.Contains(err.Error(), "make setup TF=tpu") {
		t.Errorf("got %v", err)
	}
}

// TestSession computes on an emulated core, and asks for what the emulator does not do.
func TestSession(t *testing.T) {
	address := emulate(t, 2, emulator.None)
	target := "grpc://" + address
	run := func(spec tf.OpSpec) ([]*tf.Tensor, error) {
		g := tf.NewGraph()
		value, err := tf.NewTensor(float32(3))
		if err != nil {
			t.Fatal(err)
		}
		three, err := g.AddOperation(tf.OpSpec{Type: "Const", Name: "three", Attrs: map[string]any{"dtype": tf.Float, "value": value}})
		if err != nil {
			t.Fatal(err)
		}
		spec.Name, spec.Input = "op", []tf.Input{three.Output(0)}
		if spec.Type != "Neg" {
			spec.Input = nil
		}
		op, err := g.AddOperation(spec)
		if err != nil {
			t.Fatal(err)
		}
		s, err := tf.NewSession(g, &tf.SessionOptions{Target: target})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		devices, err := s.ListDevices()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range devices {
			names = append(names, d.Name)
		}
		for _, want := range []string{"task:0/device:CPU:0", "task:0/device:TPU_SYSTEM:0", "task:0/device:TPU_EMULATOR:0", "task:0/device:TPU:0", "task:1/device:TPU:3"} {
			if !slices.Contains(names, "/job:worker/replica:0/"+want) {
				t.Errorf("no %s in %v", want, names)
			}
		}
		if len(names) != 14 {
			t.Errorf("%d devices %v, want 14", len(names), names)
		}
		return s.Run(nil, []tf.Output{op.Output(0)}, nil)
	}
	neg := tf.OpSpec{Type: "Neg", Device: "/job:worker/task:1/device:TPU:3"}
	if _, err := run(neg); err == nil || !strings.Contains(err.Error(), "The TPU system has not been initialized.") {
		t.Errorf("before the configuration: %v", err)
	}
	if _, err := tpu.Start(t.Context(), tpu.Cluster{Job: "worker", Workers: []string{address, "127.0.0.1:1"}}, tpu.SystemConfig{}); err != nil {
		t.Fatal(err)
	}
	out, err := run(neg)
	if err != nil || out[0].Value() != float32(-3) {
		t.Errorf("got %v, %v", out, err)
	}
	for want, spec := range map[string]tf.OpSpec{
		`there is no TPU "4"; expected 0 to 3`:                   {Type: "Neg", Device: "/job:worker/task:1/device:TPU:4"},
		`there is no task "2"`:                                   {Type: "Neg", Device: "/job:worker/task:2"},
		`there is no job "ps"`:                                   {Type: "Neg", Device: "/job:ps"},
		`there is no device of type "GPU"`:                       {Type: "Neg", Device: "/device:GPU:0"},
		"Missing TPUReplicateMetadata node":                      {Type: "Neg", Attrs: map[string]any{"_tpu_replicate": "cluster"}},
		`on device ""; expected /job:worker/device:TPU_SYSTEM:0`: {Type: "ConfigureDistributedTPU"},
	} {
		if _, err := run(spec); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "gorbit tpu-emulator (no TPU)") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestRefusesPartialRuns asks for steps in parts.
func TestRefusesPartialRuns(t *testing.T) {
	g := tf.NewGraph()
	op, err := g.AddOperation(tf.OpSpec{Type: "Placeholder", Name: "x", Attrs: map[string]any{"dtype": tf.Float}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := tf.NewSession(g, &tf.SessionOptions{Target: "grpc://" + emulate(t, 1, emulator.None)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.NewPartialRun([]tf.Output{op.Output(0)}, []tf.Output{op.Output(0)}, nil); err == nil || !strings.Contains(err.Error(), "PartialRunSetup is not supported") {
		t.Errorf("got %v", err)
	}
}

func TestParseTopology(t *testing.T) {
	topology, err := emulator.ParseTopology("2x2x1x2", 2)
	if err != nil {
		t.Fatal(err)
	}
	want := []tpu.Coordinate{{0, 0, 0, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}, {1, 0, 0, 1}, {0, 1, 0, 0}, {0, 1, 0, 1}, {1, 1, 0, 0}, {1, 1, 0, 1}}
	if !slices.Equal(topology.Coordinates, want) || topology.DevicesPerTask != 4 {
		t.Errorf("got %+v", topology)
	}
	for mesh, c := range map[string]struct {
		hosts int
		want  string
	}{
		"2x2":         {1, "2 sizes; expected XxYxZxCORES"},
		"2x2x1x0":     {1, `the size "0"`},
		"2x2x1xa":     {1, `the size "a"`},
		"16x16x16x1":  {1, "more than 512 cores"},
		"2x2x1x2":     {3, "3 hosts cannot share the 4 chips"},
		"1x1x1x2":     {2, "2 hosts cannot share the 1 chips"},
		"512x512x1x1": {1, "more than 512"},
	} {
		if _, err := emulator.ParseTopology(mesh, c.hosts); err == nil || !strings.Contains(err.Error(), c.want) || fault.Of(err) != fault.Usage {
			t.Errorf("%s: %v, want %s", mesh, err, c.want)
		}
	}
}

func TestValidate(t *testing.T) {
	topology, err := emulator.ParseTopology("1x1x1x1", 1)
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]emulator.Config{
		"no topology":  {Backend: "127.0.0.1:1"},
		"no address":   {Topology: topology},
		`fault "burn"`: {Topology: topology, Backend: "127.0.0.1:1", Fault: "burn"},
	} {
		if _, err := emulator.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
