package train

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
)

// Graphs that do not fit are refused before the TPU is started.
func TestTPUGraphs(t *testing.T) {
	export, _ := opened(t, testParams(t))
	for _, test := range []struct {
		change func(c *graphs.Contract)
		want   string
	}{
		{func(*graphs.Contract) {}, ""},
		{func(c *graphs.Contract) { c.Precision = graphs.FP16 }, "export the graph with --precision bf16 or float32"},
		{func(c *graphs.Contract) { c.Features[0].Axes = []string{"rows", "words"} }, "has an axis words, and strategy is tpu"},
		{func(c *graphs.Contract) { c.Features[0].Axes = []string{"rows", "target_length"} }, "the graph makes texts of sources, and strategy is tpu, for which a batch of sources and targets has no fixed shape; use CPUs or GPUs"},
	} {
		c := *export.Contract
		c.Features = slices.Clone(c.Features)
		test.change(&c)
		err := prepare.CheckTPUGraph(&c)
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) || !errors.Is(err, fault.Usage)) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
	p := testParams(t)
	p.Strategy.TPU, p.Data.Rows = "grpc://127.0.0.1:1", 8
	p.Graph = narrow(t, graphs.FP16).Graph
	if _, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), quiet()); err == nil || !strings.Contains(err.Error(), "export the graph with --precision") {
		t.Errorf("training a graph in fp16: %v", err)
	}
}
