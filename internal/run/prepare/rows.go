package prepare

import (
	"context"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
)

// WellFilled is the share of positions or examples below which fixed rows give a warning.
const WellFilled = 0.9

// FewExamples reports whether fixed rows make an epoch's steps clearly more than batches of so many
// examples would be.
func FewExamples(set *dataset.Dataset, batch int) bool {
	size := int64(batch)
	return float64((set.NumExamples()+size-1)/size) < WellFilled*float64(set.BatchesPerEpoch())
}

// OpenTraining opens the training data. Where data.rows was chosen, and examples near the length of a
// row fill it badly, more rows are chosen.
func (s *Setup) OpenTraining(ctx context.Context) (*dataset.Dataset, error) {
	for {
		set, err := s.Open(ctx, s.Params.Data.Train, ToTrain)
		if err != nil || !s.Chosen {
			return set, err
		}
		rows, batch := int64(s.Params.Data.Rows), s.Params.Train.BatchSize
		if rows < int64(batch) && FewExamples(set, batch) {
			more := int(rows * int64(batch) * set.BatchesPerEpoch() / set.NumExamples())
			s.Params.Data.Rows = min(evenRows(more+1), batch)
			if err := set.Close(); err != nil {
				return nil, err
			}
			continue
		}
		why := "a TPU needs batches of one shape; a run keeps it"
		if s.Params.Strategy.Kind() != devices.TPU {
			why = "batches have one shape, since XLA compiles the step for each; a run keeps it"
		}
		s.Env.Log.Info(why, "data.rows", rows, "data.row_length", s.Params.Data.RowLength)
		return set, nil
	}
}
