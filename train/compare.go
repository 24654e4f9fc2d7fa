package train

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"reflect"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/predict"
	"github.com/gorbit-ml/gorbit/train/task"
)

// Comparison holds two forms of a model against the labels of a split.
type Comparison struct {
	Split    string
	Examples int
	// Metric is accuracy, or loss of a model that predicts numbers. Own is its value of the run's model, and
	// Other that of the other form.
	Metric     string
	Own, Other float64
	// Different is the share of answers that differ.
	Different float64
}

// Compare answers the texts of a split with the checkpoint that Load restored and with another form of the
// same model, which has the same outputs in the same order, and holds both against the labels. split ""
// means the run's own. The metric is accuracy, which counts each token of a text with tags, or the loss of
// a model that predicts numbers.
func (r *Run) Compare(ctx context.Context, split string, other predict.Model) (_ *Comparison, err error) {
	if c := r.Export.Contract; !r.TakesTexts() || c.HasParts() || c.Loss == graphs.LossAcross || c.Texts() > 1 || c.Masking != nil || c.HasTargets() {
		return nil, fault.Usagef("the examples of run %s have no labels to hold a model's answers against; expected a classifier, tags or a regression of texts", r.Folder)
	}
	q := &Comparison{Split: cmp.Or(split, r.Params.Data.Eval.First())}
	e, err := r.openExamples(ctx, q.Split)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	own, err := r.Predictor(nil)
	if err != nil {
		return nil, err
	}
	own.Renderer = asItIs{}
	theirs, err := predict.New(other, own.Config)
	if err != nil {
		return nil, err
	}
	first, stop := iter.Pull2(answersOf(ctx, own, r.examples(ctx, q.Split)))
	defer stop()
	second, stop := iter.Pull2(answersOf(ctx, theirs, r.examples(ctx, q.Split)))
	defer stop()
	tags := r.Export.Contract.Task == task.Tokens
	score := [2]score{{tags: tags}, {tags: tags}}
	different := 0.0
	for {
		b, err := e.data.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		var rows [2]evaluation.Row
		for i, next := range []func() (rawAnswer, error, bool){first, second} {
			a, err, ok := next()
			if err != nil || !ok {
				return nil, cmp.Or(err, io.ErrUnexpectedEOF)
			}
			loss, known := e.answer(&rows[i], b, a.outputs)
			if !score[i].add(rows[i], loss, known) {
				return nil, fault.Usagef("the answers of run %s cannot be held against the labels of split %s one by one; expected a classifier, tags or a regression of texts", r.Folder, q.Split)
			}
		}
		q.Examples++
		if !reflect.DeepEqual(rows[0].Prediction, rows[1].Prediction) {
			different++
		}
	}
	if q.Examples == 0 {
		return nil, fault.Usagef("split %s of run %s has no examples; expected some, with labels", q.Split, r.Folder)
	}
	q.Metric, q.Own = score[0].value()
	_, q.Other = score[1].value()
	q.Different = different / float64(q.Examples)
	return q, nil
}

// answersOf yields the answers to examples, in order.
func answersOf(ctx context.Context, p *predict.Predictor, examples iter.Seq2[[]text.Encoding, error]) iter.Seq2[rawAnswer, error] {
	stopped := errors.New("no more answers are wanted")
	return func(yield func(rawAnswer, error) bool) {
		_, err := p.EachEncoded(ctx, examples, func(a predict.Answer) error {
			if !yield(a.(rawAnswer), nil) {
				return stopped
			}
			return nil
		})
		if err != nil && err != stopped {
			yield(rawAnswer{}, err)
		}
	}
}

// score adds up how good answers are.
type score struct {
	right, all, loss float64
	tags             bool // an answer has one for each token, which count by themselves
	numbers          bool // the answers are numbers, which are not right or wrong
}

// add adds an answer. It reports false if there is nothing to hold it against.
func (s *score) add(row evaluation.Row, loss float64, known bool) bool {
	if row.Label == nil || row.Prediction == nil {
		return false
	}
	switch label := row.Label.(type) {
	case runner.Number:
		s.numbers = true
		s.all++
		s.loss += loss
		return known
	case []string:
		prediction, ok := row.Prediction.([]string)
		if !s.tags {
			break
		}
		if !ok || len(label) != len(prediction) {
			return false
		}
		for i := range label {
			s.count(label[i], prediction[i])
		}
		return true
	}
	s.count(row.Label, row.Prediction)
	return true
}

func (s *score) count(label, prediction any) {
	s.all++
	if evaluation.Answer(label) == evaluation.Answer(prediction) {
		s.right++
	}
}

// value returns the metric and its value.
func (s *score) value() (metric string, value float64) {
	if s.numbers {
		return "loss", s.loss / s.all
	}
	return "accuracy", s.right / s.all
}
