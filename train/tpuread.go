package train

import (
	"cmp"
	"fmt"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/train/params"
)

// fixShape sets the shape of evaluations and predictions on a TPU. Graphs that take no tokens have
// eval.batch_size examples. m describes the run's data.
func fixShape(p *params.Params, c *graphs.Contract, m *convert.Manifest) error {
	if err := prepare.CheckTPUGraph(c); err != nil {
		return err
	}
	if prepare.TakesTokens(c) {
		return fixRows(p, m)
	}
	p.Train.BatchSize, p.Train.BatchWarmup = p.Eval.BatchSize, "" // nothing is trained
	if err := prepare.FixLength(p, c, m); err != nil {
		return &params.Error{Err: err}
	}
	return nil
}

// fixRows sets the rows of evaluations and predictions on a TPU, unless the run has fixed ones: what
// eval.batch_size examples of mean length fill. m describes the run's data.
func fixRows(p *params.Params, m *convert.Manifest) (err error) {
	if p.Data.Packing == string(packed.PackFirstFit) {
		return params.Errorf("data.packing", "is %s, which does not fix the number of rows, as a TPU needs it; use --set data.packing=%s", p.Data.Packing, packed.PackBestFit)
	}
	if p.Data.Rows == 0 {
		if p.Data.Rows, err = prepare.RowsOf(*p, m, p.Eval.BatchSize); err != nil {
			return &params.Error{Err: err}
		}
	}
	p.Data.RowExamples = cmp.Or(p.Data.RowExamples, prepare.RowExamplesOf(m, *p))
	return nil
}

// tpuShape returns the shape of a batch of one core of the TPU that the run is read on, and zero
// without a TPU.
func (r *Run) tpuShape() packed.Shape {
	if r.on.Tpu == nil {
		return packed.Shape{}
	}
	return prepare.PackedFor(r.Params, r.Export.Contract).Shape(r.on.Tpu.Topology.Cores())
}

// lostInRead adds to the error of a TPU that was lost, while a run was read on it, what to do.
func lostInRead(err error) error {
	if !prepare.LostTPU(err) {
		return err
	}
	return fmt.Errorf("%w; run the same command again, with --tpu-wait to wait for the TPU", prepare.LostCause(err))
}
