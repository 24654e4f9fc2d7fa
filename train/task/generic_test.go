package task

import (
	"errors"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

var contract = &graphs.Contract{
	Best:    graphs.Best{Metric: "error", Better: graphs.Lower},
	Metrics: []graphs.Metric{{Name: "auc", Better: graphs.Higher}, {Name: "margin"}, {Name: "error"}},
	Results: []string{"metric/auc/total", "metric/auc/count_sum"},
}

// ratio is a function results that divides the first sum by the second.
func ratio(s runner.Sums) (runner.Outputs, error) {
	return runner.Outputs{"auc": s["metric/auc/total"][0] / s["metric/auc/count_sum"][0]}, nil
}

func TestMeasureContract(t *testing.T) {
	broken := errors.New("no device")
	for _, c := range []struct {
		name    string
		sums    runner.Sums
		results Results
		want    string
		err     string
	}{
		{name: "results and means", results: ratio, want: "{'auc': 0.75, 'loss': 1.5, 'other': 0.5}",
			sums: runner.Sums{runner.LossSum: {6}, runner.WeightSum: {4}, "other_sum": {2}, "metric/auc/total": {3}, "metric/auc/count_sum": {4}, "metric/more": {1, 2}}},
		{name: "training without the metrics' sums", results: ratio, want: "{'loss': 1.5}", sums: runner.Sums{runner.LossSum: {6}, runner.WeightSum: {4}}},
		{name: "part of the sums", results: ratio, sums: runner.Sums{runner.WeightSum: {4}, "metric/auc/total": {3}},
			err: `output "metric/auc/count_sum" is missing; the metrics of the graph need metric/auc/total, metric/auc/count_sum`},
		{name: "results fail", sums: runner.Sums{runner.WeightSum: {4}, "metric/auc/total": {3}, "metric/auc/count_sum": {4}}, err: "no device",
			results: func(runner.Sums) (runner.Outputs, error) { return nil, broken }},
		{name: "no results", sums: runner.Sums{runner.WeightSum: {4}, "metric/auc/total": {3}, "metric/auc/count_sum": {4}}, err: "function results is not loaded"},
	} {
		got, err := New(contract, c.results).Measure(c.sums)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got %v, %v, want an error with %s", c.name, got, err, c.err)
			}
			continue
		}
		if err != nil || got.String() != c.want {
			t.Errorf("%s: got %v, %v, want %s", c.name, got, err, c.want)
		}
	}
}

// TestMetricsOfContract lists the metrics of a graph that is not loaded, each with its direction.
func TestMetricsOfContract(t *testing.T) {
	of := New(contract, AnyResults(contract))
	metrics, err := Metrics(of, []graphs.Arg{{Name: runner.LossSum}, {Name: runner.WeightSum}, {Name: "metric/auc/total"}, {Name: "metric/auc/count_sum"}, {Name: "length_sum"}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range metrics {
		sign := "?"
		if m.Directed {
			sign = map[runner.Better]string{runner.HigherIsBetter: "+", runner.LowerIsBetter: "-"}[m.Better]
		}
		got = append(got, m.Name+sign)
	}
	if all := strings.Join(got, " "); all != "auc+ error- length? loss- margin?" {
		t.Errorf("metrics are %s", all)
	}
}
