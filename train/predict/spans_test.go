package predict

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/text"
)

// spanModel says that film is the answer, and good the last token of it, if it follows. [CLS] has half of
// null in each logit.
func spanModel(null float64, calls *[]int) taskModel {
	return func(e text.Encoding) Result {
		*calls = append(*calls, len(e.IDs))
		start, end := make([]float64, len(e.IDs)), make([]float64, len(e.IDs))
		for i, id := range e.IDs {
			switch {
			case i == 0:
				start[i], end[i] = null/2, null/2
			case id == 7 && e.TypeIDs[i] == 1: // film
				start[i], end[i] = 3, 1
			case id == 5 && e.TypeIDs[i] == 1 && e.IDs[i-1] == 7: // good
				end[i] = 2
			}
		}
		return Result{{Shape: []int{len(e.IDs)}, Data: start}, {Shape: []int{len(e.IDs)}, Data: end}}
	}
}

var spanOutputs = []OutputSpec{{Name: "start_logits", Kind: Spans}, {Name: "end_logits", Kind: Spans}}

func TestQuestions(t *testing.T) {
	for _, c := range []struct {
		null       float64
		max        int
		question   string
		context    string
		want, line string
		row        string
		windows    int
	}{
		{0.5, 32, "film?", "“Good” 😀 Film good.", `{"answer":"Film good","start":9,"end":18,"score":5,"null_score":0.5,"no_answer":false}`, "Film good", "Film good 5", 1},
		{9, 32, "film", "good film", `{"answer":"film","start":5,"end":9,"score":4,"null_score":9,"no_answer":true}`, "no answer", " 9", 1},
		// Ten tokens of context, five in a window, two of them shared.
		{0.5, 9, "film", ". . . . . . . . film good", `{"answer":"film good","start":16,"end":25,"score":5,"null_score":0.5,"no_answer":false}`, "film good", "film good 5", 3},
		{0.5, 9, "film film film film", "good", `{"answer":"good","start":0,"end":4,"score":0,"null_score":0.5,"no_answer":true,"truncated":true}`, "no answer", " 0.5", 1},
	} {
		r, err := NewRenderer("qa", spanOutputs)
		if err != nil {
			t.Fatal(err)
		}
		var calls []int
		p, err := New(spanModel(c.null, &calls), Config{Tokenizer: taskTokenizer(t), MaxLength: c.max, DocStride: 2, Renderer: r})
		if err != nil {
			t.Fatal(err)
		}
		pair := text.Pair{A: c.question, B: c.context}
		answers, err := p.Answer(t.Context(), pair, pair)
		if err != nil || len(answers) != 2 {
			t.Fatalf("%d answers, %v", len(answers), err)
		}
		for _, a := range answers {
			data, err := json.Marshal(a)
			if err != nil || string(data) != c.want || a.Text() != c.line || strings.Join(a.Row(), " ") != c.row {
				t.Errorf("%q: got %s, %q, %q, %v; want %s", c.context, data, a.Text(), a.Row(), err, c.want)
			}
			if names := heads(a.Columns()[0]); names[0] != p.Renderer.Names()[0] || len(a.Columns()) != len(p.Renderer.Names()) {
				t.Errorf("columns are %v", a.Columns())
			}
		}
		if len(calls) != 2*c.windows || slices.Max(calls) > c.max {
			t.Errorf("%q: windows of %v tokens; want %d twice", c.context, calls, c.windows)
		}
	}
}

func TestQuestionsThatCannotBeAnswered(t *testing.T) {
	if _, err := NewRenderer("qa", spanOutputs[:1]); err == nil || !strings.Contains(err.Error(), "lacks outputs of spans") {
		t.Error(err)
	}
	r, err := NewRenderer("qa", spanOutputs)
	if err != nil {
		t.Fatal(err)
	}
	var calls []int
	model := spanModel(0, &calls)
	p, err := New(model, Config{Tokenizer: taskTokenizer(t), MaxLength: 9, Renderer: r})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Answer(t.Context(), text.Pair{A: "film"}); fault.Of(err) != fault.Usage || !strings.Contains(err.Error(), "text 1: a single text is given; expected a pair: a question, and its context as the second text") {
		t.Error(err)
	}
	// One window at a time, as servers do.
	pair := text.Pair{A: "film", B: "good film"}
	e := p.Tokenizer.Encode(pair.A, pair.B, 9)
	if a, err := p.Renderer.Render(Example{Encoding: e, Text: &pair}, model(e)); err != nil || a.Text() != "film" {
		t.Errorf("%v, %v", a, err)
	}
	pair.B = ". . . . . . . . film good"
	e = p.Tokenizer.Encode(pair.A, pair.B, 9)
	if _, err := p.Renderer.Render(Example{Encoding: e, Text: &pair}, model(e)); fault.Of(err) != fault.Usage || !strings.Contains(err.Error(), "the context has 3 windows of 9 tokens; expected at most 1") {
		t.Error(err)
	}
	if _, err := p.Renderer.Render(Example{Encoding: e}, model(e)); err == nil || !strings.Contains(err.Error(), "not given as texts") {
		t.Error(err)
	}
	if got, err := ParseJSON(`{"id": 1, "question": "a", "context": "b"}`); err != nil || got != (text.Pair{A: "a", B: "b"}) {
		t.Errorf("%v, %v", got, err)
	}
}
