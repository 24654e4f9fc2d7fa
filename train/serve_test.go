package train

import (
	"math"
	"testing"

	"github.com/gorbit-ml/gorbit/text"
)

// TestTextModelLaws holds that the texts of a server's call are one row without padding, and that an
// answer does not depend on the other texts of its call.
func TestTextModelLaws(t *testing.T) {
	r := openTrained(t, quiet())
	m := r.TextModel()
	examples := randomExamples(60)
	for i := range examples {
		examples[i].TypeIDs = make([]int32, len(examples[i].IDs))
	}
	batch, err := m.(predictModel).batch(examples)
	if err != nil {
		t.Fatal(err)
	}
	if batch.Rows != 1 || batch.RowLength != batch.Tokens {
		t.Errorf("%d texts of %d tokens are %d rows of %d; expected one row without padding", len(examples), batch.Tokens, batch.Rows, batch.RowLength)
	}
	for _, n := range []int{len(examples), 7, 2} {
		together, err := m.Predict(t.Context(), examples[:n])
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range together {
			alone, err := m.Predict(t.Context(), []text.Encoding{examples[i]})
			if err != nil {
				t.Fatal(err)
			}
			for k, want := range alone[0] {
				for j, v := range want.Data {
					if math.Abs(got[k].Data[j]-v) > 1e-6 {
						t.Errorf("text %d among %d: %v, alone %v", i, n, got[k].Data, want.Data)
					}
				}
			}
		}
	}
	if len(r.Outputs()) != len(r.outputs()) || r.InFlight() < 1 {
		t.Errorf("%d outputs, %d calls at once", len(r.Outputs()), r.InFlight())
	}
}
