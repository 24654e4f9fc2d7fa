package predict

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/data/qa"
	"github.com/gorbit-ml/gorbit/text"
)

// spanner is the Renderer of models that answer a question with a part of a context: the first text of
// a pair is the question, the second the context. Long contexts have several windows.
type spanner struct {
	start, end  int // outputs with the logits of first and last tokens
	tokenizer   *text.Tokenizer
	max, stride int
}

func newSpanner(outputs []OutputSpec) (Renderer, error) {
	s := spanner{start: -1, end: -1}
	for i, o := range outputs {
		switch {
		case o.Kind == Spans && s.start < 0:
			s.start = i
		case o.Kind == Spans && s.end < 0:
			s.end = i
		}
	}
	if s.end < 0 {
		return nil, errors.New("the model lacks outputs of spans; expected two, the logits of first and last tokens")
	}
	return s, nil
}

func (s spanner) with(tokenizer *text.Tokenizer) Renderer {
	s.tokenizer = tokenizer
	return s
}

// windows returns the windows of a question's context, at most some. cut reports that the question was
// cut.
func (s spanner) windows(p text.Pair, most int) (windows []qa.Window, cut bool, err error) {
	if p.B == "" {
		return nil, false, fault.Usagef("%s", single)
	}
	question, cut := qa.Question(s.tokenizer, p.A, s.max)
	context := qa.Tokenize(s.tokenizer, p.B, qa.Tokens(s.tokenizer, len(question), most, s.max, s.stride))
	if n := qa.Count(s.tokenizer, len(question), len(context.IDs)+context.More, s.max, s.stride); n > most {
		return nil, false, fault.Usagef("the context has %d windows of %d tokens; expected at most %d", n, s.max, most)
	}
	return qa.Windows(s.tokenizer, question, context, s.max, s.stride), cut, nil
}

// single is what is wrong with a question without a context.
const single = "a single text is given; expected a pair: a question, and its context as the second text"

// Divide implements Divider.
func (s spanner) Divide(p text.Pair, most int) (d Division, err error) {
	if s.tokenizer == nil {
		return d, errNoPair
	}
	windows, cut, err := s.windows(p, most)
	if err != nil {
		return d, err
	}
	d.Cut = cut
	for _, w := range windows {
		d.Parts = append(d.Parts, w.Encoding())
	}
	d.Unite = func(results []Result) (Answer, error) {
		if len(results) != len(windows) {
			return nil, fmt.Errorf("%d outputs of the model for %d windows; expected one for each", len(results), len(windows))
		}
		judged := make([]qa.Candidates, len(windows))
		for i, w := range windows {
			var err error
			if judged[i], err = s.judge(w, results[i]); err != nil {
				return nil, err
			}
		}
		return united(p, judged, cut), nil
	}
	return d, nil
}

// errNoPair is the error for an example that is not a question with its context.
var errNoPair = fault.Usagef("the example is not given as texts; expected a question and its context")

// united returns the answer for a pair from what a model says about each window.
func united(p text.Pair, windows []qa.Candidates, cut bool) Found {
	c := windows[0]
	for _, w := range windows[1:] {
		c = c.Join(w, qa.NBest)
	}
	return found(p, c, cut)
}

// judge returns what a model's outputs say about a window.
func (s spanner) judge(w qa.Window, r Result) (qa.Candidates, error) {
	n := len(w.IDs)
	if s.start >= len(r) || s.end >= len(r) || len(r[s.start].Data) != n || len(r[s.end].Data) != n {
		return qa.Candidates{}, fmt.Errorf("unexpected outputs of the model; expected two logits for each of %d tokens", n)
	}
	return qa.Judge(r[s.start].Data, r[s.end].Data, w.Starts, w.Ends, qa.NBest, qa.MaxAnswer), nil
}

// Render implements Renderer, for a context that is one window.
func (s spanner) Render(e Example, r Result) (Answer, error) {
	if e.Text == nil {
		return nil, errNoPair
	}
	d, err := s.Divide(*e.Text, 1)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(d.Parts[0].IDs, e.Encoding.IDs) {
		return nil, fault.Usagef("the question has more tokens than a window of %d has room for; expected fewer", s.max)
	}
	return d.Unite([]Result{r})
}

// Names implements Renderer.
func (s spanner) Names() []string {
	return []string{"answer", "start", "end", "score", "null_score", "no_answer", "truncated"}
}

// found returns the answer for the best span of a context.
func found(p text.Pair, c qa.Candidates, cut bool) Found {
	f := Found{NullScore: c.Null, NoAnswer: c.NoAnswer(0), Truncated: cut}
	if len(c.Best) > 0 {
		best := c.Best[0]
		f.Answer, f.Start, f.End, f.Score = qa.Slice(p.B, best.Start, best.End), best.Start, best.End, best.Score
	}
	return f
}

// Found is the Answer of a model that answers a question with a part of a context.
type Found struct {
	// Answer is the best part of the context, its characters from Start to End, and Score is the sum of
	// the logits of its first and last token.
	Answer     string
	Start, End int
	Score      float64
	// NullScore is the score that the context has no answer, and NoAnswer reports that it is higher.
	NullScore float64
	NoAnswer  bool
	// Truncated reports that the question was longer than 64 tokens and was cut.
	Truncated bool
}

var _ Answer = Found{}

// Fields implements Answer.
func (a Found) Fields() []Field {
	f := []Field{{Name: "answer", Value: a.Answer}, {Name: "start", Value: a.Start}, {Name: "end", Value: a.End},
		{Name: "score", Value: a.Score}, {Name: "null_score", Value: a.NullScore}, {Name: "no_answer", Value: a.NoAnswer}}
	if a.Truncated {
		f = append(f, Field{Name: "truncated", Value: true})
	}
	return f
}

// MarshalJSON implements json.Marshaler.
func (a Found) MarshalJSON() ([]byte, error) { return Object(a.Fields()).MarshalJSON() }

// Columns implements Answer.
func (a Found) Columns() []Field {
	return []Field{{Name: "answer", Value: a.Answer}, {Name: "start", Value: a.Start}, {Name: "end", Value: a.End},
		{Name: "score", Value: a.Score}, {Name: "null_score", Value: a.NullScore}, {Name: "no_answer", Value: a.NoAnswer}, {Name: "truncated", Value: a.Truncated}}
}

// Text implements Answer: the answer, or that there is none.
func (a Found) Text() string {
	if a.NoAnswer {
		return "no answer"
	}
	return a.Answer
}

// Row implements Answer: the text, empty if there is no answer, and the score.
func (a Found) Row() []string {
	if a.NoAnswer {
		return []string{"", number(a.NullScore)}
	}
	return []string{a.Answer, number(a.Score)}
}

// Cut implements Answer.
func (a Found) Cut() bool { return a.Truncated }
