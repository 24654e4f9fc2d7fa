package runner

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestMetrics(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name string
		sums Sums
		want string
	}{
		{"loss", Sums{LossSum: {6}, WeightSum: {4}}, "{'loss': 1.5}"},
		{"any sum", Sums{LossSum: {6}, WeightSum: {4}, "mlm_loss_sum": {2}}, "{'loss': 1.5, 'mlm_loss': 0.5}"},
		{"nothing measured", Sums{LossSum: {0}, WeightSum: {0}}, "{'loss': nan}"},
		{"not finite", Sums{LossSum: {nan}, WeightSum: {1}}, "{'loss': nan}"},
		{"other outputs", Sums{LossSum: {1}, WeightSum: {1}, "histogram": {1, 2, 3}, "_sum": {1}}, "{'loss': 1.0}"},
	} {
		got, err := Metrics(c.sums)
		if err != nil || got.String() != c.want {
			t.Errorf("%s: %v, %v; want %s", c.name, got, err, c.want)
		}
	}
	for _, c := range []struct {
		sums Sums
		want string
	}{
		{Sums{LossSum: {1}}, `output "weight_sum" is missing; the outputs are [loss_sum]`},
		{Sums{WeightSum: {}}, `"weight_sum" has 0 elements`},
		{Sums{WeightSum: {1}, LossSum: {1, 2}}, `"loss_sum" has 2 elements`},
	} {
		if got, err := Metrics(c.sums); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, %v; want an error with %s", c.sums, got, err, c.want)
		}
	}
}

func TestSumsAdd(t *testing.T) {
	a := Sums{"x": {1, 2}}
	b := Sums{"x": {10, 20}, "y": {5}}
	if err := a.Add(b); err != nil {
		t.Fatal(err)
	}
	b["y"][0] = 99 // a holds its own copy
	if a["x"][0] != 11 || a["x"][1] != 22 || a["y"][0] != 5 {
		t.Errorf("sums are %v", a)
	}
	err := a.Add(Sums{"a": {1}, "x": {1}})
	if err == nil || !strings.Contains(err.Error(), `"x" has 1 elements; expected 2, as before`) {
		t.Errorf("error is %v", err)
	}
	if _, ok := a["a"]; ok || a["x"][0] != 11 {
		t.Errorf("a failed Add left %v", a)
	}
	for _, values := range [][]float64{{1, 2}, {3}} {
		if err := a.Add(Sums{EachPrefix + "score": values}); err != nil {
			t.Fatal(err)
		}
	}
	if got := a[EachPrefix+"score"]; !slices.Equal(got, []float64{1, 2, 3}) {
		t.Errorf("collected %v", got)
	}
}

// What is saved comes back bit for bit.
func TestJSONKeepsBits(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	values := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, 1.0 / 3, 1e21, 1e-7}
	for len(values) < 500 {
		if v := math.Float64frombits(r.Uint64()); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	b, err := json.Marshal(Sums{"v": values, "nan": {math.NaN()}, "empty": {}})
	if err != nil {
		t.Fatal(err)
	}
	var back Sums
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if math.Float64bits(back["v"][i]) != math.Float64bits(v) {
			t.Errorf("%v came back as %v", v, back["v"][i])
		}
	}
	if !math.IsNaN(back["nan"][0]) || len(back["empty"]) != 0 || len(back) != 3 {
		t.Errorf("came back as %v", back)
	}
	b, err = json.Marshal(Outputs{"a": math.NaN(), "b": 0.5})
	if err != nil {
		t.Fatal(err)
	}
	var out Outputs
	if err := json.Unmarshal(b, &out); err != nil || !math.IsNaN(out["a"]) || out["b"] != 0.5 {
		t.Errorf("outputs %s came back as %v, %v", b, out, err)
	}
	for _, bad := range []string{`{"a":"x"}`, `{"a":[`, `[]`} {
		if err := json.Unmarshal([]byte(bad), &out); err == nil {
			t.Errorf("outputs from %s gave no error", bad)
		}
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("sums from %s gave no error", bad)
		}
	}
}

func TestOutputsString(t *testing.T) {
	out := Outputs{"loss": 0.25, "accuracy": 1, "it's": 2e-5, "a\nb\\": math.NaN(), `"q"`: -1}
	want := `{'"q"': -1.0, 'a\nb\\': nan, 'accuracy': 1.0, 'it\'s': 2e-05, 'loss': 0.25}`
	if got := out.String(); got != want {
		t.Errorf("printed %s, want %s", got, want)
	}
	if got := (Outputs)(nil).String(); got != "{}" {
		t.Errorf("no outputs are printed %s", got)
	}
}
