package saved

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/app/servable"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
)

// TestInt8 answers with a model that computes in int8, by kernels: about as in float32, and the same in
// packed rows and padded ones.
func TestInt8(t *testing.T) {
	m, examples, want := open(t, func(o *servable.Options) { o.Int8 = true })
	var graph bytes.Buffer
	if _, err := m.graph.WriteTo(&graph); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"GorbitDenseBiasInt8", "GorbitDenseGeluInt8"} {
		if !bytes.Contains(graph.Bytes(), []byte(name)) {
			t.Errorf("the graph has no %s", name)
		}
	}
	p := slices.IndexFunc(m.Answers, func(a layout.Answer) bool { return a.Name == layout.Probabilities })
	for _, way := range []string{"packed", "padded"} {
		if way == "padded" {
			m.Packed = nil
		}
		results, err := m.Predict(t.Context(), examples)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			for j, v := range r[p].Data {
				if math.Abs(v-want[i][j]) > 0.03 {
					t.Errorf("%s: answer %d is %v, expected about %v", way, i, r[p].Data, want[i])
				}
			}
		}
	}
}
