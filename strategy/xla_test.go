package strategy

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// xlaModels exports a model plain, and with its passes compiled by XLA.
const xlaModels = `
import sys
from gorbit_export import classifier, config, export, optimizers

c = config.BertConfig(32, 1, 2, 48, vocab_size=30, max_position_embeddings=16)
for name, xla in (("plain", False), ("xla", True)):
    task = classifier.Classification(c, 3, "mean")
    export.write(task, optimizers.AdamW(), f"{sys.argv[1]}/{name}", xla=xla)
`

// asCompiled returns an export as if it were made with --xla.
func asCompiled(export *graphs.Export) *graphs.Export {
	e, contract := *export, *export.Contract
	contract.XLA = true
	e.Contract, e.Functions = &contract, maps.Clone(export.Functions)
	for _, name := range []string{"gradients", "evaluate", "predict"} {
		f := *e.Functions[name]
		f.XLA = true
		e.Functions[name] = &f
	}
	return &e
}

// xlaScalars are those of a step without dropout.
var xlaScalars = Scalars{"learning_rate": 0.01, "weight_decay": 0.1, "clip_norm": 1, "epsilon": 1e-4,
	"hidden_dropout": 0, "attention_dropout": 0, "classifier_dropout": 0}

// openXLA opens one of xlaModels and starts it.
func openXLA(t *testing.T, name string, w way) *Model {
	t.Helper()
	export, err := graphs.Open(filepath.Join(testkit.Made(t, xlaModels), name))
	if err != nil {
		t.Fatal(err)
	}
	m := w.open(t, export)
	def, err := m.GraphDef()
	if err != nil {
		t.Fatal(err)
	}
	if own, compiled := bytes.Contains(def, []byte("GorbitAttention")), bytes.Contains(def, []byte("_XlaMustCompile")); own != (name == "plain") || compiled == own {
		t.Fatalf("%s: own kernels %v, compiled %v", name, own, compiled)
	}
	start(t, m, rand.New(rand.NewPCG(3, 5)))
	return m
}

// xlaSteps makes three steps of one shape, for which XLA compiles once, and holds each against
// TensorFlow's operations and the package's. Three in one call have the same bits.
func xlaSteps(t *testing.T, replicas int) *Model {
	xla, plain := openXLA(t, "xla", way{replicas: replicas}), openXLA(t, "plain", way{replicas: 1})
	batch := randomBatch(t, rand.New(rand.NewPCG(7, 8)), 9)
	for step := range int64(3) {
		compare(t, xla, plain, func(m *Model) (*Result, error) {
			return stepOf(t.Context(), m, micro(t, batch, m.runtime.MicroBatches), [2]int64{1, step}, xlaScalars)
		})
	}
	looped := openXLA(t, "xla", way{replicas: replicas, config: Config{StepsPerCall: 3}})
	in := make([]StepInput, 3)
	for i := range in {
		in[i] = StepInput{Batches: micro(t, batch, replicas), Seed: [2]int64{1, int64(i)}, Scalars: xlaScalars}
	}
	makeAll(t, looped, in, 3)
	sameBits(t, looped, xla)
	return xla
}

// TestXLA holds two replicas whose passes XLA compiles, and whose gradients meet outside of what is
// compiled, against one replica of TensorFlow's operations and the package's: steps, an evaluation, a
// prediction and all variables.
func TestXLA(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	xla, plain := xlaSteps(t, 2), openXLA(t, "plain", way{replicas: 1})
	values := make(map[string]*tf.Tensor)
	for name, all := range held(t, xla) {
		values[name] = all[0]
	}
	if err := plain.Assign(t.Context(), values); err != nil {
		t.Fatal(err)
	}
	whole := micro(t, randomBatch(t, rand.New(rand.NewPCG(7, 8)), 9), 1)[0]
	for _, call := range []func(*Model) (map[string][]float64, error){
		func(m *Model) (map[string][]float64, error) { return m.Evaluate(t.Context(), whole) },
		func(m *Model) (map[string][]float64, error) { return m.Predict(t.Context(), whole) },
	} {
		compare(t, xla, plain, func(m *Model) (*Result, error) {
			sums, err := call(m)
			return &Result{Sums: sums}, err
		})
	}
}

// inXLAChild is set in the process that TestXLAProgram starts.
const inXLAChild = "GORBIT_TEST_XLA_CHILD"

// TestXLAProgram holds the steps of one replica, each of which is one program, against TensorFlow's
// operations. It makes them in a process of its own, where XLA writes down what it compiles: the
// step once in each session, whatever the batches hold.
func TestXLAProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	if os.Getenv(inXLAChild) == "" {
		dir := t.TempDir()
		child := exec.Command(os.Args[0], "-test.run=^TestXLAProgram$", "-test.v")
		child.Env = append(os.Environ(), inXLAChild+"=1", "XLA_FLAGS=--xla_dump_to="+dir+" --xla_dump_hlo_as_text")
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for program, want := range map[string]int{"gorbit_step": 2, "gorbit_round": 1, "gorbit_apply": 1} {
			made, err := filepath.Glob(filepath.Join(dir, "*"+program+"*.before_optimizations.txt"))
			if err != nil || len(made) != want {
				t.Errorf("%s was compiled %d times, %v; expected %d", program, len(made), err, want)
			}
		}
		return
	}
	m := xlaSteps(t, 1)
	// The calls: one for all that a step computes.
	nodes := make(map[string]int)
	for name := range m.session.ops {
		for _, kind := range []string{"update/", "applied/", "select", "squares/"} {
			if strings.HasPrefix(name, kind) {
				nodes[kind]++
			}
		}
	}
	if len(nodes) > 0 {
		t.Errorf("outside of the programs are %v", nodes)
	}
	// A step again from what was read before it, which no later step changes.
	batch := randomBatch(t, rand.New(rand.NewPCG(7, 8)), 9)
	step := func(batches ...[]Feature) {
		t.Helper()
		if r, err := stepOf(t.Context(), m, batches, [2]int64{2, 0}, xlaScalars); err != nil || !r.Applied {
			t.Fatal(r, err)
		}
	}
	read := func() map[string]*tf.Tensor {
		out := make(map[string]*tf.Tensor)
		for name, all := range held(t, m) {
			out[name] = all[0]
		}
		return out
	}
	before := read()
	step(micro(t, batch, 1)...)
	want := read()
	if err := m.Assign(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	step(micro(t, batch, 1)...)
	for name, value := range read() {
		if !bytes.Equal(bytesOf(t, value), bytesOf(t, want[name])) {
			t.Errorf("%s has other bits when the step is made again", name)
		}
	}
	// In two micro-batches of the same shape.
	double := append(micro(t, batch, 1), micro(t, batch, 1)...)
	step(double...)
	step(double...)
}
