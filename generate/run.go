package generate

import (
	"context"
)

// Model computes the logits of the next token of every row of a batch, [Rows, VocabSize].
type Model interface {
	Compute(ctx context.Context, b *Batch) ([]float32, error)
}

// Run calls the model until no request is left, and each with every update, which may add requests.
func Run(ctx context.Context, s *Scheduler, m Model, each func(Update) error) error {
	for {
		b, ok := s.Next()
		if !ok {
			return nil
		}
		logits, err := m.Compute(ctx, b)
		if err != nil {
			return err
		}
		updates, err := s.Take(logits)
		if err != nil {
			return err
		}
		for _, u := range updates {
			if err := each(u); err != nil {
				return err
			}
		}
	}
}
