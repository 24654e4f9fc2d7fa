package task

import (
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
)

func TestMaskedLM(t *testing.T) {
	c := &graphs.Contract{Masking: &graphs.Masking{VocabSize: 20}, Metrics: []graphs.Metric{{Name: "perplexity", Better: graphs.Lower}}}
	of := newTask(MaskedLM, c)
	for name, want := range map[string]runner.Better{"accuracy": runner.HigherIsBetter, "perplexity": runner.LowerIsBetter, "loss": runner.LowerIsBetter} {
		if m := of.Metric(name); !m.Directed || m.Better != want {
			t.Errorf("%s is %v", name, m)
		}
	}
	if got := of.CheckData(&convert.Manifest{Vocab: convert.Vocab{Size: 20}}); got != "" {
		t.Error(got)
	}
	if got := of.CheckData(&convert.Manifest{Vocab: convert.Vocab{Size: 21}}); got != "has a vocabulary of 21 tokens; expected 20, as in the graph; export with --data" {
		t.Error(got)
	}
}
