package strategy

import (
	"context"
	"errors"

	"fmt"
	"log/slog"
	"math"

	"math/rand/v2"
	"net"
	"slices"
	"strings"

	"sync"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/testkit"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
	"github.com/gorbit-ml/gorbit/tpu"
	"github.com/gorbit-ml/gorbit/tpu/emulator"
)

// tpuBackends are the addresses of the servers that compute for emulated TPUs of one and two hosts.
// They end with the test binary.
var tpuBackends = map[int]func() (string, error){1: tpuBackend(1), 2: tpuBackend(2)}

func tpuBackend(hosts int) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		topology, err := emulator.ParseTopology("2x2x1x2", hosts)
		if err != nil {
			return "", err
		}
		return emulator.StartBackend(topology)
	})
}

// startTPU starts an emulator of a TPU of 8 cores, and its system.
func startTPU(t *testing.T) *tpu.System {
	t.Helper()
	s, _ := emulatedTPU(t, 1, emulator.None)
	return s
}

// emulatedTPU is startTPU with a function that ends the emulator.
func emulatedTPU(t *testing.T, hosts int, what emulator.Fault) (*tpu.System, func()) {
	t.Helper()
	return emulatedTPUBehind(t, hosts, what, func(l net.Listener) net.Listener { return l })
}

// emulatedTPUBehind is emulatedTPU with a listener in front of it.
func emulatedTPUBehind(t *testing.T, hosts int, what emulator.Fault, front func(net.Listener) net.Listener) (*tpu.System, func()) {
	t.Helper()
	backend, err := tpuBackends[hosts]()
	if err != nil {
		t.Fatal(err)
	}
	topology, err := emulator.ParseTopology("2x2x1x2", hosts)
	if err != nil {
		t.Fatal(err)
	}
	e, err := emulator.New(emulator.Config{Topology: topology, Backend: backend, Fault: what})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx, front(l)) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	s, err := tpu.Start(t.Context(), tpu.Cluster{Job: "worker", Workers: []string{l.Addr().String(), "127.0.0.1:1"}[:hosts]}, tpu.SystemConfig{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s, stop
}

// tpuShape is the shape of a micro-batch.
var tpuShape = map[string]int64{"rows": 3, "length": 16, "examples": 4}

// openTPU makes a strategy for some cores of an emulated TPU.
func openTPU(t *testing.T, export *graphs.Export, replicas, steps int) *TPU {
	t.Helper()
	m, err := NewTPU(t.Context(), export, startTPU(t), Config{Replicas: replicas, StepsPerCall: steps, Axes: tpuShape, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// fixedBatch returns a batch of the shape tpuShape with up to 4 examples, at most two to a row.
func fixedBatch(t testing.TB, rng *rand.Rand) []Feature { return batchOf(t, rng, tpuShape) }

// batchOf is fixedBatch of another shape.
func batchOf(t testing.TB, rng *rand.Rand, shape map[string]int64) []Feature {
	t.Helper()
	rows, length, examples := int(shape["rows"]), int(shape["length"]), int(shape["examples"])
	b := make(map[string][]int32)
	for _, name := range []string{packed.InputIDs, packed.TypeIDs, packed.SequenceIDs, packed.PositionIDs} {
		b[name] = make([]int32, rows*length)
	}
	at, labels, weights := make([]int32, examples), make([]int32, examples), make([]float32, examples)
	for i := range 2 + rng.IntN(examples-1) {
		row, half := i%rows, i/rows
		first := row*length + half*length/2
		for p := range 3 + rng.IntN(length/2-3) {
			b[packed.InputIDs][first+p], b[packed.TypeIDs][first+p] = rng.Int32N(30), rng.Int32N(2)
			b[packed.SequenceIDs][first+p], b[packed.PositionIDs][first+p] = int32(half+1), int32(p)
		}
		at[i], labels[i], weights[i] = int32(first), rng.Int32N(3), 0.5+rng.Float32()
	}
	out := []Feature{{Name: packed.ClsPositions, Shape: []int{examples}, Int32: at}, {Name: packed.LabelIDs, Shape: []int{examples}, Int32: labels},
		{Name: packed.ExampleWeights, Shape: []int{examples}, Float32: weights}}
	for name, values := range b {
		out = append(out, dataset.Feature{Name: name, Shape: []int{rows, length}, Int32: values})
	}
	return out
}

// fixedSteps returns steps of one micro-batch for each replica, with dropout.
func fixedSteps(t testing.TB, replicas, steps int) []StepInput {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]StepInput, steps)
	for k := range out {
		in := StepInput{Seed: [2]int64{7, int64(k)}, Scalars: Scalars{"learning_rate": 0.01 / float64(k+1), "weight_decay": 0.1, "clip_norm": 1}}
		for range replicas {
			in.Batches = append(in.Batches, fixedBatch(t, rng))
		}
		out[k] = in
	}
	return out
}

// TestTPUTrains holds steps on an emulated TPU, in calls of 1, 5 and 20 steps, against those of as
// many CPU devices: what each step says, and the variables and slots afterwards.
func TestTPUTrains(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export := replicaExport(t)
	for _, c := range []struct {
		replicas, steps int
		perCall         []int
	}{{2, 20, []int{1, 5, 20}}, {8, 4, []int{3}}} {
		steps := fixedSteps(t, c.replicas, c.steps)
		mirrored, err := NewMirrored(t.Context(), export, cpus(c.replicas), Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer mirrored.Close()
		start(t, mirrored, rand.New(rand.NewPCG(3, 5)))
		want, err := mirrored.Steps(t.Context(), steps)
		if err != nil {
			t.Fatal(err)
		}
		pointers := func(results []Result) []*Result {
			out := make([]*Result, len(results))
			for i := range results {
				out[i] = &results[i]
			}
			return out
		}
		same := make(map[string][]byte) // whatever the steps of a call
		for _, perCall := range c.perCall {
			t.Run(fmt.Sprintf("%d cores, %d steps", c.replicas, perCall), func(t *testing.T) {
				m := openTPU(t, export, c.replicas, perCall)
				start(t, m.Model, rand.New(rand.NewPCG(3, 5)))
				got, err := m.Steps(t.Context(), steps)
				if err != nil {
					t.Fatal(err)
				}
				if len(got) != len(want) {
					t.Fatalf("%d results, want %d", len(got), len(want))
				}
				agree(t, m.Model, pointers(got), mirrored, pointers(want))
				for name, values := range held(t, m.Model) {
					b := bytesOf(t, values[0])
					if same[name] != nil && !slices.Equal(same[name], b) {
						t.Errorf("%s has other bits than after calls of %d steps", name, c.perCall[0])
					}
					same[name] = b
				}
			})
		}
	}
}

// TestTPUShapes makes steps and evaluations of several shapes, those of CPU devices.
func TestTPUShapes(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export := replicaExport(t)
	short := map[string]int64{"rows": 3, "length": 8, "examples": 4}
	steps, rng := fixedSteps(t, 2, 6), rand.New(rand.NewPCG(7, 8))
	for _, k := range []int{1, 2, 4} {
		steps[k].Batches = [][]Feature{batchOf(t, rng, short), batchOf(t, rng, short)}
	}
	mirrored, err := NewMirrored(t.Context(), export, cpus(2), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer mirrored.Close()
	start(t, mirrored, rand.New(rand.NewPCG(3, 5)))
	want, err := mirrored.Steps(t.Context(), steps)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewTPU(t.Context(), export, startTPU(t), Config{Replicas: 2, StepsPerCall: 4, Axes: tpuShape, MoreAxes: []map[string]int64{short}, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	start(t, m.Model, rand.New(rand.NewPCG(3, 5)))
	got, err := m.Steps(t.Context(), steps)
	if err != nil {
		t.Fatal(err)
	}
	var gots, wants []*Result
	for i := range got {
		gots, wants = append(gots, &got[i]), append(wants, &want[i])
	}
	if len(got) != len(steps) {
		t.Fatalf("%d results, want %d", len(got), len(steps))
	}
	agree(t, m.Model, gots, mirrored, wants)
	for _, k := range []int{0, 1} {
		sums, err := m.EvaluateAll(t.Context(), steps[k].Batches)
		if err != nil {
			t.Fatal(err)
		}
		one, err := m.Evaluate(t.Context(), steps[k].Batches[1])
		if err != nil {
			t.Fatal(err)
		}
		for i, batch := range steps[k].Batches {
			part, err := mirrored.Evaluate(t.Context(), batch)
			if err != nil {
				t.Fatal(err)
			}
			for name, values := range part {
				for j, v := range values {
					sums[name][j] -= v
					if i == 1 && math.Abs(one[name][j]-v) > 1e-5 {
						t.Errorf("evaluation %d of one batch: %s is %v, want %v", k, name, one[name], values)
					}
				}
			}
		}
		for name, left := range sums {
			for _, v := range left {
				if math.Abs(v) > 1e-4 {
					t.Errorf("evaluation %d: %s differs by %v", k, name, left)
				}
			}
		}
	}
	if _, err := m.Predict(t.Context(), steps[1].Batches[0]); err == nil || !strings.Contains(err.Error(), "the shape that the TPU's program was made for") {
		t.Errorf("a prediction of another shape: %v", err)
	}
	odd := map[string]int64{"rows": 3, "length": 12, "examples": 4}
	bad := steps[:1]
	bad[0].Batches = [][]Feature{batchOf(t, rng, odd), batchOf(t, rng, odd)}
	if _, err := m.Steps(t.Context(), bad); !errors.Is(err, fault.Usage) {
		t.Errorf("a step of an unknown shape: %v", err)
	}
}

// TestTPUStopsBehindARefusedStep gives a step of a loop a weight that is not finite.
func TestTPUStopsBehindARefusedStep(t *testing.T) {
	m := openTPU(t, replicaExport(t), 2, 5)
	start(t, m.Model, rand.New(rand.NewPCG(3, 5)))
	steps := fixedSteps(t, 2, 5)
	bad := &dataset.Batch{Features: steps[2].Batches[1]}
	bad.Feature(packed.ExampleWeights).Float32[0] = float32(math.NaN())
	got, err := m.Steps(t.Context(), steps)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || !got[0].Applied || !got[1].Applied || got[2].Applied || got[2].Iterations != 2 {
		t.Fatalf("got %+v, want two applied steps and a refused one", got)
	}
	before := held(t, m.Model)
	if got, err = m.Steps(t.Context(), steps[2:]); err != nil || len(got) != 1 || got[0].Applied {
		t.Fatalf("got %+v, %v, want a refused step", got, err)
	}
	for name, after := range held(t, m.Model) {
		for i, v := range after {
			if !slices.Equal(bytesOf(t, v), bytesOf(t, before[name][i])) {
				t.Errorf("a refused step changed %s on core %d", name, i)
			}
		}
	}
	if got, err = m.Steps(t.Context(), steps[3:]); err != nil || len(got) != 2 || got[1].Iterations != 4 {
		t.Fatalf("got %+v, %v, want steps 3 and 4", got, err)
	}
}

// TestTPUOnTwoHosts trains on the cores of a TPU of two hosts.
func TestTPUOnTwoHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export, steps := replicaExport(t), fixedSteps(t, 6, 2)
	system, _ := emulatedTPU(t, 2, emulator.None)
	m, err := NewTPU(t.Context(), export, system, Config{Replicas: 6, StepsPerCall: 2, Axes: tpuShape})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var hosts []string
	for _, d := range m.Runtime().Devices {
		hosts = append(hosts, d[:strings.Index(d, "/device")])
	}
	slices.Sort(hosts)
	if want := []string{"/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"}; !slices.Equal(slices.Compact(hosts), want) {
		t.Errorf("the replicas are on %v, want %v", hosts, want)
	}
	one, err := NewMirrored(t.Context(), export, cpus(6), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	var losses []float64
	for _, s := range []Strategy{m, one} {
		model, ok := s.(*Model)
		if !ok {
			model = m.Model
		}
		start(t, model, rand.New(rand.NewPCG(3, 5)))
		results, err := s.Steps(t.Context(), steps)
		if err != nil || len(results) != 2 {
			t.Fatalf("%d results, %v", len(results), err)
		}
		losses = append(losses, results[1].Sums["loss_sum"][0])
	}
	if !near(losses[0], losses[1], 1e-5) {
		t.Errorf("losses %v, want the same", losses)
	}
}

// TestTPUEvaluates holds evaluation and prediction, alone, gathered and at once, against those of a
// CPU, also of an export that computes in bfloat16.
func TestTPUEvaluates(t *testing.T) {
	export := replicaExport(t)
	one, err := NewOneDevice(t.Context(), export, "", Config{Functions: FunctionsEvaluate, StandardOps: true})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	m, err := NewTPU(t.Context(), export, startTPU(t), Config{Functions: FunctionsEvaluate, Axes: tpuShape})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if r := m.Runtime(); len(r.Devices) != 8 || r.MicroBatches != 8 || r.StepsPerCall != 1 || r.InFlight != 16 || r.Devices[7] != "/job:worker/replica:0/task:0/device:TPU:7" {
		t.Errorf("runtime %+v", r)
	}
	start(t, one, rand.New(rand.NewPCG(3, 5)))
	start(t, m.Model, rand.New(rand.NewPCG(3, 5)))
	equal := func(got, want map[string][]float64) {
		t.Helper()
		if len(got) != len(want) {
			t.Errorf("outputs %v, want %v", got, want)
		}
		for name, values := range want {
			for i, v := range values {
				if len(got[name]) != len(values) || !near(got[name][i], v, 1e-5) {
					t.Fatalf("%s is %v, want %v", name, got[name], values)
				}
			}
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	var batches [][]Feature
	sums := make(map[string][]float64)
	var calls sync.WaitGroup
	for i := range 11 {
		features := fixedBatch(t, rng)
		wantSums, err := one.Evaluate(t.Context(), features)
		if err != nil {
			t.Fatal(err)
		}
		wantAnswers, err := one.Predict(t.Context(), features)
		if err != nil {
			t.Fatal(err)
		}
		if i < 3 {
			batches = append(batches, features)
			for name, values := range wantSums {
				for k, v := range values {
					if len(sums[name]) == k {
						sums[name] = append(sums[name], 0)
					}
					sums[name][k] += v
				}
			}
		}
		calls.Go(func() {
			if got, err := m.Evaluate(t.Context(), features); err != nil {
				t.Error(err)
			} else {
				equal(got, wantSums)
			}
			if got, err := m.Predict(t.Context(), features); err != nil {
				t.Error(err)
			} else {
				equal(got, wantAnswers)
			}
		})
	}
	calls.Wait()
	got, err := m.EvaluateAll(t.Context(), batches)
	if err != nil {
		t.Fatal(err)
	}
	equal(got, sums)
	if _, err := m.Steps(t.Context(), fixedSteps(t, 8, 1)); err == nil || !strings.Contains(err.Error(), "composed for evaluation only") {
		t.Errorf("got %v", err)
	}
}

// TestTPUInBF16 makes a step of an export that computes in bfloat16.
func TestTPUInBF16(t *testing.T) {
	if why := devices.NoBF16(); why != "" {
		t.Skip(why)
	}
	if testing.Short() {
		t.Skip("computes for long")
	}
	export, err := graphs.Open(testkit.Export(t, `{"vocab_size": 30, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48, "max_position_embeddings": 16}`, "--num-labels", "3", "--precision", "bf16"))
	if err != nil {
		t.Fatal(err)
	}
	steps := fixedSteps(t, 2, 2)
	var losses [][]float64
	for _, on := range []func() (Strategy, *Model){
		func() (Strategy, *Model) { m := openTPU(t, export, 2, 2); return m, m.Model },
		func() (Strategy, *Model) {
			m, err := NewMirrored(t.Context(), export, cpus(2), Config{StandardOps: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { m.Close() })
			return m, m
		},
	} {
		s, m := on()
		start(t, m, rand.New(rand.NewPCG(3, 5)))
		results, err := s.Steps(t.Context(), steps)
		if err != nil || len(results) != 2 || !results[1].Applied {
			t.Fatalf("got %+v, %v", results, err)
		}
		losses = append(losses, results[1].Sums["loss_sum"])
	}
	if !near(losses[0][0], losses[1][0], 1e-2) {
		t.Errorf("loss %v on an emulated TPU, %v on CPUs", losses[0], losses[1])
	}
}

// TestTPUErrors gives a TPU what it cannot take, and takes it away.
func TestTPUErrors(t *testing.T) {
	export := replicaExport(t)
	system, stop := emulatedTPU(t, 1, emulator.None)
	if _, err := NewTPU(t.Context(), export, system, Config{}); err == nil || fault.Of(err) != fault.Usage || !strings.Contains(err.Error(), "a TPU's program has fixed shapes") {
		t.Errorf("got %v", err)
	}
	m, err := NewTPU(t.Context(), export, system, Config{Replicas: 2, StepsPerCall: 2, Axes: tpuShape})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	start(t, m.Model, rand.New(rand.NewPCG(3, 5)))
	steps := fixedSteps(t, 2, 2)
	for want, change := range map[string]func(*StepInput){
		"set StepInput.Batches, not Drawn":                                func(in *StepInput) { in.Drawn = new(Drawn) },
		"1 micro-batches given; expected 2, one for each core of the TPU": func(in *StepInput) { in.Batches = in.Batches[:1] },
		"the step has no learning_rate":                                   func(in *StepInput) { in.Scalars = nil },
		"the batch has no feature":                                        func(in *StepInput) { in.Batches = [][]Feature{in.Batches[0], nil} },
		"has shape [2]; expected [4], the shape that the TPU's program was made for": func(in *StepInput) {
			short := slices.Clone(in.Batches[1])
			for i, name := range []string{packed.ClsPositions, packed.LabelIDs} {
				short[i] = Feature{Name: name, Shape: []int{2}, Int32: make([]int32, 2)}
			}
			short[2] = Feature{Name: packed.ExampleWeights, Shape: []int{2}, Float32: make([]float32, 2)}
			in.Batches = [][]Feature{in.Batches[0], short}
		},
	} {
		in := steps[1]
		change(&in)
		if _, err := m.Steps(t.Context(), []StepInput{steps[0], in}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := m.EvaluateAll(t.Context(), nil); err == nil || fault.Of(err) != fault.Usage || !strings.Contains(err.Error(), "0 batches given; expected 1 to 2") {
		t.Errorf("got %v", err)
	}
	if _, err := m.Steps(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	stop()
	var lost *TPULostError
	if _, err := m.Steps(t.Context(), steps); !errors.As(err, &lost) {
		t.Errorf("got %v, want a lost TPU", err)
	}
	if _, err := m.Evaluate(t.Context(), steps[0].Batches[0]); !errors.As(err, &lost) {
		t.Errorf("got %v, want a lost TPU", err)
	}
}

// TestTPUFaults lets the second call of a program go wrong, and makes the step again where that is
// possible.
func TestTPUFaults(t *testing.T) {
	export := replicaExport(t)
	steps := fixedSteps(t, 1, 2)
	for _, c := range []struct {
		fault        emulator.Fault
		lost, memory bool
		want         string
	}{
		{"hang@2", true, false, "a call got no reply for 2s;"}, // not as long as the first, which compiles
		{"forget@2", true, false, "is not found"},
		{"fail@2", false, false, "fail"},
		{"oom@2", false, true, "out of memory: training step: "},
		{"cut@2", true, false, "the connection was cut during a call, and whether its steps were made is not known"},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			system, _ := emulatedTPU(t, 1, c.fault)
			m, err := NewTPU(t.Context(), export, system, Config{Replicas: 1, StepsPerCall: 1, Axes: tpuShape, Patience: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			start(t, m.Model, rand.New(rand.NewPCG(3, 5)))
			if _, err := m.Steps(t.Context(), steps[:1]); err != nil {
				t.Fatal(err)
			}
			if c.fault == "hang@2" { // the others get their time on a busy machine
				m.session.patience, m.session.longest = 2*time.Second, time.Millisecond
			}
			got, err := m.Steps(t.Context(), steps[1:])
			var lost *TPULostError
			var memory *OutOfMemoryError
			if len(got) != 0 || err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &lost) != c.lost || errors.As(err, &memory) != c.memory {
				t.Errorf("%d results and %v; want none and %s", len(got), err, c.want)
			}
			if _, err := m.Steps(t.Context(), steps[1:]); c.lost && !errors.As(err, &lost) {
				t.Errorf("the next step: %v, want a lost TPU", err)
			}
		})
	}
}

// TestTPUCompiles makes the first call of each program with a TPU that takes longer for it, as a compiler
// does, than a call may take.
func TestTPUCompiles(t *testing.T) {
	t.Parallel()
	export, steps := replicaExport(t), fixedSteps(t, 1, 1)
	system, _ := emulatedTPU(t, 1, "slow@1:3s")
	m, err := NewTPU(t.Context(), export, system, Config{Replicas: 1, StepsPerCall: 1, Axes: tpuShape, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	start(t, m.Model, rand.New(rand.NewPCG(3, 5)))
	for _, c := range []struct {
		program string
		call    func() error
	}{
		{"train", func() error { _, err := m.Steps(t.Context(), steps); return err }},
		{"evaluate", func() error { _, err := m.Evaluate(t.Context(), steps[0].Batches[0]); return err }},
	} {
		m.session.patience, m.session.longest = 2*time.Second, time.Millisecond
		if err := c.call(); err != nil {
			t.Errorf("%s: %v", c.program, err)
		}
	}
}

// silence is a listener whose connections go silent at will: what is sent stays where it is, as for a
// machine that is gone or a process that is stopped.
type silence struct {
	net.Listener
	mu sync.Mutex // held while silent
}

func (s *silence) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	return silenced{c, s}, err
}

// silenced is a connection that reads nothing while it is to be silent.
type silenced struct {
	net.Conn
	by *silence
}

func (c silenced) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.by.mu.Lock()
	defer c.by.mu.Unlock()
	return n, err
}

// lines sends what is written.
type lines chan<- string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// TestTPUSilentAtEachCall makes each call of a strategy with a TPU that has gone silent. The call ends,
// and so does Close, after which another session can be made.
func TestTPUSilentAtEachCall(t *testing.T) {
	export, steps := replicaExport(t), fixedSteps(t, 1, 1)
	ctx, batch := t.Context(), steps[0].Batches[0]
	for name, call := range map[string]func(m *TPU, system *tpu.System, c Config) error{
		"prepare": func(_ *TPU, system *tpu.System, c Config) error {
			c.Patience = 100 * time.Millisecond
			_, err := NewTPU(ctx, export, system, c)
			return err
		},
		"steps":    func(m *TPU, _ *tpu.System, _ Config) error { _, err := m.Steps(ctx, steps); return err },
		"evaluate": func(m *TPU, _ *tpu.System, _ Config) error { _, err := m.Evaluate(ctx, batch); return err },
		"predict":  func(m *TPU, _ *tpu.System, _ Config) error { _, err := m.Predict(ctx, batch); return err },
		"read": func(m *TPU, _ *tpu.System, _ Config) error {
			_, err := m.Read(ctx, export.Contract.Optimizer.Iterations)
			return err
		},
		"close": func(m *TPU, _ *tpu.System, _ Config) error { return m.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := new(silence)
			system, _ := emulatedTPUBehind(t, 1, emulator.None, func(l net.Listener) net.Listener { s.Listener = l; return s })
			log := make(chan string, 10)
			c := Config{Replicas: 1, StepsPerCall: 1, Axes: tpuShape, Patience: time.Minute, Log: slog.New(slog.NewTextHandler(lines(log), nil))}
			m, err := NewTPU(ctx, export, system, c)
			if err != nil {
				t.Fatal(err)
			}
			start(t, m.Model, rand.New(rand.NewPCG(3, 5)))
			m.session.patience, m.session.longest = 100*time.Millisecond, time.Millisecond
			s.mu.Lock()
			speaks := sync.OnceFunc(s.mu.Unlock)
			defer speaks()
			err = call(m, system, c)
			var lost *TPULostError
			if name == "close" && err != context.DeadlineExceeded || name != "close" && !errors.As(err, &lost) {
				t.Errorf("error %v", err)
			}
			if err := m.Close(); err != nil && name != "prepare" {
				t.Errorf("close behind a call that was left: %v", err)
			}
			if line := <-log; !strings.Contains(line, "TensorFlow does not come back from a call") {
				t.Errorf("the log is %s", line)
			}
			speaks()
			c.Log = nil
			later, err := NewTPU(ctx, export, system, c)
			if err != nil {
				t.Fatal(err)
			}
			start(t, later.Model, rand.New(rand.NewPCG(3, 5)))
			if err := later.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTPUMessages are messages of real TPUs, as users have reported them.
func TestTPUMessages(t *testing.T) {
	for text, want := range map[string]struct{ memory, lost bool }{
		"Compilation failure: Ran out of memory in memory space hbm. Used 8.38G of 8.00G hbm. Exceeded hbm capacity by 385.25M.": {memory: true},
		"Attempting to reserve 12.05G at the bottom of memory. That was not possible. There are 7.48G free":                      {memory: true},
		"The TPU system has not been initialized.":                                          {lost: true},
		"Session ef9fc537f782c0ae is not found. Possibly, this master has restarted.":       {lost: true},
		"RPC failed with status = \"Unavailable: Socket closed\"":                           {lost: true},
		"Compilation failure: Detected unsupported operations when trying to compile graph": {},
	} {
		err := errors.New(text)
		var lost *TPULostError
		if got := oom(err); got != want.memory {
			t.Errorf("out of memory %v: %s", got, text)
		}
		if got := errors.As((&lease{peer: "grpc://10.0.0.2:8470", failed: make(chan struct{})}).lost(err), &lost); got != want.lost {
			t.Errorf("lost %v: %s", got, text)
		}
	}
}

// TestTPUVariablesInGroups keeps messages small.
func TestTPUVariablesInGroups(t *testing.T) {
	m := &TPU{Model: &Model{plan: &compose.Plan{Variables: []compose.Variable{{Name: "a", Shape: []int64{2}}, {Name: "b"}, {Name: "c", Shape: []int64{9, 9}}, {Name: "d"}}}}}
	got := fmt.Sprint(m.groups([]string{"a", "b", "c", "d", "none"}, 24), m.groups(nil, 24), m.groups([]string{"none"}, 24))
	if want := "[[a b] [c] [d none]] [] [[none]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestTPUCountsSteps wants the TPU to have made every step once.
func TestTPUCountsSteps(t *testing.T) {
	m := &TPU{Model: &Model{updates: 4, session: &session{cluster: &lease{failed: make(chan struct{})}}}}
	if err := m.count([]Result{{Applied: true, Iterations: 5}, {Applied: true, Iterations: 6}, {Iterations: 6}}); err != nil {
		t.Error(err)
	}
	var lost *TPULostError
	if err := m.count([]Result{{Applied: true, Iterations: 8}}); !errors.As(err, &lost) || !strings.Contains(err.Error(), "the TPU counts 8 steps; expected 7") || m.session.cluster.Err() == nil {
		t.Errorf("got %v", err)
	}
}

// TestTPUGoesSilent gives up a call that gets no reply.
func TestTPUGoesSilent(t *testing.T) {
	l := &lease{peer: "grpc://10.0.0.2:8470", failed: make(chan struct{})}
	if l.Err() != nil {
		t.Errorf("got %v", l.Err())
	}
	l.Fail(l.silent(90 * time.Second))
	l.Fail(errors.New("later"))
	<-l.Failed()
	var lost *TPULostError
	if err := l.Err(); !errors.As(err, &lost) || err.Error() != "lost the TPU: grpc://10.0.0.2:8470: a call got no reply for 1m30s; check the TPU with gorbit tpu describe" {
		t.Errorf("got %v", err)
	}
}

// What a TPU does not do is refused, not left out.
func TestTPURefusesConfig(t *testing.T) {
	topology, err := emulator.ParseTopology("2x1x1x1", 1)
	if err != nil {
		t.Fatal(err)
	}
	export := replicaExport(t)
	for field, c := range map[string]Config{"ShardOptimizer": {ShardOptimizer: true}, "Lanes": {Lanes: 2}, "LocalInput": {LocalInput: new(LocalInput)}} {
		c.Axes = tpuShape
		if _, err := NewTPUGraph(export, topology, "worker", c); !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), "Config."+field+" is set; expected none on a TPU") {
			t.Errorf("%s: error %v", field, err)
		}
	}
}
