package task

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/runner"
)

func TestRanksAgainstGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/ranks.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name                                   string
		Labels, Predictions, Positive, Weights []float64
		Spearman, AUC                          float64
		WeightedSpearman                       float64 `json:"weighted_spearman"`
		WeightedAUC                            float64 `json:"weighted_auc"`
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		ones := make([]float64, len(c.Labels))
		for i := range ones {
			ones[i] = 1
		}
		for _, v := range []struct {
			what          string
			w             []float64
			spearman, auc float64
		}{{"", ones, c.Spearman, c.AUC}, {" weighted", c.Weights, c.WeightedSpearman, c.WeightedAUC}} {
			for _, m := range []struct {
				name   string
				labels []float64
				of     func(Ranking) float64
				want   float64
			}{{"spearman", c.Labels, Ranking.Spearman, v.spearman}, {"auc", c.Positive, Ranking.AUC, v.auc}} {
				// Two batches, the second with an example that only fills its shape.
				n := len(m.labels) / 2
				sums := runner.Sums{}
				for _, part := range []runner.Sums{
					{EachPrediction: c.Predictions[:n], EachLabel: m.labels[:n], EachWeight: v.w[:n]},
					{EachPrediction: append(c.Predictions[n:len(m.labels):len(m.labels)], math.NaN()), EachLabel: append(m.labels[n:len(m.labels):len(m.labels)], 0), EachWeight: append(v.w[n:len(m.labels):len(m.labels)], 0)},
				} {
					if err := sums.Add(part); err != nil {
						t.Fatal(err)
					}
				}
				all, err := Rankings(sums)
				if err != nil || len(all) != 1 {
					t.Fatalf("%d rankings, %v", len(all), err)
				}
				if got := m.of(all[0]); !(math.Abs(got-m.want) < 1e-12) {
					t.Errorf("%s%s: %s is %v, want %v", c.Name, v.what, m.name, got, m.want)
				}
			}
		}
	}
}

func TestRanksThatAreNotDefined(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		p, y          []float64
		spearman, auc float64
	}{
		"none":               {nil, nil, nan, nan},
		"equal predictions":  {[]float64{0.1, 0.1, 0.1}, []float64{1, 0, 1}, nan, 0.5},
		"equal labels":       {[]float64{1, 2, 3}, []float64{1, 1, 1}, nan, nan},
		"no number":          {[]float64{1, nan, 3}, []float64{1, 0, 1}, nan, nan},
		"the other way":      {[]float64{1, 2, 3}, []float64{3, 1, 0}, -1, 0},
		"infinite, in order": {[]float64{math.Inf(-1), 0, math.Inf(1)}, []float64{0, 1, 2}, 1, 1},
	} {
		w := make([]float64, len(c.p))
		for i := range w {
			w[i] = 0.1
		}
		all, err := Rankings(runner.Sums{EachPrediction: c.p, EachLabel: c.y, EachWeight: w})
		if c.p == nil {
			if err != nil || all != nil {
				t.Errorf("nothing collected: %v, %v", all, err)
			}
			all = []Ranking{{}}
		}
		same := func(got, want float64) bool {
			return math.Abs(got-want) < 1e-12 || math.IsNaN(got) && math.IsNaN(want)
		}
		if got := all[0].Spearman(); !same(got, c.spearman) {
			t.Errorf("%s: spearman is %v, want %v", name, got, c.spearman)
		}
		if got := all[0].AUC(); !same(got, c.auc) {
			t.Errorf("%s: auc is %v, want %v", name, got, c.auc)
		}
	}
	// Three columns; the middle one has no area.
	all, err := Rankings(runner.Sums{EachPrediction: []float64{1, 1, 2, 2, 2, 1}, EachLabel: []float64{0, 0, 0, 1, 0, 1}, EachWeight: []float64{1, 1}})
	if got := MeanAUC(all); err != nil || got != 0.5 {
		t.Errorf("the mean is %v, %v", got, err)
	}
	_, err = Rankings(runner.Sums{EachPrediction: []float64{1, 2, 3}, EachLabel: []float64{0, 1, 1}, EachWeight: []float64{1, 1}})
	if err == nil || !strings.Contains(err.Error(), `have 3, 3 and 2 elements; expected as many predictions as labels for each weight`) {
		t.Errorf("other lengths: %v", err)
	}
}
