package train

import (
	"context"
	"fmt"
	"io"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/task"
)

// evaluated is a split that evaluations read, with what the last evaluation summed up.
type evaluated struct {
	split string
	// labels are the names of the classes of the graph's first label; nil if they are not known.
	labels  []string
	batches int64
	records int64
	open    func(context.Context) (runner.BatchReader[*Batch], error)
	sums    runner.Sums
	// read and examples count the batches and examples of the last evaluation.
	read, examples int64
}

// evaluator returns what evaluates a model on the split. Its evaluations must not overlap.
func (e *evaluated) evaluator(m *Model, t task.Task, c runner.EvaluatorConfig) runner.Evaluator {
	c.Batches = e.batches
	c.Metrics = func(sums runner.Sums) (runner.Outputs, error) {
		e.sums = sums
		return t.Measure(sums)
	}
	return runner.NewStandardEvaluator(m, func(ctx context.Context) (runner.BatchReader[*Batch], error) {
		e.read, e.examples = 0, 0
		in, err := e.open(ctx)
		return counting{in, e}, err
	}, c)
}

// counting counts the examples that are read.
type counting struct {
	runner.BatchReader[*Batch]
	of *evaluated
}

// Next implements runner.BatchReader.
func (c counting) Next(ctx context.Context) (runner.Batch[*Batch], error) {
	b, err := c.BatchReader.Next(ctx)
	if err == nil {
		c.of.read++
		c.of.examples += int64(b.Examples)
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

// result describes the last evaluation, at a step.
func (e *evaluated) result(c *graphs.Contract, t task.Task, by string, step int64, out runner.Outputs) (*evaluation.Evaluation, error) {
	detail, err := t.Detail(e.sums, e.labels)
	if err != nil {
		return nil, fmt.Errorf("evaluation: %w", err)
	}
	return &evaluation.Evaluation{By: by, Task: c.Task, Split: e.split, Step: step,
		Examples: e.examples, Records: e.records, Metrics: out, Detail: detail}, nil
}
