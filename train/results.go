package train

import (
	"context"
	"errors"

	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task"
)

// resulter is a strategy that computes the metrics of a graph's function results.
type resulter interface {
	// Results returns the metrics by name. sums has those that the contract lists in results.
	Results(ctx context.Context, sums map[string][]float64) (map[string]float64, error)
}

// resultsOf returns the Results of the graph that a strategy has composed.
func resultsOf(ctx context.Context, s Strategy) task.Results {
	ctx = context.WithoutCancel(ctx) // the metrics of a loop that a stop comes in are still due
	return func(sums runner.Sums) (runner.Outputs, error) {
		r, ok := s.(resulter)
		if !ok {
			return nil, errors.New("the strategy cannot compute the metrics of the graph; expected another one, such as --strategy one")
		}
		out, err := r.Results(ctx, sums)
		return out, err
	}
}
