package task

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"maps"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// The scores are seqeval's. That a graph counts as seqeval does is tested with the exporter.
func TestMeasureAgainstSeqeval(t *testing.T) {
	data, err := os.ReadFile("../../tools/tests/goldens/seqeval.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Name   string
			Counts map[string][]float64
			Scores runner.Outputs
		}
	}
	if err := json.Unmarshal(data, &golden); err != nil || len(golden.Cases) == 0 {
		t.Fatalf("%d cases, %v", len(golden.Cases), err)
	}
	for _, c := range golden.Cases {
		var flat []float64
		for _, kind := range slices.Sorted(maps.Keys(c.Counts)) {
			flat = append(flat, c.Counts[kind]...)
		}
		got, err := newTask(Tokens, &graphs.Contract{}).Measure(runner.Sums{runner.WeightSum: {1}, EntityCounts: flat})
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range c.Scores {
			if v, ok := got[name]; !ok || !(math.Abs(v-want) < 1e-12) {
				t.Errorf("%s: %s is %v, want %v", c.Name, name, v, want)
			}
		}
	}
}

func TestMeasureTokens(t *testing.T) {
	of := newTask(Tokens, &graphs.Contract{Model: graphs.Model{Config: map[string]any{"entities": []any{"LOC", "PER"}}}})
	got, err := of.Measure(runner.Sums{runner.WeightSum: {4}, "accuracy_sum": {3}, TokenCounts: {1, 1, 1}, EntityCounts: {1, 1, 1, 0, 1, 1}})
	if err != nil || got.String() != "{'accuracy': 0.75, 'f1': 0.5, 'f1_LOC': 1.0, 'f1_PER': 0.0, 'macro_f1': 0.5, 'precision': 0.5, 'recall': 0.5}" {
		t.Errorf("entities: %v, %v", got, err)
	}
	got, err = of.Measure(runner.Sums{runner.WeightSum: {4}, "accuracy_sum": {3}, TokenCounts: {2, 2, 2, 1, 2, 2, 0, 0, 0}})
	if err != nil || got.String() != "{'accuracy': 0.75, 'macro_f1': 0.75}" {
		t.Errorf("tags: %v, %v", got, err)
	}
	if _, err := of.Measure(runner.Sums{runner.WeightSum: {4}, EntityCounts: {1}}); err == nil || !strings.Contains(err.Error(), `"entity_counts" has 1 elements`) {
		t.Error(err)
	}
	if m := of.Metric("f1_LOC"); !m.Directed || m.Better != runner.HigherIsBetter {
		t.Errorf("f1_LOC is %v", m)
	}
}

func TestDataOfTokens(t *testing.T) {
	of := newTask(Tokens, &graphs.Contract{Model: graphs.Model{Config: map[string]any{"labels": []any{"O", "B-A"}}}})
	m := &convert.Manifest{Task: "tokens", Labels: []string{"O", "B-A"}}
	if got := of.CheckData(m); got != "" {
		t.Error(got)
	}
	other := &convert.Manifest{Task: "tokens", Labels: []string{"B-A", "O"}}
	if got := of.CheckData(other); got != `has the labels "B-A", "O"; expected "O", "B-A", as in the graph; export with --data` {
		t.Error(got)
	}
	if got := of.CheckSplit("dev", &convert.Split{Records: 3, Answered: 2}); got != "1 of the 3 examples of split dev have no labels" {
		t.Error(got)
	}
	if got, only := of.OnlyAnswer(m, &convert.Split{LabelCounts: []int64{5, 0}}); !only || got != "O" {
		t.Errorf("%q, %v", got, only)
	}
}
