package train

import (
	"context"

	"github.com/gorbit-ml/gorbit/dataset"
)

// wellFilled is the share of positions or examples below which fixed rows give a warning.
const wellFilled = 0.9

// fewExamples reports whether fixed rows make an epoch's steps clearly more than batches of so many
// examples would be.
func fewExamples(set *dataset.Dataset, batch int) bool {
	size := int64(batch)
	return float64((set.NumExamples()+size-1)/size) < wellFilled*float64(set.BatchesPerEpoch())
}

// openTraining opens the training data. Where data.rows was chosen, and examples near the length of a
// row fill it badly, more rows are chosen.
func (s *setup) openTraining(ctx context.Context) (*dataset.Dataset, error) {
	for {
		set, err := s.open(ctx, s.params.Data.Train, toTrain)
		if err != nil || !s.chosen {
			return set, err
		}
		rows, batch := int64(s.params.Data.Rows), s.params.Train.BatchSize
		if rows < int64(batch) && fewExamples(set, batch) {
			more := int(rows * int64(batch) * set.BatchesPerEpoch() / set.NumExamples())
			s.params.Data.Rows = min(evenRows(more+1), batch)
			if err := set.Close(); err != nil {
				return nil, err
			}
			continue
		}
		s.env.Log.Info("a TPU needs batches of one shape; a run keeps it", "data.rows", rows, "data.row_length", s.params.Data.RowLength)
		return set, nil
	}
}
