package predict

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/data/qa"
	"github.com/gorbit-ml/gorbit/text"
)

// Model computes its outputs for encoded texts. Several goroutines may call it at once.
type Model interface {
	// Predict returns the outputs for each example, in order. There is at least one example.
	Predict(ctx context.Context, examples []text.Encoding) ([]Result, error)
}

// DefaultWindow is the default number of examples that are sorted by length together.
const DefaultWindow = 1024

// Config configures a Predictor.
type Config struct {
	// Tokenizer encodes the texts to at most MaxLength tokens each, including special tokens.
	// Longer texts lose tokens at the end, the longer text of a pair first. Neither is needed if
	// the examples are already encoded.
	Tokenizer *text.Tokenizer
	MaxLength int
	// Renderer makes the answers of the model's outputs; nil means Classifier without names of
	// labels.
	Renderer Renderer
	// TopK is the number of tokens proposed for a masked one; 0 means DefaultTopK.
	TopK int
	// DocStride is the number of tokens that neighbouring windows of a long context share, of models that
	// answer questions; 0 means 128.
	DocStride int
	// Window is the number of examples to read before the first call; 0 means DefaultWindow.
	Window int
	// CallTokens limits the positions in one call of the model: the number of rows times the
	// length of the longest. 0 means one call per window, in the order of its examples.
	CallTokens int
	// RowLength is the length of every row, for models that need a fixed one; 0 means the length
	// of the longest example in the call.
	RowLength int
	// Rows is the number of rows of a call, for models whose calls have a fixed size. Examples share
	// rows of RowLength, at most RowExamples in each, and CallTokens is not used. 0 means as many rows
	// as examples.
	Rows, RowExamples int
	// InFlight is the number of calls that run at the same time; 0 means one.
	InFlight int
	// Skip, if set, is called with the *LineError of a text that cannot be answered, and the others are
	// answered. Otherwise such a text ends the answers.
	Skip func(error)
}

// Validate returns an error that names the invalid field.
func (c Config) Validate() error {
	switch {
	case c.Tokenizer != nil && c.MaxLength < 3:
		return fmt.Errorf("predict: MaxLength is %d; expected 3 or more", c.MaxLength)
	case c.Rows < 0 || c.Rows > 0 && (c.RowLength < 1 || c.RowExamples < 1):
		return fmt.Errorf("predict: %d rows of %d tokens with at most %d examples; expected 1 or more for each, or no rows", c.Rows, c.RowLength, c.RowExamples)
	case c.Window < 0 || c.CallTokens < 0 || c.RowLength < 0 || c.InFlight < 0 || c.TopK < 0:
		return fmt.Errorf("predict: window %d, call tokens %d, row length %d, in flight %d; expected 0 or more for each", c.Window, c.CallTokens, c.RowLength, c.InFlight)
	}
	return nil
}

// Predictor classifies texts with a model.
type Predictor struct {
	model Model
	Config
}

// New returns a Predictor for a model. It returns an error if the Config is invalid.
func New(model Model, c Config) (*Predictor, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	c.InFlight = max(1, c.InFlight)
	if c.Renderer == nil {
		c.Renderer = Classifier(nil)
	}
	c.Renderer = Prepare(c.Renderer, c)
	return &Predictor{model, c}, nil
}

// Prepare returns a Renderer with what it needs of a Config to answer texts. New does it itself; it is
// for those who call models on their own.
func Prepare(r Renderer, c Config) Renderer {
	if top, ok := r.(interface{ withTop(int) Renderer }); ok && c.TopK > 0 {
		r = top.withTop(c.TopK)
	}
	if t, ok := r.(withTokenizer); ok && c.Tokenizer != nil {
		r = t.with(c.Tokenizer)
	}
	switch d := r.(type) {
	case spanner:
		d.max, d.stride = c.MaxLength, cmp.Or(c.DocStride, qa.DefaultStride)
		return d
	case chooser:
		d.max = c.MaxLength
		return d
	}
	return r
}

// Summary counts answers.
type Summary struct {
	Answers   int
	Truncated int // number of these answers whose texts were cut
}

// Answer returns the answers for texts, in order. A text that is not answered is a usage error for all.
func (p *Predictor) Answer(ctx context.Context, texts ...text.Pair) ([]Answer, error) {
	for i, e := range texts {
		if reason := p.refused(e); reason != "" {
			return nil, fault.Usagef("text %d: %s", i+1, reason)
		}
	}
	return p.answer(ctx, p.window(texts))
}

// window returns texts as a window. Those that are several examples for the model are encoded later.
func (p *Predictor) window(texts []text.Pair) window {
	if _, ok := p.Renderer.(Divider); ok {
		return window{texts: texts}
	}
	return window{texts: texts, examples: Encode(p.Renderer, p.Tokenizer, texts, p.MaxLength)}
}

// Each classifies all texts of a source and calls each with the answers, in order. If the source
// returns an error, the texts before it are still answered.
func (p *Predictor) Each(ctx context.Context, in Source, each func(Answer) error) (Summary, error) {
	return p.each(ctx, p.encode(in), each)
}

// window is some examples in order. texts is nil if they were not given as texts.
type window struct {
	texts    []text.Pair
	examples []text.Encoding
	before   int // texts of the windows before
}

// wrong returns an error that names the text which it is about.
func (w window) wrong(i int, err error) error {
	if err == nil || w.texts == nil {
		return err
	}
	return fmt.Errorf("text %d: %w", w.before+i+1, err)
}

// example returns an example of the window.
func (w window) example(i int) Example {
	e := Example{Encoding: w.examples[i]}
	if w.texts != nil {
		e.Text = &w.texts[i]
	}
	return e
}

// encode yields the encoded texts of a source, one window at a time.
func (p *Predictor) encode(in Source) iter.Seq2[window, error] {
	return func(yield func(window, error) bool) {
		for before := 0; ; {
			var pairs []text.Pair
			var err error
			for len(pairs) < p.Window && err == nil {
				var e text.Pair
				if e, err = in.Next(); err == nil {
					if reason := p.refused(e); reason != "" {
						err = in.Refuse(reason)
					}
				}
				switch {
				case err == nil:
					pairs = append(pairs, e)
				case skip(p.Skip, err):
					err = nil
				}
			}
			if len(pairs) > 0 {
				w := p.window(pairs)
				w.before = before
				before += len(pairs)
				if !yield(w, nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(window{}, err)
				return
			}
		}
	}
}

// EachEncoded is [Predictor.Each] for windows of examples that are already encoded.
func (p *Predictor) EachEncoded(ctx context.Context, windows iter.Seq2[[]text.Encoding, error], each func(Answer) error) (done Summary, err error) {
	return p.each(ctx, func(yield func(window, error) bool) {
		for examples, err := range windows {
			if !yield(window{examples: examples}, err) {
				return
			}
		}
	}, each)
}

// each answers windows of examples.
func (p *Predictor) each(ctx context.Context, windows iter.Seq2[window, error], each func(Answer) error) (Summary, error) {
	return answers(ctx, windows, p.answer, each)
}

// answers answers windows of examples and calls each with the answers. While the model runs, the next
// window is prepared and the answers of the previous one are delivered.
func answers[W any](ctx context.Context, windows iter.Seq2[W, error], answer func(context.Context, W) ([]Answer, error), each func(Answer) error) (done Summary, err error) {
	type job struct {
		window  W
		answers []Answer
		err     error // the error that ended the examples; then there are no answers
	}
	ctx, cancel := context.WithCancel(ctx)
	made, answered := make(chan *job, 1), make(chan *job, 1)
	go func() { // never waited for because it may block on standard input
		defer close(made)
		for w, err := range windows {
			if !send(ctx, made, &job{window: w, err: err}) {
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
				w.answers, w.err = answer(ctx, w.window)
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
			if a.Cut() {
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

// answer returns the answers for a window.
func (p *Predictor) answer(ctx context.Context, w window) ([]Answer, error) {
	if d, ok := p.Renderer.(Divider); ok && w.examples == nil {
		return p.answerDivided(ctx, d, w)
	}
	answers := make([]Answer, len(w.examples))
	err := p.run(ctx, w.examples, func(i int, r Result) (err error) {
		answers[i], err = p.Renderer.Render(w.example(i), r)
		return w.wrong(i, err)
	})
	return answers, err
}

// answerDivided answers a window of texts that are several examples for the model.
func (p *Predictor) answerDivided(ctx context.Context, d Divider, w window) ([]Answer, error) {
	divisions := make([]Division, len(w.texts))
	results := make([][]Result, len(w.texts))
	var parts []text.Encoding
	var of [][2]int // the text of each part, and its number among those of the text
	for i, pair := range w.texts {
		var err error
		if divisions[i], err = d.Divide(pair, math.MaxInt); err != nil {
			return nil, w.wrong(i, err)
		}
		results[i] = make([]Result, len(divisions[i].Parts))
		for k, part := range divisions[i].Parts {
			parts, of = append(parts, part), append(of, [2]int{i, k})
		}
	}
	err := p.run(ctx, parts, func(i int, r Result) error {
		results[of[i][0]][of[i][1]] = r
		return nil
	})
	if err != nil {
		return nil, err
	}
	answers := make([]Answer, len(w.texts))
	for i, division := range divisions {
		if answers[i], err = division.Unite(results[i]); err != nil {
			return nil, w.wrong(i, err)
		}
	}
	return answers, nil
}

// run calls the model for examples and take with the result of each. It splits them into calls that run
// in parallel.
func (p *Predictor) run(ctx context.Context, examples []text.Encoding, take func(i int, r Result) error) error {
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
			results, err := p.model.Predict(ctx, some)
			if err != nil {
				return err
			}
			if len(results) != len(some) {
				return fmt.Errorf("the model returned %d answers; expected one for each of %d examples", len(results), len(some))
			}
			for i, r := range results {
				if err := take(places[i], r); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// calls divides examples among calls and returns their indices. If CallTokens or Rows is set,
// examples of similar length share a call, so that short examples are not padded to the length of
// long ones.
func (p *Predictor) calls(examples []text.Encoding) [][]int {
	order := make([]int, len(examples))
	for i := range order {
		order[i] = i
	}
	if p.CallTokens == 0 && p.Rows == 0 {
		if len(order) == 0 {
			return nil
		}
		return [][]int{order}
	}
	slices.SortStableFunc(order, func(i, j int) int { return len(examples[j].IDs) - len(examples[i].IDs) })
	var calls [][]int
	for len(order) > 0 {
		n := min(len(order), p.most(max(1, len(examples[order[0]].IDs))))
		calls = append(calls, order[:n])
		order = order[n:]
	}
	return calls
}

// most returns the most examples of a call whose longest has the given length.
func (p *Predictor) most(longest int) int {
	switch {
	case p.Rows > 0: // however the examples are put into rows, none that has fewer than these is full
		return p.Rows * max(1, min(p.RowLength/longest, p.RowExamples))
	case p.RowLength > 0:
		longest = p.RowLength
	}
	return max(1, p.CallTokens/longest)
}
