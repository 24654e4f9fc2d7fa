package strategy

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// partSteps makes steps without clipping, whose norm is a sum of other parts, and returns the variables. One step
// is not applied.
func partSteps(t *testing.T, m *Model, accumulate int, batch func(*rand.Rand) [][]Feature) map[string][]float64 {
	t.Helper()
	start(t, m, rand.New(rand.NewPCG(7, 7)))
	rng := rand.New(rand.NewPCG(3, 5))
	var in []StepInput
	for step := range 4 {
		i := StepInput{Seed: [2]int64{1, int64(step)}, Scalars: Scalars{"learning_rate": 0.01, "weight_decay": 0.1, "clip_norm": 0}}
		for _, h := range m.export.Contract.AllHyperparameters() {
			if strings.HasSuffix(h.Name, "dropout") {
				i.Scalars[h.Name] = 0
			}
		}
		for len(i.Batches) < 2*accumulate {
			i.Batches = append(i.Batches, batch(rng)...)
		}
		if step == 2 {
			i.Scalars["weight_decay"], i.Scalars["learning_rate"] = 0.2, 0.02
		}
		in = append(in, i)
	}
	if last := in[1].Batches[0][0]; last.Float32 != nil {
		last.Float32[0] = float32(math.Inf(1))
	}
	for len(in) > 0 {
		results, err := m.Steps(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		in = in[len(results):]
	}
	return variables(t, m)
}

// TestPartsHaveTheSameBits holds a sharded optimizer, whose large variables are divided by rows, against that of
// two mirrored replicas: variables, slots and averages, bit for bit. Each replica must have half of the slots, and
// what a number of replicas leaves must be what another begins with.
func TestPartsHaveTheSameBits(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	dir := testkit.Made(t, optimizerModels)
	exports := map[string]*graphs.Export{"bert": replicaExport(t)}
	for _, name := range []string{"adamw", "sgd", "lion", "adafactor"} {
		var err error
		if exports[name], err = graphs.Open(filepath.Join(dir, name, "graph")); err != nil {
			t.Fatal(err)
		}
	}
	for name, export := range exports {
		batch := func(rng *rand.Rand) [][]Feature { return [][]Feature{lineBatch(rng, 3)} }
		if name == "bert" {
			batch = func(rng *rand.Rand) [][]Feature { return micro(t, randomBatch(t, rng, 7), 2) }
		}
		for _, w := range []way{
			{"plain", 0, 2, 1, Config{}},
			{"accumulated", 0, 2, 2, Config{}},
			{"standard operations, averages", 0, 2, 1, Config{StandardOps: true, Average: 0.9}},
			{"steps in a call", 0, 2, 1, Config{StepsPerCall: 3}},
		} {
			t.Run(name+"/"+w.name, func(t *testing.T) {
				want := partSteps(t, w.open(t, export), w.accumulate, batch)
				w.config.ShardOptimizer = true
				m := w.open(t, export)
				sameVariables(t, want, partSteps(t, m, w.accumulate, batch))
				if b := m.runtime.OptimizerBytes; name == "bert" && float64(slices.Max(b)) > 1.1*float64(slices.Min(b)) {
					t.Errorf("the replicas have slots of %d bytes", b)
				}
				movesTo(t, m, export, want)
			})
		}
	}
}

// movesTo takes the variables of a model to one whose optimizer three replicas share.
func movesTo(t *testing.T, m *Model, export *graphs.Export, want map[string][]float64) {
	t.Helper()
	var names []string
	for _, v := range m.Variables() {
		if !strings.HasPrefix(v.Name, graphs.AveragePrefix) {
			names = append(names, v.Name)
		}
	}
	values, err := m.Read(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]*tf.Tensor)
	for i, name := range names {
		all[name] = values[i]
	}
	other := way{replicas: 3, config: Config{ShardOptimizer: true}}.open(t, export)
	if err := other.Assign(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	got := variables(t, other)
	for name := range all {
		sameVariables(t, map[string][]float64{name: want[name]}, got)
	}
}
