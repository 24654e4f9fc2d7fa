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

const bins = 500

func TestLabelsAgainstGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/multilabel.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name                  string
		Labels, Probabilities [][]float64
		Want                  runner.Outputs
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		n := len(c.Labels[0])
		counts, histogram := make([]float64, 3*n), make([]float64, 2*n*bins)
		for i, row := range c.Labels {
			for l, have := range row {
				p := c.Probabilities[i][l]
				guess := 0.0
				if p >= 0.5 {
					guess = 1
				}
				counts[3*l] += have * guess
				counts[3*l+1] += guess
				counts[3*l+2] += have
				histogram[(2*l+int(have))*bins+int(p*bins)]++
			}
		}
		got, err := newTask(MultiLabel, &graphs.Contract{}).Measure(runner.Sums{runner.WeightSum: {float64(len(c.Labels))}, LabelCounts: counts, LabelBins: histogram})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(c.Want) {
			t.Errorf("%s: metrics are %v, want %v", c.Name, got, c.Want)
		}
		for name, want := range c.Want {
			if v, ok := got[name]; !ok || !(math.Abs(v-want) < 1e-9) {
				t.Errorf("%s: %s is %v, want %v", c.Name, name, v, want)
			}
		}
	}
}

func TestMeasureLabels(t *testing.T) {
	of := newTask(MultiLabel, &graphs.Contract{Model: graphs.Model{Config: map[string]any{"labels": []any{"sea", "a b"}}}})
	got, err := of.Measure(runner.Sums{runner.WeightSum: {4}, "exact_match_sum": {1}, LabelCounts: {1, 1, 2, 0, 0, 0}})
	if err != nil || got.String() != "{'exact_match': 0.25, 'f1_1': 0.0, 'f1_sea': 0.6666667, 'macro_f1': 0.6666667, 'micro_f1': 0.6666667, 'micro_precision': 1.0, 'micro_recall': 0.5}" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, c := range []struct {
		sums runner.Sums
		want string
	}{
		{runner.Sums{runner.WeightSum: {1}, LabelCounts: {1, 2}}, `"label_counts" has 2 elements`},
		{runner.Sums{runner.WeightSum: {1}, LabelCounts: {1, 2, 3}, LabelBins: {1, 2, 3}}, `"label_bins" has 3 elements`},
	} {
		if _, err := of.Measure(c.sums); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	for _, name := range []string{"micro_f1", "f1_sea", "exact_match", "auc"} {
		if m := of.Metric(name); !m.Directed || m.Better != runner.HigherIsBetter {
			t.Errorf("%s is %v", name, m)
		}
	}
}

func TestDataOfLabels(t *testing.T) {
	of := newTask(MultiLabel, &graphs.Contract{Features: []graphs.Feature{{Name: "labels", Role: graphs.RoleLabel, Shape: []int64{-1, 2}}}})
	m := &convert.Manifest{Task: "multilabel", Labels: []string{"a", "b"}}
	if got := of.CheckData(m); got != "" {
		t.Error(got)
	}
	if got := of.CheckData(&convert.Manifest{Task: "multilabel", Labels: []string{"a", "b", "c"}}); !strings.HasPrefix(got, "has 3 labels; expected 2") {
		t.Error(got)
	}
	if got := of.CheckData(&convert.Manifest{Task: "text"}); !strings.HasPrefix(got, "has the answers of task classification") {
		t.Error(got)
	}
	for _, c := range []struct {
		counts []int64
		want   string
	}{{[]int64{3, 0}, "a"}, {[]int64{3, 3}, "a, b"}, {[]int64{0, 0}, "no label"}, {[]int64{3, 1}, ""}} {
		got, only := of.OnlyAnswer(m, &convert.Split{Records: 3, Answered: 3, LabelCounts: c.counts})
		if got != c.want || only != (c.want != "") {
			t.Errorf("%v: %q, %v", c.counts, got, only)
		}
	}
}
