package task

import (
	"fmt"
	"math"
	"slices"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/data/qa"
	"github.com/gorbit-ml/gorbit/runner"
)

// QuestionAnswering is the name in contracts of the task of answering questions with a part of a context.
const QuestionAnswering = "qa"

// Names of the outputs of the function evaluate that are collected.
const (
	StartLogits = runner.EachPrefix + "start_logits" // one for each token of the rows
	EndLogits   = runner.EachPrefix + "end_logits"
	// Windows are what Reduce makes of them: for each window the number of its question, the score of
	// no answer, the number of its best spans and for each of them its score, first character and the
	// character after its last.
	Windows = runner.EachPrefix + "windows"
)

var questionAnswering = Kind{
	Name: QuestionAnswering,
	// A threshold has no direction.
	Better: map[string]runner.Better{
		"accuracy":               runner.HigherIsBetter,
		"exact_match":            runner.HigherIsBetter,
		"f1":                     runner.HigherIsBetter,
		"has_answer_exact_match": runner.HigherIsBetter,
		"has_answer_f1":          runner.HigherIsBetter,
		"no_answer_f1":           runner.HigherIsBetter,
		"best_f1":                runner.HigherIsBetter,
	},
	Measure:    asked{}.measure,
	Reduce:     reduceWindows,
	CheckData:  func(_ *graphs.Contract, m *convert.Manifest) string { return CheckKind(m, convert.QuestionAnswering) },
	CheckSplit: func(name string, s *convert.Split) string { return CheckAnswered(name, s, "answers") },
	OnlyAnswer: func(_ *convert.Manifest, s *convert.Split) (answer string, only bool) {
		return "no answer", s.Questions != nil && s.Questions.Records > 0 && s.Questions.Impossible == s.Questions.Records
	},
}

// WithQuestions returns the task of answering questions for evaluations of the split with the given
// ones. A question has no answer if the score of none exceeds that of the best span by more than
// threshold.
func (t Task) WithQuestions(questions []convert.Question, threshold float64) Task {
	t.kind.Measure = asked{questions, threshold}.measure
	return t
}

// asked are the questions of the split that is evaluated; none where none is.
type asked struct {
	questions []convert.Question
	threshold float64
}

// reduceWindows makes Windows of the logits of a batch.
func reduceWindows(features []dataset.Feature, out runner.Sums) error {
	start, end := out[StartLogits], out[EndLogits]
	delete(out, StartLogits)
	delete(out, EndLogits)
	values := map[string][]int32{}
	for _, name := range []string{packed.ClsPositions, packed.SequenceIDs, convert.QuestionID, convert.TokenStarts, convert.TokenEnds} {
		f := Feature(features, name)
		if f == nil || f.Int32 == nil {
			return fmt.Errorf("the batch has no feature %s; expected it, for the answers to questions; export the graph again", name)
		}
		values[name] = f.Int32
	}
	weights := Feature(features, packed.ExampleWeights)
	rows, sequences := Feature(features, packed.SequenceIDs).Shape, values[packed.SequenceIDs]
	if len(start) != len(sequences) || len(end) != len(sequences) || weights == nil || len(rows) != 2 {
		return fmt.Errorf("outputs %q and %q have %d and %d elements; expected %d, one for each token", StartLogits, EndLogits, len(start), len(end), len(sequences))
	}
	var all []float64
	for i, first := range values[packed.ClsPositions] {
		if weights.Float32[i] == 0 {
			continue
		}
		from, to := int(first), int(first)
		for rowEnd := (from/rows[1] + 1) * rows[1]; to < rowEnd && sequences[to] == sequences[from]; to++ {
		}
		c := qa.Judge(start[from:to], end[from:to], values[convert.TokenStarts][from:to], values[convert.TokenEnds][from:to], qa.NBest, qa.MaxAnswer)
		all = append(all, float64(values[convert.QuestionID][i]), c.Null, float64(len(c.Best)))
		for _, s := range c.Best {
			all = append(all, s.Score, float64(s.Start), float64(s.End))
		}
	}
	out[Windows] = append(out[Windows], all...)
	return nil
}

// candidates joins the windows of each question. A question without windows is nil.
func candidates(flat []float64, questions int) ([]*qa.Candidates, error) {
	out := make([]*qa.Candidates, questions)
	for at := 0; at < len(flat); {
		if len(flat) < at+3 || len(flat) < at+3+3*int(flat[at+2]) || flat[at] < 0 || int(flat[at]) >= questions {
			return nil, fmt.Errorf("a record is of question %v; expected one of the %d of the split; convert the data again", flat[at], questions)
		}
		c := qa.Candidates{Null: flat[at+1]}
		q, n := int(flat[at]), int(flat[at+2])
		at += 3
		for range n {
			c.Best = append(c.Best, qa.Span{Score: flat[at], Start: int(flat[at+1]), End: int(flat[at+2])})
			at += 3
		}
		if out[q] != nil {
			c = out[q].Join(c, qa.NBest)
		}
		out[q] = &c
	}
	return out, nil
}

// measure adds from Windows exact_match and f1 as
// SQuAD's scripts, as shares of 1: as that of 1.1 if all questions have an answer, and otherwise as that
// of 2.0, with those of questions with and without an answer, and with the threshold at which f1 would
// be best. Questions of which no window was evaluated do not count.
func (a asked) measure(_ *graphs.Contract, sums runner.Sums, out runner.Outputs) error {
	flat, ok := sums[Windows]
	switch {
	case !ok && sums[StartLogits] != nil: // to name the metrics
		out["exact_match"], out["f1"] = 1, 1
		return nil
	case !ok:
		return nil
	}
	all, err := candidates(flat, len(a.questions))
	if err != nil {
		return err
	}
	s := a.score(all)
	if s.all.count == 0 {
		out["exact_match"], out["f1"] = math.NaN(), math.NaN()
		return nil
	}
	out["exact_match"], out["f1"] = s.all.means()
	if s.without.count > 0 {
		out["has_answer_exact_match"], out["has_answer_f1"] = s.with.means()
		out["no_answer_f1"], _ = s.without.means()
		out["best_f1"], out["best_f1_threshold"] = s.best()
	}
	return nil
}

// scores are sums of scores of questions.
type scores struct{ exact, f1, count float64 }

func (s *scores) add(exact, f1 float64) { s.exact, s.f1, s.count = s.exact+exact, s.f1+f1, s.count+1 }

func (s scores) means() (exact, f1 float64) { return s.exact / s.count, s.f1 / s.count }

// scored are the scores of a split.
type scored struct {
	all, with, without scores
	// each has for each question by how much the score of no answer exceeds the best span's, and its f1
	// if the answer is the span and if it is none.
	each []choice
}

type choice struct{ margin, span, none float64 }

// score compares the answers to the questions with the true ones.
func (a asked) score(all []*qa.Candidates) (s scored) {
	impossible := slices.ContainsFunc(a.questions, func(q convert.Question) bool { return len(q.Answers) == 0 && !q.Unknown })
	for i, c := range all {
		q := a.questions[i]
		if c == nil || q.Unknown {
			continue
		}
		truths, span := q.Answers, ""
		if impossible {
			truths = qa.Truths(truths)
		}
		margin := math.Inf(1)
		if len(c.Best) > 0 {
			span = qa.Slice(q.Context, c.Best[0].Start, c.Best[0].End)
			margin = c.Null - c.Best[0].Score
		}
		answer := span
		if impossible && c.NoAnswer(a.threshold) {
			answer = ""
		}
		exact, f1 := qa.ExactMatch(answer, truths), qa.F1(answer, truths, impossible)
		s.all.add(exact, f1)
		if len(q.Answers) > 0 {
			s.with.add(exact, f1)
		} else {
			s.without.add(exact, f1)
		}
		s.each = append(s.each, choice{margin, qa.F1(span, truths, impossible), qa.F1("", truths, impossible)})
	}
	return s
}

// best returns the best f1 of any threshold, and the lowest such threshold.
func (s scored) best() (f1, threshold float64) {
	each := slices.Clone(s.each)
	slices.SortStableFunc(each, func(a, b choice) int {
		switch {
		case a.margin < b.margin:
			return -1
		case a.margin > b.margin:
			return 1
		}
		return 0
	})
	sum := 0.0
	for _, c := range each { // below all margins nothing has an answer
		sum += c.none
	}
	best, at := sum, each[0].margin-1
	for i, c := range each {
		sum += c.span - c.none
		if (i+1 == len(each) || each[i+1].margin > c.margin) && sum > best && !math.IsInf(c.margin, 0) {
			best, at = sum, c.margin
		}
	}
	return best / s.all.count, at
}
