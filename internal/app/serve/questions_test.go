package serve

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// spanModel gives the tokens of an example logits of their own.
type spanModel struct{}

func (spanModel) Predict(_ context.Context, all []text.Encoding) ([]predict.Result, error) {
	out := make([]predict.Result, len(all))
	for i, e := range all {
		start, end := make([]float64, len(e.IDs)), make([]float64, len(e.IDs))
		for k, id := range e.IDs {
			start[k], end[k] = float64(id%7), float64((int(id)*k)%5)
		}
		out[i] = predict.Result{{Shape: []int{len(e.IDs)}, Data: start}, {Shape: []int{len(e.IDs)}, Data: end}}
	}
	return out, nil
}

// TestQuestions wants the answers of gorbit predict to contexts of one window and of several.
func TestQuestions(t *testing.T) {
	m := texts(t, spanModel{})
	m.Texts.MaxLength = 9
	outputs := []predict.OutputSpec{{Name: "start", Kind: predict.Spans}, {Name: "end", Kind: predict.Spans}}
	m.Outputs = []Tensor{{Name: "start", DType: dataset.Float32, Shape: []int64{-1, -1}}, {Name: "end", DType: dataset.Float32, Shape: []int64{-1, -1}}}
	var err error
	if m.Renderer, err = predict.NewRenderer("qa", outputs); err != nil {
		t.Fatal(err)
	}
	p, err := predict.New(spanModel{}, predict.Config{Tokenizer: m.Texts.Tokenizer, MaxLength: 9, DocStride: 2, Renderer: m.Renderer})
	if err != nil {
		t.Fatal(err)
	}
	m.Renderer = p.Renderer
	pairs := []text.Pair{{A: "a", B: "b c"}, {A: "b a", B: strings.Repeat("a b c c ", 5)}, {A: "c", B: "a"}, {A: strings.Repeat("a ", 9), B: "b c a b"}}
	answers, err := p.Answer(t.Context(), pairs...)
	if err != nil {
		t.Fatal(err)
	}
	examples := make([]map[string]string, len(pairs))
	for i, pair := range pairs {
		examples[i] = map[string]string{"text": pair.A, "text_pair": pair.B}
	}
	body, err := json.Marshal(map[string]any{"examples": examples})
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	c := config()
	s := start(t, c, m)
	if code, got := ask(s, "POST", "/v1/models/words:answer", string(body)); code != 200 || got != `{"model":"words","version":7,"answers":`+string(want)+`}` {
		t.Errorf("%d: %s\nexpected %s", code, got, want)
	}

	c.MaxExamples, c.RefuseLong = 4, true
	s = start(t, c, m)
	long := strings.Repeat("a b ", 40)
	for body, want := range map[string]string{
		`{"text": "a"}`: "example 1: a single text is given; expected a pair",
		`{"text": "a", "text_pair": "` + long + `"}`:                                                   "example 1: the context has 26 windows of 9 tokens; expected at most 4",
		`{"texts": [{"text": "a", "pair": "a b c a b c a"}, {"text": "a", "pair": "a"}]}`:              "answers",
		`{"texts": [{"text":"a","pair":"a b c a b c a b c a b c"},{"text":"a","pair":"a"}]}`:           "the first 1 examples have 4 windows of contexts, or choices, the most of a request",
		`{"text": "` + strings.Repeat("a ", 9) + `", "text_pair": "b"}`:                                "example 1: the question, or a choice with its text, is too long",
		`{"examples": [{"input_ids": [2,5,3], "attention_mask": [1,1,1], "token_type_ids": [0,0,0]}]}`: "not given as texts",
	} {
		code, got := ask(s, "POST", "/v1/models/words:answer", body)
		if !strings.Contains(got, want) {
			t.Errorf("%s: %d %s; expected %s", body, code, got, want)
		}
	}
}
