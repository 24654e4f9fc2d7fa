package train

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"

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

// evaluationFiles are the files of a training's evaluations.
type evaluationFiles struct {
	mu  sync.Mutex
	err error // of a failed write
}

// Sync implements synced. It returns the error of an earlier write, so that no checkpoint is saved
// after a lost evaluation.
func (f *evaluationFiles) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// write writes an evaluation into a run, durably.
func (f *evaluationFiles) write(folder string, e *evaluation.Evaluation) error {
	_, err := evaluation.Write(folder, e)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = cmp.Or(f.err, err)
	return err
}

// keepEvaluation is an action that writes the result of an evaluation into the run, and shows it in
// TensorBoard.
func (a *attempt) keepEvaluation(_ context.Context, step int64, out runner.Outputs) error {
	e, err := a.evaluations.result(a.export.Contract, a.task, evaluation.ByTrain, step, out)
	if err != nil {
		return err
	}
	if err := a.files.write(a.folder, e); err != nil || !a.params.Summary.Enabled {
		return err
	}
	return e.Show(a.board.eval)
}

// forgetEvaluations removes the evaluations of steps that the run lost: it will do them again, maybe
// with other params.
func (a *attempt) forgetEvaluations(step int64) error {
	all, err := evaluation.List(a.folder)
	if err != nil {
		a.env.Log.Warn("some evaluations of the run cannot be read", "error", err)
	}
	for _, e := range all {
		if e.By == evaluation.ByTrain && e.Step > step {
			if err := evaluation.Remove(a.folder, e.Split, e.Step); err != nil {
				return err
			}
		}
	}
	return nil
}
