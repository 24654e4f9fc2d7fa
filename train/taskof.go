package train

import (
	"context"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/train/task"
	"github.com/gorbit-ml/gorbit/train/task/classify"
	"github.com/gorbit-ml/gorbit/train/task/generic"
	"github.com/gorbit-ml/gorbit/train/task/mlm"
	"github.com/gorbit-ml/gorbit/train/task/multilabel"
	"github.com/gorbit-ml/gorbit/train/task/qa"
	"github.com/gorbit-ml/gorbit/train/task/regression"
	"github.com/gorbit-ml/gorbit/train/task/tokens"
)

// NewTask returns the task that the contract of a graph names. Its Measure computes the metrics of
// training and of evaluations, with s, which has loaded the graph, where the graph computes them
// itself. ctx ends with the training; a stop does not keep the last metrics from being computed.
func NewTask(ctx context.Context, c *graphs.Contract, s Strategy) task.Task {
	return taskOf(c, resultsOf(ctx, s))
}

// taskOf returns the task of a graph: the one that its contract names or, if that has no package of
// its own, the generic one. results computes the contract's metrics.
func taskOf(c *graphs.Contract, results task.Results) task.Task {
	switch c.Task {
	case classify.Name:
		return classify.New(c, results)
	case regression.Name:
		return regression.New(c, results)
	case multilabel.Name:
		return multilabel.New(c, results)
	case tokens.Name:
		return tokens.New(c, results)
	case qa.Name:
		return qa.New(c, results)
	case mlm.Name:
		return mlm.New(c, results)
	default:
		return generic.New(c, results)
	}
}

// knownTask returns the task of a graph that is not loaded, to check data and to name metrics.
func knownTask(c *graphs.Contract) task.Task { return taskOf(c, task.AnyResults(c)) }
