package task

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// moments returns the sums of a graph for labels and predictions, in two float32 each.
func moments(y, p, w []float64) runner.Sums {
	var m [momentColumns]float64
	loss := 0.0
	for i := range y {
		for k, v := range [momentColumns]float64{1, y[i], p[i], y[i] * y[i], p[i] * p[i], y[i] * p[i], math.Abs(p[i] - y[i])} {
			m[k] += w[i] * v
		}
		loss += w[i] * (p[i] - y[i]) * (p[i] - y[i])
	}
	flat := make([]float64, 2*momentColumns)
	for k, v := range m {
		flat[k] = float64(float32(v))
		flat[momentColumns+k] = float64(float32(v - flat[k]))
	}
	return runner.Sums{runner.LossSum: {loss}, runner.WeightSum: {m[0]}, Moments: flat}
}

func TestNumbersAgainstGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/regression.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name                string
		Labels, Predictions []float64
		Want                runner.Outputs
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	of := newTask(Regression, &graphs.Contract{})
	for _, c := range cases {
		ones, twice := make([]float64, len(c.Labels)), make([]float64, len(c.Labels))
		for i := range ones {
			ones[i], twice[i] = 1, 2
		}
		for _, w := range [][]float64{ones, twice} {
			got, err := of.Measure(moments(c.Labels, c.Predictions, w))
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range c.Want {
				if v := got[name]; !(math.Abs(v-want) <= 1e-6*max(1, math.Abs(want))) {
					t.Errorf("%s: %s is %v, want %v", c.Name, name, v, want)
				}
			}
			if math.Abs(got["loss"]-got["mse"]) > 1e-5*got["loss"] {
				t.Errorf("%s: the loss is %v, and mse %v", c.Name, got["loss"], got["mse"])
			}
		}
	}
}

func TestMeasureNumbers(t *testing.T) {
	of := newTask(Regression, &graphs.Contract{})
	got, err := of.Measure(moments([]float64{2, 2}, []float64{1, 4}, []float64{1, 1}))
	if err != nil || got.String() != "{'loss': 2.5, 'mae': 1.5, 'mse': 2.5, 'pearson': nan, 'r2': nan}" {
		t.Errorf("equal labels: %v, %v", got, err)
	}
	got, err = of.Measure(runner.Sums{runner.LossSum: {3}, runner.WeightSum: {2}})
	if err != nil || got.String() != "{'loss': 1.5}" {
		t.Errorf("training: %v, %v", got, err)
	}
	if _, err := of.Measure(runner.Sums{runner.WeightSum: {2}, Moments: {1, 2}}); err == nil || !strings.Contains(err.Error(), `"moments" has 2 elements; expected 14`) {
		t.Errorf("other sums: %v", err)
	}
	for name, want := range map[string]runner.Better{"mse": runner.LowerIsBetter, "loss": runner.LowerIsBetter, "pearson": runner.HigherIsBetter} {
		if m := of.Metric(name); !m.Directed || m.Better != want {
			t.Errorf("%s is %v", name, m)
		}
	}
}

func TestDataOfNumbers(t *testing.T) {
	of := newTask(Regression, &graphs.Contract{})
	if got := of.CheckData(&convert.Manifest{Task: "sst2"}); got != "has the answers of task classification; expected those of regression, as in the graph; convert it with --task regression" {
		t.Error(got)
	}
	for _, task := range []string{"stsb", "regression", "schema"} {
		if got := of.CheckData(&convert.Manifest{Task: task}); got != "" {
			t.Errorf("%s: %s", task, got)
		}
	}
	if got := of.CheckSplit("dev", &convert.Split{Records: 3, Answered: 1}); got != "2 of the 3 examples of split dev have no number" {
		t.Error(got)
	}
	if got, only := of.OnlyAnswer(nil, &convert.Split{Values: &convert.Values{Min: 0.5, Max: 0.5}}); !only || got != "0.5" {
		t.Errorf("%q, %v", got, only)
	}
	if _, only := of.OnlyAnswer(nil, &convert.Split{Values: &convert.Values{Min: 0.5, Max: 1}}); only {
		t.Error("different numbers are one answer")
	}
}
