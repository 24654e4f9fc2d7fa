package predict

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/text"
)

// Model answers on encoded texts. Several goroutines may call it at once.
type Model interface {
	// Predict returns the scores of each example, in order. Examples are one or more.
	Predict(ctx context.Context, examples []text.Encoding) ([]Scores, error)
}

// DefaultWindow is the number of examples that are put in order by length.
const DefaultWindow = 1024

// Config says how a Predictor works.
type Config struct {
	// Tokenizer encodes the texts, with at most MaxLength tokens each, special tokens
	// included. Longer ones lose tokens from their ends, the longer text of a pair first.
	// Not needed where examples come encoded.
	Tokenizer *text.Tokenizer
	MaxLength int
	// Labels are the names of the labels by number; those without are called by it.
	Labels []string
	// Window is how many examples are read before the first of them is answered; 0 is
	// DefaultWindow.
	Window int
	// CallTokens bounds the positions of a call of the model, its rows times the longest;
	// 0 makes a window one call, in the order of its examples.
	CallTokens int
	// RowLength is the length of all rows, for a model that takes no other; 0 is that of
	// the longest example in the call.
	RowLength int
	// InFlight is how many calls run at once; 0 is one.
	InFlight int
}

// Validate returns an error that names the field at fault.
func (c Config) Validate() error {
	switch {
	case c.Tokenizer != nil && c.MaxLength < 3:
		return fmt.Errorf("predict: MaxLength is %d, expected 3 or more", c.MaxLength)
	case c.Window < 0 || c.CallTokens < 0 || c.RowLength < 0 || c.InFlight < 0:
		return fmt.Errorf("predict: window %d, call tokens %d, row length %d, in flight %d: expected 0 or more", c.Window, c.CallTokens, c.RowLength, c.InFlight)
	}
	return nil
}

// Predictor answers on texts.
type Predictor struct {
	model Model
	Config
}

// New returns a Predictor with a model.
func New(model Model, c Config) (*Predictor, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	c.InFlight = max(1, c.InFlight)
	return &Predictor{model, c}, nil
}

// Summary counts answers.
type Summary struct {
	Answers   int
	Truncated int // of them, on texts that were longer than the model takes
}

// Answer answers on texts, in order.
func (p *Predictor) Answer(ctx context.Context, texts ...text.Pair) ([]Answer, error) {
	return p.answer(ctx, p.Tokenizer.EncodeBatch(texts, p.MaxLength))
}

// Each answers on all texts of a source, in order, and hands each answer to a function.
// After an error of the source, all texts before it are answered.
func (p *Predictor) Each(ctx context.Context, in Source, each func(Answer) error) (Summary, error) {
	return p.EachEncoded(ctx, p.encode(in), each)
}

// encode gives the examples of texts, a window at a time.
func (p *Predictor) encode(in Source) iter.Seq2[[]text.Encoding, error] {
	return func(yield func([]text.Encoding, error) bool) {
		for {
			var pairs []text.Pair
			var err error
			for len(pairs) < p.Window && err == nil {
				var e text.Pair
				if e, err = in.Next(); err == nil {
					pairs = append(pairs, e)
				}
			}
			if len(pairs) > 0 && !yield(p.Tokenizer.EncodeBatch(pairs, p.MaxLength), nil) {
				return
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// EachEncoded is [Predictor.Each] for examples that are encoded, a window at a time. The
// next window is made, and the last one's answers are handed over, while the model runs.
func (p *Predictor) EachEncoded(ctx context.Context, windows iter.Seq2[[]text.Encoding, error], each func(Answer) error) (done Summary, err error) {
	type window struct {
		examples []text.Encoding
		answers  []Answer
		err      error // what ended the examples, instead of answers
	}
	ctx, cancel := context.WithCancel(ctx)
	made, answered := make(chan *window, 1), make(chan *window, 1)
	go func() { // not waited for: it may hang on standard input
		defer close(made)
		for examples, err := range windows {
			if !send(ctx, made, &window{examples: examples, err: err}) {
				return
			}
		}
	}()
	var predicting sync.WaitGroup
	defer predicting.Wait()
	defer cancel()
	predicting.Go(func() {
		defer close(answered)
		for w, ok := receive(ctx, made); ok; w, ok = receive(ctx, made) {
			if w.err == nil {
				w.answers, w.err = p.answer(ctx, w.examples)
			}
			if !send(ctx, answered, w) {
				return
			}
		}
	})
	for w := range answered {
		if w.err != nil {
			return done, w.err
		}
		for _, a := range w.answers {
			if err := each(a); err != nil {
				return done, err
			}
			done.Answers++
			if a.Truncated {
				done.Truncated++
			}
		}
	}
	return done, ctx.Err()
}

func send[T any](ctx context.Context, to chan<- T, v T) bool {
	select {
	case to <- v:
		return true
	case <-ctx.Done():
		return false
	}
}

func receive[T any](ctx context.Context, from <-chan T) (v T, ok bool) {
	select {
	case v, ok = <-from:
	case <-ctx.Done():
	}
	return v, ok
}

// answer answers on a window, in calls that run at the same time.
func (p *Predictor) answer(ctx context.Context, examples []text.Encoding) ([]Answer, error) {
	answers := make([]Answer, len(examples))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(p.InFlight)
	for _, places := range p.calls(examples) {
		g.Go(func() error {
			some := make([]text.Encoding, len(places))
			for i, place := range places {
				some[i] = examples[place]
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			scores, err := p.model.Predict(ctx, some)
			if err != nil {
				return err
			}
			if len(scores) != len(some) {
				return fmt.Errorf("the model gave %d answers, expected one for each of %d examples", len(scores), len(some))
			}
			for i, s := range scores {
				if len(s.Probabilities) == 0 {
					return errors.New("the model gave an answer without probabilities")
				}
				answers[places[i]] = newAnswer(s, p.Labels, some[i].Truncated)
			}
			return nil
		})
	}
	return answers, g.Wait()
}

// calls deals examples out to calls, by their places: with a bound on a call's positions
// those of like lengths come together, so that short ones spend nothing on long ones' rows.
func (p *Predictor) calls(examples []text.Encoding) [][]int {
	order := make([]int, len(examples))
	for i := range order {
		order[i] = i
	}
	if p.CallTokens == 0 {
		if len(order) == 0 {
			return nil
		}
		return [][]int{order}
	}
	slices.SortStableFunc(order, func(i, j int) int { return len(examples[j].IDs) - len(examples[i].IDs) })
	var calls [][]int
	for len(order) > 0 {
		length := p.RowLength
		if length == 0 {
			length = max(1, len(examples[order[0]].IDs))
		}
		n := min(len(order), max(1, p.CallTokens/length))
		calls = append(calls, order[:n])
		order = order[n:]
	}
	return calls
}
