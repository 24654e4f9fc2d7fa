package task

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

// TestSearch measures searches as sentence-transformers does. A text counts once, and what weighs 0 not at all.
func TestSearch(t *testing.T) {
	data, err := os.ReadFile("testdata/embed.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Texts   [][]int
		Vectors [][]float64
		Metrics map[string]float64
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	of := New(&graphs.Contract{Task: Embed}, nil)
	for i, c := range cases {
		sums := runner.Sums{"loss_sum": {0}, "weight_sum": {1}}
		add := func(weight float64, numbers []int) {
			for k, n := range numbers {
				name := EachQuery
				if k > 0 {
					name = EachDocument
				}
				sums[name] = append(sums[name], c.Vectors[n]...)
				sums[EachTexts] = append(sums[EachTexts], float64(n))
			}
			sums[EachWeight] = append(sums[EachWeight], weight)
		}
		for _, numbers := range c.Texts {
			add(1, numbers)
		}
		add(0, c.Texts[0])
		got, err := of.Measure(sums)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range c.Metrics {
			if math.Abs(got[name]-want) > 1e-9 {
				t.Errorf("case %d: %s is %v; expected %v", i, name, got[name], want)
			}
		}
	}
	nan := runner.Sums{"loss_sum": {0}, "weight_sum": {1}, EachQuery: {math.NaN()}, EachDocument: {1}, EachTexts: {1, 2}, EachWeight: {1}}
	if got, err := of.Measure(nan); err != nil || !math.IsNaN(got["ndcg_10"]) {
		t.Errorf("of NaN: %v, %v", got, err)
	}
	nan[EachTexts] = []float64{1}
	if _, err := of.Measure(nan); err == nil || !strings.Contains(err.Error(), "expected as many vectors of one width for each weight") {
		t.Errorf("a text without a vector: %v", err)
	}
}

// TestNumberTexts gives equal texts equal numbers wherever they are in the rows.
func TestNumberTexts(t *testing.T) {
	grid := func(name string, v ...int32) dataset.Feature {
		return dataset.Feature{Name: name, Shape: []int{2, 6}, Int32: v}
	}
	features := []dataset.Feature{
		grid(packed.InputIDs, 5, 6, 7, 7, 5, 6, 5, 6, 5, 6, 0, 0),
		grid(packed.TypeIDs, 0, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 0),
		grid(packed.SequenceIDs, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 0, 0),
		{Name: packed.ClsPositions, Shape: []int{3}, Int32: []int32{0, 3, 6}},
	}
	of := New(&graphs.Contract{Task: Embed}, nil)
	out := runner.Sums{EachQuery: make([]float64, 6), EachDocument: make([]float64, 6)}
	if err := of.Reduce(features, out); err != nil {
		t.Fatal(err)
	}
	n := out[EachTexts] // "5 6", "7"; "7", "5 6"; "5 6", "5 6"
	if len(n) != 6 || n[0] == n[1] || n[2] != n[1] || n[3] != n[0] || n[4] != n[0] || n[5] != n[0] {
		t.Errorf("numbers %v", n)
	}
	if err := of.Reduce(features[1:], runner.Sums{EachQuery: {1}}); err == nil || !strings.Contains(err.Error(), "the batch has no feature input_ids") {
		t.Errorf("without tokens: %v", err)
	}
	if err := of.Reduce(features, runner.Sums{EachQuery: {1}}); err == nil || !strings.Contains(err.Error(), "for each of 3 examples") {
		t.Errorf("of too few vectors: %v", err)
	}
}

// TestEmbedData says which texts and scores a graph is for.
func TestEmbedData(t *testing.T) {
	two, three := int64(2), int64(3)
	contract := func(texts *int64, scored bool) *graphs.Contract {
		c := &graphs.Contract{Task: Embed, Features: []graphs.Feature{{Name: "type_ids", Below: texts}, {Name: "position_ids", Make: graphs.MakeTextPositions}}}
		if scored {
			c.Features = append(c.Features, graphs.Feature{Name: "labels", Role: graphs.RoleLabel})
		}
		return c
	}
	data := func(negative, label string) *convert.Manifest {
		return &convert.Manifest{Task: string(convert.Embed), Columns: convert.Columns{Text: "a", Pair: "b", Negative: negative, Label: label}}
	}
	for _, test := range []struct {
		c    *graphs.Contract
		m    *convert.Manifest
		want string
	}{
		{contract(&two, false), data("", ""), ""},
		{contract(&three, false), data("c", ""), ""},
		{contract(&two, true), data("", "s"), ""},
		{contract(&two, false), data("c", ""), "has three texts in an example; expected pairs"},
		{contract(&three, false), data("", ""), "has pairs; expected three texts in an example"},
		{contract(&two, false), data("", "s"), "has pairs with scores; expected pairs"},
		{contract(&two, true), data("", ""), "has pairs; expected pairs with scores"},
		{contract(&two, true), &convert.Manifest{Task: "stsb"}, "has the answers of task regression; expected those of embed"},
	} {
		if got := New(test.c, nil).CheckData(test.m); !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%v: %q; expected %q", test.m.Columns, got, test.want)
		}
	}
}
