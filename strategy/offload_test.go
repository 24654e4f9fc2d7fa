package strategy

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/testkit"
)

// offloadModels exports a model with each optimizer whose slots are of several windows of an update, the
// last of which is no whole page.
const offloadModels = lineTask + `
for name in ("adamw", "sgd", "lion", "lamb"):
    export.write(Line(wide=850001, tall=3), optimizers.OPTIMIZERS[name](), f"{sys.argv[1]}/{name}/graph")
`

// lineBatch returns random examples of a Line.
func lineBatch(rng *rand.Rand, examples int) []Feature {
	out := []Feature{{Name: "x", Shape: []int{examples, 5}}, {Name: "y", Shape: []int{examples, 3}}}
	for i := range out {
		for range examples * out[i].Shape[1] {
			out[i].Float32 = append(out[i].Float32, float32(rng.NormFloat64()))
		}
	}
	return out
}

// offloadSteps makes steps, one of which is not applied, and returns what they gave and all variables.
func offloadSteps(t *testing.T, w way, export *graphs.Export) ([]Result, map[string][]float64) {
	t.Helper()
	s := w.open(t, export)
	def, err := s.GraphDef()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range s.Variables() {
		slot := v.Slot && v.Name != export.Contract.Optimizer.Iterations && !strings.HasPrefix(v.Name, graphs.AveragePrefix)
		all := w.config.OffloadAll && v.Name != export.Contract.Optimizer.Iterations
		if v.Offloaded != (slot && w.config.Offload != "" || all) {
			t.Errorf("%s: offloaded is %v", v.Name, v.Offloaded)
		}
	}
	if got := bytes.Contains(def, []byte("GorbitMapped")); got != (w.config.Offload != "") {
		t.Errorf("files are in the graph: %v", got)
	}
	start(t, s, rand.New(rand.NewPCG(7, 7)))
	rng := rand.New(rand.NewPCG(3, 5))
	var in []StepInput
	for step := range 4 {
		i := StepInput{Seed: [2]int64{1, int64(step)}, Scalars: Scalars{"learning_rate": 0.01, "weight_decay": 0.1, "clip_norm": 0.7}}
		for range s.Runtime().MicroBatches * max(1, w.accumulate) {
			i.Batches = append(i.Batches, lineBatch(rng, 2))
		}
		in = append(in, i)
	}
	in[2].Batches[0][0].Float32[0] = float32(math.Inf(1))
	var out []Result
	for len(in) > 0 {
		results, err := s.Steps(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for i := range results {
			results[i].InSession = 0
		}
		out, in = append(out, results...), in[len(results):]
	}
	return out, variables(t, s)
}

// TestOffload holds steps with slots in files against those with slots in memory: results, variables and
// slots, bit for bit.
func TestOffload(t *testing.T) {
	if testing.Short() {
		t.Skip("computes for long")
	}
	dir := testkit.Made(t, offloadModels)
	for _, optimizer := range []string{"adamw", "sgd", "lion"} {
		export, err := graphs.Open(filepath.Join(dir, optimizer, "graph"))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []way{
			{name: "one device", replicas: 1},
			{name: "lanes", replicas: 1, config: Config{Lanes: 2}},
			{name: "accumulated", replicas: 1, accumulate: 2},
			{name: "steps in a call", replicas: 1, config: Config{StepsPerCall: 3}},
			{name: "averages", replicas: 1, config: Config{Average: 0.9}},
			{name: "averages of equal weights, lanes, accumulated", replicas: 1, accumulate: 2, config: Config{AverageFrom: 1, AverageEvery: 2, Lanes: 3}},
			{name: "steps in a call, lanes", replicas: 1, config: Config{StepsPerCall: 3, Lanes: 2}},
			{name: "mirrored", replicas: 2},
			{name: "sharded", replicas: 2, config: Config{ShardOptimizer: true}},
		} {
			if optimizer != "adamw" && w.name != "one device" {
				continue
			}
			t.Run(optimizer+"/"+w.name, func(t *testing.T) {
				results, want := offloadSteps(t, w, export)
				w.config.Offload = t.TempDir()
				for _, w.config.OffloadAll = range []bool{false, true} {
					if w.config.OffloadAll && w.replicas > 1 {
						continue // refused
					}
					offloaded, got := offloadSteps(t, w, export)
					if left, err := os.ReadDir(w.config.Offload); err != nil || len(left) > 0 {
						t.Errorf("files are left: %v, %v", left, err)
					}
					sameSteps(t, results, offloaded)
					sameVariables(t, want, got)
				}
			})
		}
	}
	t.Run("refused", func(t *testing.T) { offloadRefused(t, dir) })
}

// sameVariables compares the values of variables, bit for bit.
func sameVariables(t *testing.T, want, got map[string][]float64) {
	t.Helper()
	for name, values := range want {
		for i, v := range values {
			if math.Float64bits(got[name][i]) != math.Float64bits(v) {
				t.Errorf("%s[%d] is %v, expected %v", name, i, got[name][i], v)
				break
			}
		}
	}
}

// sameSteps compares the results of steps, bit for bit.
func sameSteps(t *testing.T, want, got []Result) {
	t.Helper()
	refused := 0
	for i, r := range want {
		g := got[i]
		same := math.Float64bits(r.GradientNorm) == math.Float64bits(g.GradientNorm) && r.Applied == g.Applied && r.Iterations == g.Iterations
		for name, sum := range r.Sums {
			same = same && math.Float64bits(sum[0]) == math.Float64bits(g.Sums[name][0])
		}
		if !same {
			t.Errorf("step %d is %+v, expected %+v", i, g, r)
		}
		if !r.Applied {
			refused++
		}
	}
	if len(got) != len(want) || refused != 1 {
		t.Errorf("%d steps, expected %d; %d of them not applied, expected 1", len(got), len(want), refused)
	}
}

// offloadRefused tries what slots in files are not for.
func offloadRefused(t *testing.T, dir string) {
	adamw, err := graphs.Open(filepath.Join(dir, "adamw", "graph"))
	if err != nil {
		t.Fatal(err)
	}
	lamb, err := graphs.Open(filepath.Join(dir, "lamb", "graph"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		export     *graphs.Export
		config     Config
	}{
		{"another optimizer", "the optimizer lamb has no kernel", lamb, Config{Offload: t.TempDir()}},
		{"without kernels", "only gorbit's kernels keep them there", adamw, Config{Offload: t.TempDir(), StandardOps: true}},
		{"XLA", "only gorbit's kernels keep them there", asCompiled(adamw), Config{Offload: t.TempDir()}},
		{"no folder for all", "Config.OffloadAll is set and Config.Offload is not", adamw, Config{OffloadAll: true}},
		{"no folder", "no such file or directory", adamw, Config{Offload: filepath.Join(t.TempDir(), "none")}},
	} {
		if m, err := NewOneDevice(t.Context(), c.export, "", c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; expected %q", c.name, err, c.want)
			if err == nil {
				m.Close()
			}
		}
	}
	if err := checkSpace(Config{Offload: t.TempDir()}, 1<<60); err == nil || !strings.Contains(err.Error(), "MiB free") {
		t.Errorf("%v; expected a disk that is too small", err)
	}
	// A file in the place of the folder is found only when the files are made in it.
	m, err := NewOneDevice(t.Context(), adamw, "", Config{Offload: file})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Read(t.Context(), adamw.Contract.Optimizer.Iterations); err == nil || !strings.Contains(err.Error(), "cannot keep") || !strings.Contains(err.Error(), "Not a directory") {
		t.Errorf("%v; expected the folder and why it holds no file", err)
	}
	// Evaluations have no slots.
	e, err := NewOneDevice(t.Context(), lamb, "", Config{Offload: filepath.Join(file, "none"), Functions: FunctionsEvaluate, StandardOps: true})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
}
