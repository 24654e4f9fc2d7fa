package strategy

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"
)

// TestGradients holds the gradients of every way to divide a batch against those of one replica, and
// their norm against that of the step, which follows with the same bits as a step without them.
func TestGradients(t *testing.T) {
	export := replicaExport(t)
	scalars := Scalars{"learning_rate": 0.01, "hidden_dropout": 0, "attention_dropout": 0, "classifier_dropout": 0}
	var want map[string][]float32
	for _, w := range []way{
		{"one", 0, 1, 1, Config{}},
		{"accumulate 3", 0, 1, 3, Config{}},
		{"2 lanes, accumulate 2", 0, 1, 2, Config{Lanes: 2}},
		{"mirrored 2", 0, 2, 1, Config{}},
		{"sharded 2, standard operations", 0, 2, 1, Config{ShardOptimizer: true, StandardOps: true}},
		{"2 workers", 2, 1, 1, Config{}},
	} {
		t.Run(w.name, func(t *testing.T) {
			m, rng := w.started(t, export)
			other, _ := w.started(t, export)
			in := StepInput{Batches: micro(t, randomBatch(t, rng, 13), m.runtime.MicroBatches*w.accumulate), Seed: [2]int64{1, 2}, Scalars: scalars}
			got, err := m.Gradients(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got
			}
			if len(got) != len(export.Contract.Variables) {
				t.Errorf("gradients of %d variables, expected %d", len(got), len(export.Contract.Variables))
			}
			var squares float64
			for name, values := range want {
				for i, v := range values {
					squares += float64(got[name][i]) * float64(got[name][i])
					if math.Abs(float64(got[name][i]-v)) > 1e-5*(1e-2+math.Abs(float64(v))) {
						t.Fatalf("gradient of %s has %v at %d, of one replica %v", name, got[name][i], i, v)
					}
				}
			}
			results, err := m.Steps(t.Context(), []StepInput{in})
			if err != nil {
				t.Fatal(err)
			}
			if norm := math.Sqrt(squares); norm == 0 || !near(norm, results[0].GradientNorm, 1e-5) {
				t.Errorf("the norm is %v, of the step %v", norm, results[0].GradientNorm)
			}
			if _, err := other.Steps(t.Context(), []StepInput{in}); err != nil {
				t.Fatal(err)
			}
			theirs := held(t, other)
			for name, all := range held(t, m) {
				if !bytes.Equal(bytesOf(t, all[0]), bytesOf(t, theirs[name][0])) {
					t.Errorf("%s has other bits than after a step without gradients", name)
				}
			}
		})
	}
}

func TestNoGradients(t *testing.T) {
	m, rng := way{name: "XLA", replicas: 1}.started(t, replicaExport(t))
	_, err := m.Gradients(t.Context(), StepInput{Batches: micro(t, randomBatch(t, rng, 4), 1), Scalars: Scalars{"learning_rate": 1}})
	if err == nil || !strings.Contains(err.Error(), "XLA compiles the step as one program") {
		t.Errorf("gradients of a program: %v", err)
	}
}

// overwritten sets all values of a variable, and returns what it was.
func overwritten(t *testing.T, m *Model, name string, value func(i int) float32) *tf.Tensor {
	t.Helper()
	old, err := m.Read(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, len(bytesOf(t, old[0]))/4)
	for i := range values {
		values[i] = value(i)
	}
	next, err := newTensor(tf.Float, old[0].Shape(), raw(values))
	if err == nil {
		err = m.Assign(t.Context(), map[string]*tf.Tensor{name: next})
	}
	if err != nil {
		t.Fatal(err)
	}
	return old[0]
}

// variants returns how many functions Diagnose has added to the graph.
func (m *Model) variants() (n int) {
	for _, p := range m.probes {
		n += len(p.variants)
	}
	return n
}

// TestDiagnose makes passes that are not finite in a known place: NaN in a variable, a product that
// overflows, and a weight that is infinite.
func TestDiagnose(t *testing.T) {
	const kernel = "model/encoder/layers/0/attention/query/kernel"
	for _, folder := range []string{"graph", "fp16"} {
		for _, w := range []way{{"one", 0, 1, 1, Config{}}, {"2 lanes, accumulate 2", 0, 1, 2, Config{Lanes: 2}}, {"mirrored 2, standard operations", 0, 2, 1, Config{StandardOps: true}}, {"2 workers", 2, 1, 1, Config{}}} {
			t.Run(folder+", "+w.name, func(t *testing.T) {
				m, _ := w.started(t, replicaExportIn(t, folder))
				in := StepInput{Batches: micro(t, randomBatch(t, rand.New(rand.NewPCG(1, 2)), 13), m.runtime.MicroBatches*w.accumulate), Seed: [2]int64{1, 2}, Scalars: Scalars{"learning_rate": 0.01}}
				diagnose := func() *Diagnosis {
					t.Helper()
					d, err := m.Diagnose(t.Context(), in)
					if err != nil {
						t.Fatal(err)
					}
					return d
				}
				if d := diagnose(); d.Tensor != nil || d.Gradient != nil {
					t.Fatalf("a finite pass has %+v and %+v", d.Tensor, d.Gradient)
				}
				old := overwritten(t, m, kernel, func(i int) float32 {
					if i == 3 {
						return float32(math.NaN())
					}
					return 2
				})
				d := diagnose()
				if d.Tensor == nil || d.Tensor.Op != "ReadVariableOp" || d.Tensor.NaNs != 1 || d.Tensor.Infinite != 0 || d.Tensor.Largest != 2 || d.Tensor.Variable != kernel || d.Gradient == nil || d.Gradient.NaNs == 0 {
					t.Errorf("NaN in a variable: %+v and %+v", d.Tensor, d.Gradient)
				}
				added := m.variants()
				if diagnose(); m.variants() != added || added == 0 {
					t.Errorf("%d functions were added for a failure, and %d when it came again", added, m.variants()-added)
				}
				overwritten(t, m, kernel, func(int) float32 { return 3e38 })
				d = diagnose()
				if d.Tensor == nil || d.Tensor.Infinite+d.Tensor.NaNs == 0 || d.Tensor.Op == "ReadVariableOp" || !strings.HasPrefix(d.Tensor.Variable, "model/encoder/layers/0/attention/") {
					t.Errorf("a product that overflows: %+v", d.Tensor)
				}
				if err := m.Assign(t.Context(), map[string]*tf.Tensor{kernel: old}); err != nil {
					t.Fatal(err)
				}
				if d := diagnose(); d.Tensor != nil || d.Gradient != nil {
					t.Errorf("a finite pass has %+v and %+v", d.Tensor, d.Gradient)
				}
			})
		}
	}
}

// TestTrace traces a step in this process and on workers. It has the bits of one without a trace, and the
// trace has operations of every device.
func TestTrace(t *testing.T) {
	for _, w := range []way{{"2 lanes", 0, 1, 1, Config{Lanes: 2}}, {"2 workers", 2, 1, 1, Config{}}} {
		t.Run(w.name, func(t *testing.T) {
			m, rng := w.started(t, replicaExport(t))
			other, _ := w.started(t, replicaExport(t))
			in := []StepInput{{Batches: micro(t, randomBatch(t, rng, 13), m.runtime.MicroBatches), Seed: [2]int64{1, 2}, Scalars: Scalars{"learning_rate": 0.01}}}
			trace := new(Trace)
			if _, err := m.Steps(WithTrace(t.Context(), trace), in); err != nil {
				t.Fatal(err)
			}
			if _, err := other.Steps(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			theirs := held(t, other)
			for name, all := range held(t, m) {
				if !bytes.Equal(bytesOf(t, all[0]), bytesOf(t, theirs[name][0])) {
					t.Errorf("%s has other bits than after a step without a trace", name)
				}
			}
			if len(trace.Calls()) != 1 {
				t.Fatalf("%d calls, expected 1", len(trace.Calls()))
			}
			ran := make(map[string]bool)
			for _, d := range trace.Calls()[0].Stats.GetDevStats() {
				ran[d.GetDevice()] = len(d.GetNodeStats()) > 100
			}
			devices := 0
			for _, yes := range ran {
				if yes {
					devices++
				}
			}
			if want := max(1, w.workers); devices != want {
				t.Errorf("operations of %d devices, expected %d: %v", devices, want, ran)
			}
		})
	}
}
