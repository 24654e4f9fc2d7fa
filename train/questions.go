package train

import (
	"context"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/task"
	"github.com/gorbit-ml/gorbit/train/task/qa"
)

// forSplit returns the task for evaluations of a split, and what reduces the values of a batch's
// examples; nil for none. Answers to questions are compared with those of the split.
func (s *setup) forSplit(ctx context.Context, of task.Task, split string) (task.Task, func([]strategy.Feature, runner.Sums) error, error) {
	if t, ok := of.(qa.Task); ok {
		questions, err := s.questions(ctx, split)
		if err != nil {
			return nil, nil, err
		}
		of = t.WithQuestions(questions, s.params.Eval.NullThreshold)
	}
	if r, ok := of.(task.Reducer); ok {
		return of, r.Reduce, nil
	}
	return of, nil, nil
}

// questions reads the questions of a split.
func (s *setup) questions(ctx context.Context, split string) ([]convert.Question, error) {
	m := s.data.manifest
	if m == nil {
		m = new(convert.Manifest)
	}
	return convert.ReadQuestions(ctx, s.data.dir, m, split)
}
