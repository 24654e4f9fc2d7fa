package loop

import (
	"context"
	"errors"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/task"
)

// resulter is a strategy that computes the metrics of a graph's function results.
type resulter interface {
	// Results returns the metrics by name. sums has those that the contract lists in results.
	Results(ctx context.Context, sums map[string][]float64) (map[string]float64, error)
}

// NewTask returns the task that the contract of a graph names. Its Measure computes the metrics of
// training and of evaluations, with s, which has loaded the graph, where the graph computes them
// itself. ctx ends with the training; a stop does not keep the last metrics from being computed.
func NewTask(ctx context.Context, c *graphs.Contract, s Strategy) task.Task {
	return task.New(c, resultsOf(ctx, s))
}

// KnownTask returns the task of a graph that is not loaded, to check data and to name metrics.
func KnownTask(c *graphs.Contract) task.Task { return task.New(c, task.AnyResults(c)) }

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
