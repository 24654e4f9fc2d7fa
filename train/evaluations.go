package train

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/task"
)

// splitEvaluator evaluates on a split of a training.
type splitEvaluator struct {
	runner.Evaluator
	data *prepare.Evaluated
	task task.Task
	// prefix is what the names of its metrics begin with.
	prefix string
	// out are the metrics of the last evaluation, with their plain names.
	out runner.Outputs
}

// splitEvaluators are those of data.eval, in its order. They implement runner.Evaluator.
type splitEvaluators []*splitEvaluator

// evaluatorsOf returns what evaluates on each split of the training.
func (a *attempt) evaluatorsOf(ctx context.Context) (splitEvaluators, error) {
	var out splitEvaluators
	for i, data := range a.evaluations {
		of, reduce, err := a.ForSplit(ctx, a.task, a.Params.Data.Eval[i])
		if err != nil {
			return nil, err
		}
		// A model of its own, because how values are reduced depends on the split.
		model := loop.NewModel(a.on.Strategy, a.scalars, a.env.Log)
		model.Reduce = reduce
		out = append(out, &splitEvaluator{data: data, task: of, prefix: a.Params.Data.Eval.Prefix(i),
			Evaluator: data.Evaluator(model, of, runner.EvaluatorConfig{InFlight: a.on.Runtime().InFlight, Observer: a.env.Observer})})
	}
	return out, nil
}

// generateTexts lets the evaluations of each split generate texts, if they are asked for. The splits share
// the budget.
func (a *attempt) generateTexts(config *runner.Config) error {
	if a.Params.Eval.Generate.Metrics == "" {
		return nil
	}
	vocab := a.Data.Manifest.Vocab // which preflight has checked
	tokenizer, err := vocab.Tokenizer(vfs.Join(a.Data.Dir, vocab.File))
	if err != nil {
		return err
	}
	for _, e := range a.evaluators {
		texts, err := textsOf(a.Setup, a.on, e.data.Split, tokenizer)
		if err != nil {
			return err
		}
		texts.Evaluator = e.Evaluator
		texts.Budget /= float64(len(a.evaluators))
		texts.Trained = func() time.Duration { return a.controller.Times().Training }
		config.Persist[e.prefix+loop.TextsState] = texts
		e.Evaluator = texts
	}
	return nil
}

// Evaluate implements runner.Evaluator. It evaluates on one split after the other.
func (s splitEvaluators) Evaluate(ctx context.Context, steps int64) (runner.Outputs, error) {
	all := make(runner.Outputs)
	for _, e := range s {
		out, err := e.Evaluator.Evaluate(ctx, steps)
		if err != nil && len(s) > 1 {
			err = fmt.Errorf("split %s: %w", e.data.Split, err)
		}
		if err != nil {
			return nil, err
		}
		e.out = out
		for name, v := range out {
			if _, twice := all[e.prefix+name]; twice {
				return nil, fmt.Errorf("the evaluations have two metrics with the name %s; give split %s of data.eval another name", e.prefix+name, e.data.Split)
			}
			all[e.prefix+name] = v
		}
	}
	return all, nil
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

// keepEvaluations is an action that writes the results of an evaluation into the run, a file for each
// split, and shows them in TensorBoard.
func (a *attempt) keepEvaluations(_ context.Context, step int64, _ runner.Outputs) error {
	for _, of := range a.evaluators {
		e, err := of.data.Result(a.Export.Contract, of.task, evaluation.ByTrain, step, of.out)
		if err != nil {
			return err
		}
		if err := a.files.write(a.folder, e); err != nil {
			return err
		}
		if a.Params.Summary.Enabled {
			if err := e.Show(a.board.Eval, of.prefix); err != nil {
				return err
			}
		}
	}
	return nil
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
