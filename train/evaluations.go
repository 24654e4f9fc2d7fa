package train

import (
	"cmp"
	"context"
	"sync"

	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

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
	e, err := a.evaluations.Result(a.Export.Contract, a.task, evaluation.ByTrain, step, out)
	if err != nil {
		return err
	}
	if err := a.files.write(a.folder, e); err != nil || !a.Params.Summary.Enabled {
		return err
	}
	return e.Show(a.board.Eval)
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
