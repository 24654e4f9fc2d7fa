package strategy

import (
	"bytes"
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"

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

// TestXLA holds two replicas whose passes XLA compiles, and whose gradients meet
// outside of what is compiled, against one replica of TensorFlow's operations and the
// package's: steps, an evaluation, a prediction and all variables.
func TestXLA(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	dir := testkit.Made(t, xlaModels)
	ctx := context.Background()
	open := func(name string, w way) *Model {
		export, err := graphs.Open(filepath.Join(dir, name))
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
		return m
	}
	xla, plain := open("xla", way{replicas: 2}), open("plain", way{replicas: 1})
	start(t, xla, rand.New(rand.NewPCG(3, 5)))
	start(t, plain, rand.New(rand.NewPCG(3, 5)))
	// One batch for all steps: every shape is compiled by itself.
	batch := randomBatch(t, rand.New(rand.NewPCG(7, 8)), 9)
	scalars := Scalars{"learning_rate": 0.01, "weight_decay": 0.1, "clip_norm": 1, "epsilon": 1e-4,
		"hidden_dropout": 0, "attention_dropout": 0, "classifier_dropout": 0}
	for step := range int64(3) {
		compare(t, xla, plain, func(m *Model) (*Result, error) {
			return stepOf(ctx, m, micro(t, batch, m.runtime.MicroBatches), [2]int64{1, step}, scalars)
		})
	}
	// The same steps in one call.
	looped := open("xla", way{replicas: 2, config: Config{StepsPerCall: 3}})
	start(t, looped, rand.New(rand.NewPCG(3, 5)))
	in := make([]StepInput, 3)
	for i := range in {
		in[i] = StepInput{Batches: micro(t, batch, 2), Seed: [2]int64{1, int64(i)}, Scalars: scalars}
	}
	makeAll(t, looped, in, 3)
	sameBits(t, looped, xla)

	// Dropout draws the same numbers for every micro-batch, whatever the run's seed.
	scalars["hidden_dropout"], scalars["attention_dropout"], scalars["classifier_dropout"] = 0.3, 0.3, 0.3
	for _, seed := range []int64{3, 5 << 40, -7} {
		compare(t, xla, plain, func(m *Model) (*Result, error) {
			return stepOf(ctx, m, micro(t, batch, 4), [2]int64{seed, 9}, scalars)
		})
	}

	whole := micro(t, batch, 1)[0]
	for _, call := range []func(*Model) (map[string][]float64, error){
		func(m *Model) (map[string][]float64, error) { return m.Evaluate(ctx, whole) },
		func(m *Model) (map[string][]float64, error) { return m.Predict(ctx, whole) },
	} {
		compare(t, xla, plain, func(m *Model) (*Result, error) {
			sums, err := call(m)
			return &Result{Sums: sums}, err
		})
	}
}
