package train

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/bounded"
	"github.com/gorbit-ml/gorbit/internal/questions"
	"github.com/gorbit-ml/gorbit/text"
)

// Prediction is the answer on one example.
type Prediction struct {
	// Label is the likeliest label: its name, or its number where the run's data
	// names none. Index is its number.
	Label string `json:"label"`
	Index int    `json:"index"`
	// Score is its probability; Probabilities are those of all labels.
	Score         float64   `json:"score"`
	Probabilities []float64 `json:"probabilities"`
	Logits        []float64 `json:"logits"`
}

// Tokenizer returns the tokenizer of the run's data. A vocabulary other than ""
// and a lowercase other than nil take the place of the data's.
func (r *Run) Tokenizer(vocab string, lowercase *bool) (*text.Tokenizer, error) {
	if vocab == "" {
		vocab = r.VocabPath()
	}
	if vocab == "" {
		return nil, fmt.Errorf("run %s has no vocabulary, since its data has no manifest: name one with --vocab", r.Folder)
	}
	content, err := bounded.ReadFile(vocab, text.MaxVocabBytes)
	if err != nil {
		return nil, fmt.Errorf("vocabulary: %w", err)
	}
	if m := r.Manifest; m != nil && vocab == r.VocabPath() && fmt.Sprintf("%x", sha256.Sum256(content)) != m.Vocab.SHA256 {
		return nil, &convert.ManifestError{Path: vocab, Reason: "is not the vocabulary of the run's data: its checksum differs"}
	}
	v, err := text.ParseVocab(content, vocab)
	if err != nil {
		return nil, err
	}
	if want := r.Export.Contract.Model.ConfigInt("vocab_size"); want > 0 && v.Size() != want {
		return nil, fmt.Errorf("vocabulary %s has %d tokens, the graph has %d", vocab, v.Size(), want)
	}
	if how := otherVocab(r.VocabPath(), vocab); how != "" {
		return nil, &PreflightError{Findings: []string{fmt.Sprintf("vocabulary %s is not the one that run %s learned from (%s): leave out --vocab", vocab, r.Folder, how)}}
	}
	config := text.Uncased()
	if r.Manifest != nil {
		config = r.Manifest.TokenizerConfig()
	}
	if lowercase != nil {
		config.Lowercase = *lowercase
		config.Accents = text.AccentsByCase
	}
	return text.NewTokenizer(v, config)
}

// PredictTexts answers on texts, in order, and hands each answer to a function.
// Longer ones than a row are shortened, longest first.
func (r *Run) PredictTexts(ctx context.Context, tokenizer *text.Tokenizer, in questions.Source, each func(Prediction) error) error {
	return r.answer(ctx, r.encode(tokenizer, in), each)
}

// encode gives the examples of texts, a window at a time.
func (r *Run) encode(tokenizer *text.Tokenizer, in questions.Source) iter.Seq2[[]dataset.Example, error] {
	return func(yield func([]dataset.Example, error) bool) {
		number, warned := 0, false
		for {
			var pairs []text.Pair
			var err error
			for len(pairs) < windowExamples && err == nil {
				var e questions.Example
				if e, err = in.Next(); err != nil {
					break
				}
				number++
				if !warned {
					warned = r.warnOfPair(number, e.Pair != "")
				}
				pairs = append(pairs, text.Pair{A: e.Text, B: e.Pair})
			}
			if len(pairs) > 0 {
				examples := make([]dataset.Example, len(pairs))
				for i, e := range tokenizer.EncodeBatch(pairs, r.MaxLength()) {
					examples[i] = dataset.Example{IDs: e.IDs, TypeIDs: e.TypeIDs}
				}
				if !yield(examples, nil) {
					return
				}
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// warnOfPair warns of an example that is a pair where the run's data has single
// texts, or the other way round, and reports whether it did.
func (r *Run) warnOfPair(number int, pair bool) bool {
	if r.Manifest == nil || pair == (r.Manifest.Columns.Pair != "") {
		return false
	}
	if pair {
		r.env.Log.Warn("the run learned from single texts: its answers on pairs mean little", "first", number)
	} else {
		r.env.Log.Warn("the run learned from pairs of texts: its answers on single ones mean little", "first", number)
	}
	return true
}

// MaxLength is the most tokens that an example of the run may have.
func (r *Run) MaxLength() int {
	if r.Manifest != nil && r.Manifest.MaxLength > 0 {
		return min(r.Manifest.MaxLength, r.Params.Data.RowLength)
	}
	return r.Params.Data.RowLength
}

// PredictSplit answers on the records of a split, in order, and hands each
// answer to a function.
func (r *Run) PredictSplit(ctx context.Context, split string, each func(Prediction) error) error {
	return r.answer(ctx, r.examples(ctx, split), each)
}

// examples gives the examples of a split, a window at a time.
func (r *Run) examples(ctx context.Context, split string) iter.Seq2[[]dataset.Example, error] {
	return func(yield func([]dataset.Example, error) bool) {
		d, err := r.openSplit(ctx, split)
		if err != nil {
			yield(nil, err)
			return
		}
		defer d.Close()
		for {
			batch, err := d.Next(ctx)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(unpack(batch), nil) {
				return
			}
		}
	}
}

// openSplit opens a split for prediction, with one example per row, so that they
// are easily taken out again.
func (r *Run) openSplit(ctx context.Context, split string) (*dataset.Dataset, error) {
	s := &setup{params: r.Params, export: r.Export, env: r.env}
	if err := s.openData(); err != nil {
		return nil, err
	}
	if err := preflightSplit(s, r.Folder, split, toPredict); err != nil {
		return nil, err
	}
	s.params.Data.Packing = string(dataset.PackNone)
	s.params.Eval.BatchSize = min(windowExamples, max(1, windowCells/s.params.Data.RowLength))
	return s.open(ctx, split, toPredict)
}

// unpack returns the examples of a batch with one per row.
func unpack(b *dataset.Batch) []dataset.Example {
	ids, types, sequences := b.Feature(dataset.InputIDs), b.Feature(dataset.TypeIDs), b.Feature(dataset.SequenceIDs)
	out := make([]dataset.Example, b.Examples)
	for i := range out {
		from, to := i*b.RowLength, (i+1)*b.RowLength
		if n := slices.Index(sequences.Int32[from:to], 0); n >= 0 {
			to = from + n
		}
		out[i] = dataset.Example{IDs: ids.Int32[from:to], TypeIDs: types.Int32[from:to]}
	}
	return out
}

const (
	// callCells bounds the positions of a call that predicts. Fewer leave cores
	// idle, more do not stay in the caches.
	callCells = 1024
	// windowExamples is the number of examples that are put in order by length,
	// and windowCells bounds them where rows are long.
	windowExamples = 1024
	windowCells    = 1 << 20
)

// window is some of the examples to answer on, which are answered together.
type window struct {
	calls   []call
	answers []Prediction
	err     error // what ended the examples, instead of answers
}

// call is a batch of a window's examples.
type call struct {
	batch  *dataset.Batch
	places []int // of the examples in the window
}

// answer answers on examples and hands each answer to a function, in order. The
// next window of examples is made, and the last one's answers are handed over,
// while the model runs.
func (r *Run) answer(ctx context.Context, windows iter.Seq2[[]dataset.Example, error], each func(Prediction) error) error {
	ctx, cancel := context.WithCancel(ctx)
	made, answered := make(chan *window, 1), make(chan *window, 1)
	go func() { // not waited for: it may hang on standard input
		defer close(made)
		for examples, err := range windows {
			w := &window{err: err}
			if err == nil {
				w.calls, w.err = r.cut(examples)
				w.answers = make([]Prediction, len(examples))
			}
			if !send(ctx, made, w) {
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
				w.err = r.predict(ctx, w)
			}
			if !send(ctx, answered, w) {
				return
			}
		}
	})
	for w := range answered {
		if w.err != nil {
			return w.err
		}
		for _, a := range w.answers {
			if err := each(a); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
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

// cut makes batches of examples of like lengths: short ones spend nothing on long
// ones' rows.
func (r *Run) cut(examples []dataset.Example) ([]call, error) {
	order := make([]int, len(examples))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return len(examples[j].IDs) - len(examples[i].IDs) })
	config := r.Params.dataset(nil, false)
	config.Labels = dataset.LabelsNone
	fixed := r.Export.Contract.XLA
	if fixed {
		config.FixedRowLength, config.Packing = true, dataset.PackNone
	}
	var calls []call
	for len(order) > 0 {
		if !fixed {
			config.RowLength = max(1, len(examples[order[0]].IDs))
		}
		n := min(len(order), max(1, callCells/config.RowLength))
		some := make([]dataset.Example, n)
		for i, place := range order[:n] {
			some[i] = examples[place]
		}
		batch, err := dataset.FromExamples(config, some)
		if err != nil {
			return nil, err
		}
		calls = append(calls, call{batch, order[:n]})
		order = order[n:]
	}
	return calls, nil
}

// predict fills in the answers of a window.
func (r *Run) predict(ctx context.Context, w *window) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.strategy.Runtime().InFlight)
	for _, c := range w.calls {
		g.Go(func() error {
			answers, err := r.predictBatch(ctx, c.batch)
			for i, a := range answers {
				w.answers[c.places[i]] = a
			}
			return err
		})
	}
	return g.Wait()
}

// predictBatch returns the answers on a batch.
func (r *Run) predictBatch(ctx context.Context, batch *dataset.Batch) ([]Prediction, error) {
	values, err := r.strategy.Predict(ctx, batch.Features)
	if err != nil {
		return nil, err
	}
	probabilities, logits := values["probabilities"], values["logits"]
	if batch.Examples == 0 || len(probabilities) == 0 || len(probabilities)%batch.Examples != 0 || len(logits) != len(probabilities) {
		return nil, fmt.Errorf("predict gave %d probabilities and %d logits for %d examples", len(probabilities), len(logits), batch.Examples)
	}
	n := len(probabilities) / batch.Examples
	out := make([]Prediction, batch.Examples)
	for i := range out {
		p := Prediction{Probabilities: probabilities[i*n : (i+1)*n], Logits: logits[i*n : (i+1)*n]}
		for j, v := range p.Probabilities {
			if v > p.Probabilities[p.Index] {
				p.Index = j
			}
		}
		p.Score = p.Probabilities[p.Index]
		p.Label = strconv.Itoa(p.Index)
		if r.Manifest != nil && p.Index < len(r.Manifest.Labels) {
			p.Label = r.Manifest.Labels[p.Index]
		}
		out[i] = p
	}
	return out, nil
}
