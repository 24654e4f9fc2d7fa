package prepare

import (
	"context"
	"fmt"
	"io"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/task"
)

// Evaluated is a split that evaluations read, with what the last evaluation summed up.
type Evaluated struct {
	// Split is the name of the split.
	Split string
	// labels are the names of the classes of the graph's first label; nil if they are not known.
	labels []string
	// Batches and Records are the numbers of those that an evaluation reads.
	Batches, Records int64
	// Open opens the split for an evaluation.
	Open func(context.Context) (runner.BatchReader[*loop.Batch], error)
	sums runner.Sums
	// Read and Examples count the batches and examples of the last evaluation.
	Read, Examples int64
}

// Evaluator returns what evaluates a model on the split. Its evaluations must not overlap.
func (e *Evaluated) Evaluator(m *loop.Model, t task.Task, c runner.EvaluatorConfig) runner.Evaluator {
	c.Batches = e.Batches
	c.Metrics = func(sums runner.Sums) (runner.Outputs, error) {
		e.sums = sums
		return t.Measure(sums)
	}
	return runner.NewStandardEvaluator(m, func(ctx context.Context) (runner.BatchReader[*loop.Batch], error) {
		e.Read, e.Examples = 0, 0
		in, err := e.Open(ctx)
		return counting{in, e}, err
	}, c)
}

// counting counts the examples that are read.
type counting struct {
	runner.BatchReader[*loop.Batch]
	of *Evaluated
}

// Next implements runner.BatchReader.
func (c counting) Next(ctx context.Context) (runner.Batch[*loop.Batch], error) {
	b, err := c.BatchReader.Next(ctx)
	if err == nil {
		c.of.Read++
		c.of.Examples += int64(b.Examples)
	}
	return b, err
}

// Close implements io.Closer.
func (c counting) Close() error {
	if closer, ok := c.BatchReader.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// Result describes the last evaluation, at a step.
func (e *Evaluated) Result(c *graphs.Contract, t task.Task, by string, step int64, out runner.Outputs) (*evaluation.Evaluation, error) {
	detail, err := t.Detail(e.sums, e.labels)
	if err != nil {
		return nil, fmt.Errorf("evaluation: %w", err)
	}
	return &evaluation.Evaluation{By: by, Task: c.Task, Split: e.Split, Step: step,
		Examples: e.Examples, Records: e.Records, Metrics: out, Detail: detail}, nil
}
