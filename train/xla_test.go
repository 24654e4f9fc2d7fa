package train

import (
	"testing"

	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestShapesForXLA: what XLA compiles is fed with rows of one length, and has one lane
// unless more are asked for.
func TestShapesForXLA(t *testing.T) {
	p := params.Defaults()
	p.Data.RowLength = packed.DefaultRowLength
	for _, xla := range []bool{false, true} {
		c := &graphs.Contract{XLA: xla}
		if got := prepare.PackedFor(p, c).FixedRowLength; got != xla {
			t.Errorf("XLA %v: rows of one length %v", xla, got)
		}
		run := &Run{Params: p, Export: &graphs.Export{Contract: c}}
		got, err := predictModel{run: run}.batch([]text.Encoding{{IDs: make([]int32, 9)}, {IDs: make([]int32, 5)}, {IDs: make([]int32, 2)}})
		if err != nil {
			t.Fatal(err)
		}
		length, rows := 9, 2 // packed
		if xla {
			length, rows = p.Data.RowLength, 3
		}
		if got.RowLength != length || got.Rows != rows {
			t.Errorf("XLA %v: %d rows of %d", xla, got.Rows, got.RowLength)
		}
	}
	if got := prepare.LanesOf(p.Runtime, true); got != 1 {
		t.Errorf("%d lanes", got)
	}
	p.Runtime.Lanes = 3
	if got := prepare.LanesOf(p.Runtime, true); got != 3 {
		t.Errorf("%d lanes of 3", got)
	}
}
