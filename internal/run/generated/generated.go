// Package generated scores the texts that a model generates for the examples of a split, as a part of its
// evaluations.
//
// An [Evaluator] knows neither the model nor how its prompts are made: a [Model] reads examples, each a prompt
// and the text that should follow, and generates texts for them.
package generated

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/text/scores"
)

// Example is what a text is generated for.
type Example struct {
	// Prompt is what the model is given, as tokens.
	Prompt []int32
	// Source and Reference are the texts of the prompt and of what should follow.
	Source, Reference string
}

// Model generates texts.
type Model interface {
	// Examples returns the examples of a batch that has one in each row.
	Examples(b *dataset.Batch) ([]Example, error)
	// Generate calls each with the number of an example and its text, in any order.
	Generate(ctx context.Context, examples []Example, each func(i int, text string)) error
}

// Batches are those of a split; Next returns io.EOF after the last.
type Batches interface {
	Next(context.Context) (*dataset.Batch, error)
	Close() error
}

// Config says what an Evaluator does.
type Config struct {
	// Metrics are the scores.
	Metrics []scores.Metric
	// Examples is the number of examples; 0 means as many as fit into the budget.
	Examples int
	// Budget is the part that the first evaluation may take of what Trained returns, the time of training
	// until then. Trained may be nil: then there is no limit.
	Budget  float64
	Trained func() time.Duration
	// Seed chooses the examples, if not all are taken.
	Seed int64
	// Open opens the split, with one example in a row.
	Open  func(context.Context) (Batches, error)
	Model Model
	Log   *slog.Logger
}

// Result is a text with its scores.
type Result struct {
	// Record is the number of the example in its split.
	Record int64
	Example
	Text   string
	Scores runner.Outputs
}

// Evaluator is an evaluator that also scores texts. All its evaluations are of the same examples. It is a
// runner.Persistent, so that this holds for those after a restart.
type Evaluator struct {
	runner.Evaluator
	Config
	// Results are those of the last evaluation.
	Results []Result

	chosen int // how many examples are evaluated; 0 before the first evaluation
	sample []drawn
	total  int64 // of the split
}

// drawn is an example at a place by chance.
type drawn struct {
	Example
	record int64
	place  uint64
}

const (
	// fewest is the number of examples that are taken in any case, and mostByTime that which are taken at
	// most if their number depends on the time.
	fewest     = 16
	mostByTime = 1 << 13
)

var _ runner.Persistent = (*Evaluator)(nil)

// State implements runner.Persistent.
func (e *Evaluator) State() (json.RawMessage, error) { return json.Marshal(e.chosen) }

// Restore implements runner.Persistent.
func (e *Evaluator) Restore(state json.RawMessage) error {
	e.chosen = 0
	if state == nil {
		return nil
	}
	if err := json.Unmarshal(state, &e.chosen); err != nil || e.chosen < 0 {
		return fmt.Errorf("the number of examples is %.20q; expected 0 or more", state)
	}
	return nil
}

// Evaluate implements runner.Evaluator.
func (e *Evaluator) Evaluate(ctx context.Context, steps int64) (runner.Outputs, error) {
	out, err := e.Evaluator.Evaluate(ctx, steps)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := e.read(ctx); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	sums := make([]scores.Counts, len(e.Metrics))
	e.Results = e.Results[:0]
	all := e.sample
	next := len(all)
	if e.byTime() {
		next = min(next, fewest)
	}
	for next > 0 {
		if err := e.generate(ctx, all[len(e.Results):][:next], sums); err != nil {
			return nil, fmt.Errorf("generate: %w", err)
		}
		done := len(e.Results)
		next = min(len(all)-done, done)
		if e.byTime() {
			spent := time.Since(began).Seconds()
			next = min(next, int(max(0, e.Budget*e.Trained().Seconds()-spent)/spent*float64(done)))
		}
	}
	e.chosen = len(e.Results)
	for i, m := range e.Metrics {
		out[m.Name] = m.Corpus(sums[i])
	}
	e.Log.Info("texts were generated and scored", "examples", e.chosen, "of", e.total, "seconds", words.Rounded(time.Since(began).Seconds(), 1))
	return out, nil
}

// byTime reports whether the time decides how many examples are taken.
func (e *Evaluator) byTime() bool { return e.Config.Examples == 0 && e.Trained != nil && e.chosen == 0 }

// generate generates and scores the texts of some examples.
func (e *Evaluator) generate(ctx context.Context, some []drawn, sums []scores.Counts) error {
	examples := make([]Example, len(some))
	for i, d := range some {
		examples[i] = d.Example
	}
	results := make([]Result, len(some))
	if err := e.Model.Generate(ctx, examples, func(i int, text string) {
		results[i] = Result{Record: some[i].record, Example: examples[i], Text: text, Scores: make(runner.Outputs)}
	}); err != nil {
		return err
	}
	for i := range results {
		r := &results[i]
		if r.Scores == nil {
			return fmt.Errorf("record %d: no text was generated", some[i].record)
		}
		for k, m := range e.Metrics {
			counts := m.Count(r.Text, r.Reference)
			sums[k].Add(counts)
			r.Scores[m.Name] = m.Sentence(counts)
		}
	}
	e.Results = append(e.Results, results...)
	return nil
}

// read draws the sample, unless an earlier evaluation has.
func (e *Evaluator) read(ctx context.Context) (err error) {
	most := cmp.Or(e.chosen, e.Config.Examples)
	if most == 0 {
		most = math.MaxInt32
		if e.byTime() {
			most = mostByTime
		}
	}
	if len(e.sample) > 0 {
		e.sample = e.sample[:min(most, len(e.sample))]
		return nil
	}
	data, err := e.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	shorten := func() {
		slices.SortFunc(e.sample, func(a, b drawn) int { return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.record, b.record)) })
		e.sample = slices.Clip(e.sample[:min(most, len(e.sample))])
	}
	for e.total = 0; ; {
		b, err := data.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		examples, err := e.Model.Examples(b)
		if err != nil {
			return err
		}
		for _, x := range examples {
			e.sample = append(e.sample, drawn{x, e.total, rand.NewPCG(uint64(e.Seed), uint64(e.total)).Uint64()})
			e.total++
		}
		if len(e.sample)/2 > most {
			shorten()
		}
	}
	shorten()
	if len(e.sample) == 0 {
		return errors.New("the split has no examples")
	}
	return nil
}
