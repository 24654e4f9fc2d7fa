package train

import (
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
)

func TestDataMustFitTheGraph(t *testing.T) {
	contract := &graphs.Contract{Model: graphs.Model{NumLabels: 2, Config: map[string]any{
		"vocab_size": 100.0, "max_position_embeddings": 64.0}}}
	fits := func(change func(m *convert.Manifest)) *data {
		m := &convert.Manifest{
			Labels: []string{"no", "yes"},
			Vocab:  convert.Vocab{Size: 100},
			Splits: map[string]*convert.Split{"train": {Lengths: convert.Lengths{Max: 64}}},
		}
		change(m)
		return &data{dir: "d", manifest: m}
	}
	for _, test := range []struct {
		name   string
		change func(m *convert.Manifest)
		want   string
	}{
		{"fits", func(*convert.Manifest) {}, ""},
		{"no labels", func(m *convert.Manifest) { m.Labels = nil }, ""},
		{"vocabulary", func(m *convert.Manifest) { m.Vocab.Size = 99 },
			"data d was made with a vocabulary of 99 tokens, the graph has 100: convert with the model's vocabulary, or export with --vocab-size 99"},
		{"labels", func(m *convert.Manifest) { m.Labels = []string{"a", "b", "c"} },
			"data d has 3 labels, the graph 2: export with --num-labels 3"},
		{"lengths", func(m *convert.Manifest) { m.Splits["train"].Lengths.Max = 65 },
			"data d: split train has examples of up to 65 tokens, the graph has 64 positions: convert with --max-length 64"},
	} {
		got := ""
		if err := fits(test.change).check(contract); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
