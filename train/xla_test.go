package train

import (
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
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

// TestRowsForXLA: a run on GPUs whose step XLA compiles begins with fixed rows, so that there is one
// shape to compile; no other run does, nor one that began without.
func TestRowsForXLA(t *testing.T) {
	for _, test := range []struct {
		name    string
		devices string
		xla     bool
		before  bool
		rows    int
	}{
		{name: "GPU", devices: "gpu:1", xla: true, rows: 8},
		{name: "two GPUs", devices: "gpu:2", xla: true, rows: 8},
		{name: "CPUs", devices: "cpu:2", xla: true},
		{name: "not compiled", devices: "gpu:1"},
		{name: "began without", devices: "gpu:1", xla: true, before: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := testParams(t)
			p.Data.Dir = describedData(t, func(m *convert.Manifest) { m.Splits["train"].Lengths.Mean = 9 })
			p.Data.RowLength, p.Train.BatchSize, p.Strategy.Devices = 24, 16, test.devices
			s, err := prepare.New(t.Context(), p, prepare.Env{Log: quiet().Log})
			if err == nil {
				err = s.OpenData()
			}
			if err != nil {
				t.Fatal(err)
			}
			s.Export.Contract.XLA = test.xla
			var before *params.Params
			if test.before {
				before = &p
			}
			if err := prepare.PreflightTraining(t.Context(), s, "", before); err != nil {
				t.Fatal(err)
			}
			if s.Params.Data.Rows != test.rows || s.Chosen != (test.rows > 0) {
				t.Errorf("%d rows, chosen %v; expected %d", s.Params.Data.Rows, s.Chosen, test.rows)
			}
		})
	}
}
