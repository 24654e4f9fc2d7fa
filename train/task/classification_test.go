package task

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

func TestMeasureClasses(t *testing.T) {
	for _, c := range []struct {
		name string
		sums runner.Sums
		want string
	}{
		{"loss", runner.Sums{runner.LossSum: {6}, runner.WeightSum: {4}, "mlm_loss_sum": {2}}, "{'loss': 1.5, 'mlm_loss': 0.5}"},
		{"correct", runner.Sums{runner.LossSum: {6}, runner.WeightSum: {4}, CorrectSum: {3}}, "{'accuracy': 0.75, 'loss': 1.5}"},
		{"nothing measured", runner.Sums{runner.WeightSum: {0}, CorrectSum: {0}}, "{'accuracy': nan}"},
		{"the matrix counts", runner.Sums{runner.WeightSum: {4}, CorrectSum: {1}, ConfusionSum: {4}}, "{'accuracy': 1.0, 'macro_f1': 1.0, 'macro_precision': 1.0, 'macro_recall': 1.0, 'mcc': 0.0}"},
		// MRPC's textbook case: everything predicted a paraphrase.
		{"binary", runner.Sums{runner.WeightSum: {10}, ConfusionSum: {0, 3, 0, 7}},
			"{'accuracy': 0.7, 'f1': 0.8235294, 'mcc': 0.0, 'precision': 0.7, 'recall': 1.0}"},
		{"one class", runner.Sums{runner.WeightSum: {5}, ConfusionSum: {5}},
			"{'accuracy': 1.0, 'macro_f1': 1.0, 'macro_precision': 1.0, 'macro_recall': 1.0, 'mcc': 0.0}"},
		{"empty confusion", runner.Sums{runner.WeightSum: {1}, ConfusionSum: {0, 0, 0, 0}},
			"{'accuracy': 0.0, 'f1': 0.0, 'mcc': 0.0, 'precision': 0.0, 'recall': 0.0}"},
	} {
		got, err := newTask(Classification, labeled(2)).Measure(c.sums)
		if err != nil || got.String() != c.want {
			t.Errorf("%s: %v, %v; want %s", c.name, got, err, c.want)
		}
	}
	for _, c := range []struct {
		sums runner.Sums
		want string
	}{
		{runner.Sums{runner.LossSum: {1}}, `output "weight_sum" is missing; the outputs are [loss_sum]`},
		{runner.Sums{runner.WeightSum: {1}, CorrectSum: {1, 2}}, `"correct_sum" has 2 elements`},
		{runner.Sums{runner.WeightSum: {1}, ConfusionSum: {1, 2, 3}}, "expected a square matrix"},
		{runner.Sums{runner.WeightSum: {1}, ConfusionSum: {}}, "expected a square matrix"},
	} {
		if got, err := newTask(Classification, labeled(2)).Measure(c.sums); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, %v; want an error with %s", c.sums, got, err, c.want)
		}
	}
}

// Laws: accuracy and macro values do not change when classes are renamed, mcc
// is symmetric in labels and predictions and lies in [-1, 1], and all metrics
// are unchanged when every weight doubles.
func TestClassesLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := 2 + r.IntN(4)
		m := make([]float64, n*n)
		var weight float64
		for i := range m {
			m[i] = float64(r.IntN(4))
			weight += m[i]
		}
		perm := r.Perm(n)
		renamed, swapped, doubled := make([]float64, n*n), make([]float64, n*n), make([]float64, n*n)
		for i := range n {
			for j := range n {
				renamed[perm[i]*n+perm[j]] = m[i*n+j]
				swapped[j*n+i] = m[i*n+j]
				doubled[i*n+j] = 2 * m[i*n+j]
			}
		}
		metrics := func(m []float64, weight float64) runner.Outputs {
			out, err := newTask(Classification, labeled(2)).Measure(runner.Sums{runner.WeightSum: {weight}, ConfusionSum: m})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		base := metrics(m, weight)
		same := func(what string, other runner.Outputs, names ...string) {
			for _, name := range names {
				if math.Abs(base[name]-other[name]) > 1e-12 {
					t.Errorf("%v %s: %s is %v and was %v", m, what, name, other[name], base[name])
				}
			}
		}
		same("with classes renamed", metrics(renamed, weight), "accuracy", "mcc", "macro_f1", "macro_precision", "macro_recall")
		same("with labels and predictions swapped", metrics(swapped, weight), "accuracy", "mcc", "macro_f1", "f1")
		same("doubled", metrics(doubled, 2*weight), "accuracy", "mcc", "macro_f1", "f1", "precision", "recall")
		if v := base["mcc"]; !(v >= -1-1e-12 && v <= 1+1e-12) {
			t.Errorf("%v: mcc is %v", m, v)
		}
	}
}

// readGolden reads testdata/classification.json, written by testdata/classification.py.
func readGolden(t *testing.T) []struct {
	Name      string
	Confusion []float64
	Want      runner.Outputs
} {
	t.Helper()
	b, err := os.ReadFile("testdata/classification.json")
	if err != nil {
		t.Fatal(err)
	}
	var g []struct {
		Name      string
		Confusion []float64
		Want      runner.Outputs
	}
	if err := json.Unmarshal(b, &g); err != nil || len(g) == 0 {
		t.Fatalf("%d metrics, %v", len(g), err)
	}
	return g
}

func TestClassesAgainstGolden(t *testing.T) {
	for _, c := range readGolden(t) {
		t.Run(c.Name, func(t *testing.T) {
			var weight float64
			for _, v := range c.Confusion {
				weight += v
			}
			got, err := newTask(Classification, labeled(2)).Measure(runner.Sums{runner.WeightSum: {weight}, ConfusionSum: c.Confusion})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(c.Want) {
				t.Errorf("metrics are %v, want %v", got, c.Want)
			}
			for name, want := range c.Want {
				if v, ok := got[name]; !ok || !(math.Abs(v-want) < 1e-9) {
					t.Errorf("%s is %v, want %v", name, v, want)
				}
			}
		})
	}
}

// TestMetricsOfClasses lists the metrics of graphs, each with its direction.
func TestMetricsOfClasses(t *testing.T) {
	outputs := []graphs.Arg{{Name: runner.LossSum}, {Name: runner.WeightSum}, {Name: CorrectSum}, {Name: "length_sum"}, {Name: ConfusionSum, Shape: []int64{-1, -1}}}
	for labels, want := range map[int]string{
		2: "accuracy+ f1+ length? loss- mcc+ precision+ recall+",
		3: "accuracy+ length? loss- macro_f1+ macro_precision+ macro_recall+ mcc+",
	} {
		c := labeled(labels)
		got, err := Metrics(newTask(Classification, c), outputs, Classes(c))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range got {
			names = append(names, m.Name+sign(m))
		}
		if all := strings.Join(names, " "); all != want {
			t.Errorf("%d labels give %s, expected %s", labels, all, want)
		}
	}
}

func sign(m Metric) string {
	switch {
	case !m.Directed:
		return "?"
	case m.Better == runner.LowerIsBetter:
		return "-"
	}
	return "+"
}

// labeled returns the contract of a classifier with a number of labels.
func labeled(classes int) *graphs.Contract {
	below := int64(classes)
	return &graphs.Contract{Features: []graphs.Feature{{Name: "labels", Role: graphs.RoleLabel, Below: &below}}}
}
