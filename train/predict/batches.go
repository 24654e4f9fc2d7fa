package predict

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/gorbit-ml/gorbit/dataset"
)

// BatchModel computes its outputs for batches of features, such as those of records.
type BatchModel interface {
	// PredictBatch returns the outputs for each example of a batch, in order.
	PredictBatch(ctx context.Context, b *dataset.Batch) ([]Result, error)
}

// Batches answers the examples of batches in order and calls each with the answers. While the model
// runs, the next batch is made and the answers of the previous one are delivered.
func Batches(ctx context.Context, m BatchModel, r Renderer, batches iter.Seq2[*dataset.Batch, error], each func(Answer) error) (Summary, error) {
	return answers(ctx, batches, func(ctx context.Context, b *dataset.Batch) ([]Answer, error) {
		results, err := m.PredictBatch(ctx, b)
		if err != nil {
			return nil, err
		}
		if len(results) != b.Examples {
			return nil, fmt.Errorf("the model returned %d answers; expected one for each of %d examples", len(results), b.Examples)
		}
		out := make([]Answer, len(results))
		for i, result := range results {
			if out[i], err = r.Render(Example{}, result); err != nil {
				return nil, err
			}
		}
		return out, nil
	}, each)
}

// BatchReader is a sequence of batches, such as a *dataset.Dataset.
type BatchReader interface {
	// Next returns the next batch, or io.EOF after the last.
	Next(ctx context.Context) (*dataset.Batch, error)
}

// ReadBatches returns the batches of a reader.
func ReadBatches(ctx context.Context, r BatchReader) iter.Seq2[*dataset.Batch, error] {
	return func(yield func(*dataset.Batch, error) bool) {
		for {
			b, err := r.Next(ctx)
			if err == io.EOF || !yield(b, err) || err != nil {
				return
			}
		}
	}
}
