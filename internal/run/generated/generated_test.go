package generated

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/text/scores"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// batches is a split of so many batches of ten examples.
type batches struct{ left int }

func (b *batches) Next(context.Context) (*dataset.Batch, error) {
	if b.left == 0 {
		return nil, io.EOF
	}
	b.left--
	return &dataset.Batch{Examples: 10}, nil
}

func (b *batches) Close() error { return nil }

// echo is a Model whose examples have numbers as references, and which generates those of even numbers.
type echo struct {
	read, generated int
	err             error
}

func (e *echo) Examples(b *dataset.Batch) ([]Example, error) {
	out := make([]Example, b.Examples)
	for i := range out {
		out[i] = Example{Prompt: []int32{int32(e.read)}, Reference: fmt.Sprint(e.read)}
		e.read++
	}
	return out, nil
}

func (e *echo) Generate(_ context.Context, examples []Example, each func(int, string)) error {
	for i, x := range slices.Backward(examples) {
		e.generated++
		if x.Prompt[0]%2 == 0 {
			each(i, x.Reference)
		} else {
			each(i, "")
		}
	}
	return e.err
}

// plain is the evaluator of everything else.
type plain struct{}

func (plain) Evaluate(context.Context, int64) (runner.Outputs, error) {
	return runner.Outputs{"loss": 1}, nil
}

func newEvaluator(t *testing.T, m Model, examples int) *Evaluator {
	t.Helper()
	exact, err := scores.Named("exact_match")
	if err != nil {
		t.Fatal(err)
	}
	return &Evaluator{Evaluator: plain{}, Config: Config{
		Metrics: []scores.Metric{exact}, Examples: examples, Seed: 3, Model: m, Log: slog.New(slog.DiscardHandler),
		Open: func(context.Context) (Batches, error) { return &batches{10}, nil },
	}}
}

func records(e *Evaluator) (out []int64) {
	for _, r := range e.Results {
		out = append(out, r.Record)
	}
	return out
}

func TestAllExamples(t *testing.T) {
	e := newEvaluator(t, new(echo), 0)
	out, err := e.Evaluate(t.Context(), 0)
	if err != nil || !maps.Equal(out, runner.Outputs{"loss": 1, "exact_match": 0.5}) {
		t.Errorf("%v, %v; expected half of the texts to match", out, err)
	}
	seen := records(e)
	slices.Sort(seen)
	if len(slices.Compact(seen)) != 100 {
		t.Errorf("the records are %v; expected all 100", seen)
	}
	for _, r := range e.Results {
		if r.Reference != fmt.Sprint(r.Record) || r.Scores["exact_match"] != float64(1-r.Record%2) {
			t.Errorf("record %d has %v", r.Record, r)
		}
	}
}

// TestSample has a number of examples, drawn by the seed.
func TestSample(t *testing.T) {
	sample := func(seed int64, n int) []int64 {
		e := newEvaluator(t, new(echo), n)
		e.Seed = seed
		for range 2 {
			if _, err := e.Evaluate(t.Context(), 0); err != nil || len(e.Results) != n {
				t.Fatalf("%d examples, %v; expected %d", len(e.Results), err, n)
			}
		}
		return records(e)
	}
	first := sample(3, 7)
	if !slices.Equal(first, sample(3, 7)) || !slices.Equal(first, sample(3, 20)[:7]) {
		t.Error("equal seeds give other examples")
	}
	if slices.Equal(first, sample(4, 7)) || slices.IsSorted(first) {
		t.Errorf("the examples are %v; expected those of a seed", first)
	}
}

// TestBudget has the number of the first evaluation in those after it, and after a restart.
func TestBudget(t *testing.T) {
	for _, tt := range []struct {
		trained time.Duration
		want    int
	}{{0, 16}, {1000 * time.Hour, 100}} {
		e := newEvaluator(t, new(echo), 0)
		trained := tt.trained
		e.Budget, e.Trained = 0.1, func() time.Duration { return trained }
		if _, err := e.Evaluate(t.Context(), 0); err != nil || len(e.Results) != tt.want {
			t.Fatalf("%d examples after %v, %v; expected %d", len(e.Results), tt.trained, err, tt.want)
		}
		before := records(e)
		trained = 1000 * time.Hour
		if _, err := e.Evaluate(t.Context(), 0); err != nil || !slices.Equal(records(e), before) {
			t.Errorf("the second evaluation has %v, %v; expected %v", records(e), err, before)
		}
		state, err := e.State()
		if err != nil {
			t.Fatal(err)
		}
		again := newEvaluator(t, new(echo), 0)
		again.Budget, again.Trained = e.Budget, e.Trained
		if err := again.Restore(state); err != nil {
			t.Fatal(err)
		}
		if _, err := again.Evaluate(t.Context(), 0); err != nil || !slices.Equal(records(again), before) {
			t.Errorf("after a restart: %v, %v; expected %v", records(again), err, before)
		}
		if err := again.Restore(nil); err != nil || again.chosen != 0 {
			t.Errorf("a new run has %d examples, %v", again.chosen, err)
		}
	}
	if err := new(Evaluator).Restore(json.RawMessage(`-1`)); err == nil {
		t.Error("a negative number is restored")
	}
}

func TestErrors(t *testing.T) {
	lost := errors.New("lost")
	if _, err := newEvaluator(t, &echo{err: lost}, 0).Evaluate(t.Context(), 0); !errors.Is(err, lost) {
		t.Errorf("a model that fails: %v", err)
	}
	e := newEvaluator(t, new(echo), 0)
	e.Open = func(context.Context) (Batches, error) { return &batches{}, nil }
	if _, err := e.Evaluate(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "the split has no examples") {
		t.Errorf("no examples: %v", err)
	}
}

// TestContinuationsExamples reads prompts and answers of a batch.
func TestContinuationsExamples(t *testing.T) {
	vocab, err := text.ParseVocab([]byte(strings.ReplaceAll("[PAD] [UNK] [CLS] [SEP] [MASK] a b c", " ", "\n")), "vocab.txt")
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := text.NewTokenizer(vocab, text.Uncased())
	if err != nil {
		t.Fatal(err)
	}
	c := Continuations{Generation: predict.Generation{Tokenizer: tokenizer}}
	batch := func(weights []float32) *dataset.Batch {
		return &dataset.Batch{Examples: 2, Records: make([]dataset.RecordID, 2), Rows: 2, RowLength: 5, Features: []dataset.Feature{
			{Name: packed.InputIDs, Int32: []int32{2, 5, 6, 7, 3, 2, 6, 5, 3, 0}},
			{Name: packed.SequenceIDs, Int32: []int32{1, 1, 1, 1, 1, 1, 1, 1, 1, 0}},
			{Name: convert.TokenWeights, Float32: weights},
		}}
	}
	got, err := c.Examples(batch([]float32{0, 0, 1, 1, 1, 0, 0, 1, 1, 0}))
	var b bytes.Buffer
	for _, x := range got {
		fmt.Fprintf(&b, "%v %q %q; ", x.Prompt, x.Source, x.Reference)
	}
	if want := `[2 5] "a" " b c"; [2 6] "b" " a"; `; err != nil || b.String() != want {
		t.Errorf("%s, %v; expected %s", b.String(), err, want)
	}
	// Of a conversation the last answer is taken, with what comes before it, and not what comes after it.
	got, err = c.Examples(batch([]float32{0, 1, 0, 1, 0, 0, 1, 0, 1, 0}))
	if want := "[[2 5 6] [2 6 5]]"; err != nil || fmt.Sprint([][]int32{got[0].Prompt, got[1].Prompt}) != want || got[0].Reference != " c" {
		t.Errorf("%+v, %v; expected the prompts %s", got, err, want)
	}
	for _, weights := range [][]float32{{0, 0, 1, 1, 1, 1, 1, 1, 1, 0}, make([]float32, 10)} {
		if _, err := c.Examples(batch(weights)); err == nil || !strings.Contains(err.Error(), "has no prompt") {
			t.Errorf("weights %v: %v", weights, err)
		}
	}
}

// TestSourcesExamples reads sources and targets of a batch, whose rows are of other lengths.
func TestSourcesExamples(t *testing.T) {
	vocab, err := text.ParseVocab([]byte(strings.ReplaceAll("[PAD] [UNK] [CLS] [SEP] [MASK] a b c", " ", "\n")), "vocab.txt")
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := text.NewTokenizer(vocab, text.Uncased())
	if err != nil {
		t.Fatal(err)
	}
	c := Continuations{Generation: predict.Generation{Tokenizer: tokenizer, Limits: generate.Limits{SourceLength: 8}}}
	got, err := c.Examples(&dataset.Batch{Examples: 2, Rows: 3, Features: []dataset.Feature{
		{Name: packed.InputIDs, Shape: []int{3, 4}, Int32: []int32{2, 5, 6, 3, 2, 7, 3, 0, 0, 0, 0, 0}},
		{Name: packed.SequenceIDs, Shape: []int{3, 4}, Int32: []int32{1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0}},
		{Name: packed.TargetIDs, Shape: []int{3, 3}, Int32: []int32{7, 3, 0, 6, 5, 3, 0, 0, 0}},
		{Name: "target_" + packed.SequenceIDs, Shape: []int{3, 3}, Int32: []int32{1, 1, 0, 1, 1, 1, 0, 0, 0}},
	}})
	var b bytes.Buffer
	for _, x := range got {
		fmt.Fprintf(&b, "%v %q %q; ", x.Prompt, x.Source, x.Reference)
	}
	if want := `[2 5 6 3] "a b" "c"; [2 7 3] "c" "b a"; `; err != nil || b.String() != want {
		t.Errorf("%s, %v; expected %s", b.String(), err, want)
	}
}
