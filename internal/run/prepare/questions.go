package prepare

import (
	"context"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/task"
)

// ForSplit returns the task for evaluations of a split, and what reduces the values of a batch's
// examples; nil for none. Answers to questions are compared with those of the split.
func (s *Setup) ForSplit(ctx context.Context, of task.Task, split string) (task.Task, func([]strategy.Feature, runner.Sums) error, error) {
	if of.Name() == task.QuestionAnswering {
		questions, err := s.Questions(ctx, split)
		if err != nil {
			return of, nil, err
		}
		of = of.WithQuestions(questions, s.Params.Eval.NullThreshold)
	}
	if of.Reduces() {
		return of, of.Reduce, nil
	}
	return of, nil, nil
}

// Questions reads the questions of a split.
func (s *Setup) Questions(ctx context.Context, split string) ([]convert.Question, error) {
	m := s.Data.Manifest
	if m == nil {
		m = new(convert.Manifest)
	}
	return convert.ReadQuestions(ctx, s.Data.Dir, m, split)
}
