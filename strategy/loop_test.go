package strategy

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset/packed"
)

// looped are the ways whose steps can be made several at a time.
var looped = []way{
	{"one device", 0, 1, 1, Config{}},
	{"one device, standard operations", 0, 1, 1, Config{StandardOps: true}},
	{"2 lanes", 0, 1, 1, Config{Lanes: 2}},
	{"mirrored 2", 0, 2, 1, Config{}},
	{"mirrored 3, with collectives", 0, 3, 1, Config{}},
	{"2 workers", 2, 1, 1, Config{}},
	{"2 workers, sharded", 2, 1, 1, Config{ShardOptimizer: true}},
	{"3 workers, with collectives", 3, 1, 1, Config{}},
	{"one device, as on GPUs", 0, 1, 1, Config{together: 1 << 20, StandardOps: true}},
	{"2 workers, sharded, as on GPUs", 2, 1, 1, Config{together: 1 << 13, ShardOptimizer: true}},
}

// failing are the ways of looped in which steps also are not applied, or fail.
var failing = []string{"2 lanes", "mirrored 3, with collectives", "2 workers, sharded", "one device, as on GPUs", "2 workers, sharded, as on GPUs"}

// inputs makes the inputs of steps with dropout, learning rates of their own, batches of several
// sizes, and seeds that follow those of the steps before.
func inputs(t testing.TB, replicas, steps int) []StepInput {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 8))
	out := make([]StepInput, steps)
	for i := range out {
		n := 13 - i%3
		if i%5 == 4 {
			n = 1 + i/5 // fewer than there are replicas
		}
		out[i] = StepInput{
			Batches: micro(t, randomBatch(t, rng, n), replicas),
			Seed:    [2]int64{1, int64(i)},
			Scalars: Scalars{"learning_rate": 0.01 / float64(1+i), "weight_decay": 0.1, "clip_norm": 1, "hidden_dropout": 0.2, "attention_dropout": 0.1},
		}
	}
	return out
}

// makeAll makes all steps, so many at a time, and returns their results without times.
func makeAll(t *testing.T, m *Model, in []StepInput, each int) []Result {
	t.Helper()
	var out []Result
	for len(in) > 0 {
		n := min(each, len(in))
		results, err := m.Steps(t.Context(), in[:n])
		if err != nil || len(results) != n {
			t.Fatalf("%d results of %d steps, %v", len(results), n, err)
		}
		for i := range results {
			if results[i].InSession <= 0 {
				t.Errorf("step %d took %v in the session", len(out)+i, results[i].InSession)
			}
			results[i].InSession = 0
		}
		out, in = append(out, results...), in[n:]
	}
	return out
}

// sameBits wants two models to have the same variables on all replicas.
func sameBits(t *testing.T, got, want *Model) {
	t.Helper()
	theirs := held(t, want)
	for name, all := range held(t, got) {
		for i, value := range all {
			if !bytes.Equal(bytesOf(t, value), bytesOf(t, theirs[name][i])) {
				t.Errorf("%s has other bits on replica %d", name, i)
			}
		}
	}
}

// TestLoopEqualsSingleSteps makes 20 steps one at a time, and 7 at a time, and wants the same bits of
// results and variables. Then it makes steps that are not applied, and that fail.
func TestLoopEqualsSingleSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	export := replicaExport(t)
	for _, w := range looped {
		t.Run(w.name, func(t *testing.T) {
			single := w.open(t, export)
			in := inputs(t, single.runtime.MicroBatches, 20)
			start(t, single, rand.New(rand.NewPCG(3, 5)))
			want := makeAll(t, single, in, 1)

			w.config.StepsPerCall = 7
			m := w.open(t, export)
			if m.Runtime().StepsPerCall != 7 {
				t.Errorf("%d steps per call; expected 7", m.Runtime().StepsPerCall)
			}
			start(t, m, rand.New(rand.NewPCG(3, 5)))
			for i, r := range makeAll(t, m, in, 7) {
				if !reflect.DeepEqual(r, want[i]) {
					t.Errorf("step %d gives %+v; alone %+v", i, r, want[i])
				}
			}
			sameBits(t, m, single)
			timed(t, m)
			if m.loops != 3 || single.loops != 0 {
				t.Errorf("%d calls of several steps, and %d of the other; expected 3 and 0", m.loops, single.loops)
			}
			if slices.Contains(failing, w.name) {
				t.Run("not finite", func(t *testing.T) { loopEndsWhereNotFinite(t, m, single) })
				// With collectives, a replica that fails would leave the others waiting.
				if !strings.Contains(w.name, "collectives") {
					t.Run("fails", func(t *testing.T) { loopFails(t, m, single) })
				}
			}
		})
	}
}

// loopEndsWhereNotFinite makes a call whose third step is not finite. It wants two steps that are
// applied, one that is not, and none behind it.
func loopEndsWhereNotFinite(t *testing.T, m, single *Model) {
	for _, m := range []*Model{single, m} {
		start(t, m, rand.New(rand.NewPCG(3, 5)))
	}
	in := inputs(t, single.runtime.MicroBatches, 5)
	for _, f := range in[2].Batches[0] {
		if f.Name == packed.ExampleWeights {
			f.Float32[0] = float32(math.Inf(1))
		}
	}
	before := m.updates
	for name, m := range map[string]*Model{"single": single, "loop": m} {
		results, err := m.Steps(t.Context(), in)
		if err != nil || len(results) != 3 || !results[1].Applied || results[2].Applied || results[2].Iterations != before+2 {
			t.Fatalf("%s: %+v, %v; expected two steps that are applied and one that is not", name, results, err)
		}
	}
	sameBits(t, m, single)
	rest := makeAll(t, m, in[3:], 2)
	for i, want := range makeAll(t, single, in[3:], 1) {
		if !reflect.DeepEqual(rest[i], want) {
			t.Errorf("step %d gives %+v; alone %+v", 3+i, rest[i], want)
		}
	}
	sameBits(t, m, single)
}

// loopFails makes a call whose third step has a token out of range. It wants what single steps give:
// the results of two steps, and an error of a step that has changed nothing.
func loopFails(t *testing.T, m, single *Model) {
	for _, m := range []*Model{single, m} {
		start(t, m, rand.New(rand.NewPCG(3, 5)))
	}
	in := inputs(t, single.runtime.MicroBatches, 5)
	for _, f := range in[2].Batches[0] {
		if f.Name == packed.InputIDs {
			f.Int32[0] = 1000
		}
	}
	var made [][]Result
	for name, m := range map[string]*Model{"single": single, "loop": m} {
		results, err := m.Steps(t.Context(), in)
		if err == nil || len(results) != 2 {
			t.Fatalf("%s: %d results, %v; expected two and an error", name, len(results), err)
		}
		for i := range results {
			results[i].InSession = 0
		}
		made = append(made, results)
	}
	if !reflect.DeepEqual(made[0], made[1]) {
		t.Errorf("the steps before it give %+v and %+v", made[0], made[1])
	}
	sameBits(t, m, single)

	// If it had been for want of memory, it could be made again of smaller parts.
	shortage := errors.New("OOM when allocating tensor with shape[1]")
	var again *OutOfMemoryError
	if err := m.stepError(t.Context(), shortage); !errors.As(err, &again) {
		t.Errorf("%v is no *OutOfMemoryError", err)
	}
	m.updates--
	if err := m.stepError(t.Context(), shortage); errors.As(err, &again) {
		t.Errorf("%v, but an update had begun", err)
	}
	m.updates++
	// A call that fails before its first step has no results, not those of the call before.
	if results, err := m.Steps(t.Context(), in[2:]); err == nil || len(results) != 0 {
		t.Errorf("%d results, %v; expected none and an error", len(results), err)
	}
	makeAll(t, m, in[3:], 2)
	makeAll(t, single, in[3:], 1)
	sameBits(t, m, single)
}

// TestStepsPerCallOfConfig has the numbers of steps per call that a config may ask for.
func TestStepsPerCallOfConfig(t *testing.T) {
	for _, test := range []struct {
		config Config
		want   string
	}{
		{Config{StepsPerCall: 10}, ""},
		{Config{StepsPerCall: -1}, "steps per call are -1; expected 0 (the strategy's best) to 10000"},
		{Config{StepsPerCall: 10_001}, "steps per call are 10001; expected 0 (the strategy's best) to 10000"},
		{Config{StepsPerCall: 1, LocalInput: new(LocalInput)}, ""},
		{Config{StepsPerCall: 2, LocalInput: new(LocalInput)}, "steps per call are 2; expected 0 or 1 if the workers read the data themselves: they keep the batches of few steps"},
	} {
		got := ""
		if err := test.config.Validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	m := way{replicas: 1, config: Config{StepsPerCall: 10, Functions: FunctionsEvaluate}}.open(t, replicaExport(t))
	if n := m.Runtime().StepsPerCall; n != 1 {
		t.Errorf("a model that only evaluates makes %d steps per call", n)
	}
}
