package train

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/tfrecord"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/predict"
	"github.com/gorbit-ml/gorbit/train/task"
)

// EvaluateExamples evaluates each example of a split by itself, with the checkpoint that Load
// restored, and calls each with them in the order of the records: what was to be answered, what the
// model answers, and the loss. split "" means the run's own.
//
// The loss of a common head is computed of what the graph predicts, if that gives the graph's own
// loss for the first examples. Otherwise the graph evaluates one example after the other, which takes
// longer.
func (r *Run) EvaluateExamples(ctx context.Context, split string, each func(evaluation.Row) error) (err error) {
	if c := r.Export.Contract; c.Loss == graphs.LossAcross || c.Texts() > 1 {
		return fault.Usagef("the examples of run %s are compared with each other, so that there is no answer to one; expected an evaluation of the split alone", r.Folder)
	}
	split = cmp.Or(split, r.Params.Data.Eval.First())
	e, err := r.openExamples(ctx, split)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.readOriginals(ctx); err != nil {
		return err
	}
	if !e.predicts() {
		for {
			if err := e.next(ctx, nil, each); err != nil {
				return notEnd(err)
			}
		}
	}
	if err := r.predictRaw(ctx, split, func(a predict.Answer) error {
		raw := a.(rawAnswer)
		return e.next(ctx, &raw, each)
	}); err != nil {
		return err
	}
	// Both read the same records.
	if err := e.next(ctx, nil, each); err != io.EOF {
		return cmp.Or(err, fmt.Errorf("split %s has more examples than predictions", split))
	}
	return nil
}

// notEnd returns nil for io.EOF.
func notEnd(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// rawAnswer is the Answer that has a model's outputs as they are.
type rawAnswer struct {
	predict.Answer
	example predict.Example
	outputs predict.Result
}

// Cut implements predict.Answer.
func (a rawAnswer) Cut() bool { return a.example.Encoding.Truncated }

// asItIs is the Renderer of rawAnswers.
type asItIs struct{}

// Render implements predict.Renderer.
func (asItIs) Render(e predict.Example, r predict.Result) (predict.Answer, error) {
	return rawAnswer{example: e, outputs: r}, nil
}

// Names implements predict.Renderer.
func (asItIs) Names() []string { return nil }

// predictRaw predicts the records of a split, in order.
func (r *Run) predictRaw(ctx context.Context, split string, each func(predict.Answer) error) error {
	if !r.TakesTexts() || r.Export.Contract.HasParts() {
		return r.predictSplit(ctx, split, asItIs{}, each)
	}
	p, err := r.Predictor(nil)
	if err != nil {
		return err
	}
	p.Renderer = asItIs{}
	_, err = p.EachEncoded(ctx, r.examples(ctx, split), each)
	return err
}

// examples are the records of a split, one by one, with their labels.
type examples struct {
	run   *Run
	split string
	// folder is that of the data.
	folder string
	// manifest is that of the records; nil if they have none.
	manifest  *convert.Manifest
	outputs   []output
	questions []convert.Question // of the split, for answers to questions
	data      *dataset.Dataset   // a batch is an example
	origins   *origins
	tokenizer *text.Tokenizer // nil if the run has none
	// originals are the texts of the sources; nil if they cannot be read.
	originals *convert.Originals
	// texts are those that were generated, by the number of the example, and read counts the examples.
	texts map[int64]*evaluation.Generated
	read  int64
	// probed is how many examples showed whether losses can be computed of predictions, and exact is
	// set if they cannot.
	probed int
	exact  bool
}

// openExamples opens a split.
func (r *Run) openExamples(ctx context.Context, split string) (*examples, error) {
	s := r.setup()
	if err := s.OpenData(); err != nil {
		return nil, err
	}
	if err := prepare.PreflightSplit(s, r.Folder, split, prepare.ToEvaluate); err != nil {
		return nil, err
	}
	e := &examples{run: r, split: split, folder: s.Data.Dir, manifest: s.Data.Manifest, outputs: r.outputs()}
	if r.texts != nil {
		e.texts = make(map[int64]*evaluation.Generated, len(r.texts.Results))
		for _, t := range r.texts.Results {
			e.texts[t.Record] = &evaluation.Generated{Source: t.Source, Reference: t.Reference, Text: t.Text, Scores: t.Scores}
		}
	}
	e.origins = &origins{files: map[int]*tfrecord.IndexedFile{}, decoder: tfrecord.NewDecoder(convert.ExampleID, e.ownID())}
	if r.Export.Contract.Task == task.QuestionAnswering {
		var err error
		if e.questions, err = s.Questions(ctx, split); err != nil {
			return nil, err
		}
	}
	tokenizer, err := r.dataTokenizer(e.manifest)
	if err != nil {
		return nil, err
	}
	if tokenizer != nil && r.TakesTexts() {
		e.tokenizer = tokenizer
	}
	if e.data, err = s.OpenSingle(ctx, split, 1, prepare.ToEvaluate); err != nil {
		return nil, err
	}
	e.origins.paths = e.data.Files()
	return e, nil
}

// dataTokenizer returns the tokenizer that the data were made with, or nil if they have none.
func (r *Run) dataTokenizer(m *convert.Manifest) (*text.Tokenizer, error) {
	switch {
	case r.VocabPath() == "":
		return nil, nil
	case r.TakesTexts():
		return r.Tokenizer("", nil)
	case m != nil && m.HasVocab():
		return m.Vocab.Tokenizer(r.VocabPath())
	}
	return nil, nil
}

// readOriginals reads the texts that the records were made of, if the sources are there.
func (e *examples) readOriginals(ctx context.Context) error {
	tokenizer, err := e.run.dataTokenizer(e.manifest)
	if err != nil || e.manifest == nil || !e.manifest.HasVocab() || tokenizer == nil {
		return err
	}
	data := e.folder
	from := convert.OriginalsConfig{Data: data, Sources: []string{data, vfs.Dir(data), "."}, Tokenizer: tokenizer}
	if e.run.Sources != "" {
		from.Sources = []string{e.run.Sources}
	}
	if e.originals, err = e.manifest.Originals(ctx, e.split, from); err != nil {
		without := "examples are listed without their texts"
		if e.tokenizer != nil {
			without = "texts are put together from tokens, without the sources of the data"
		}
		e.originals = nil
		e.run.env.Log.Info(without, "reason", err)
	}
	return ctx.Err()
}

func (e *examples) close() error { return errors.Join(e.data.Close(), e.origins.close()) }

// predicts reports whether the graph predicts for examples as they are evaluated. A masked language
// model is evaluated on tokens that it masks itself, and what a model predicts with targets is their loss.
func (e *examples) predicts() bool {
	return e.run.Export.Contract.Masking == nil && !e.run.Export.Contract.HasTargets()
}

// next calls each with the next example, whose prediction is known or nil. At the end it returns
// io.EOF.
func (e *examples) next(ctx context.Context, a *rawAnswer, each func(evaluation.Row) error) error {
	b, err := e.data.Next(ctx)
	if err != nil {
		return err
	}
	row := evaluation.Row{Record: b.Describe(0), Weight: e.weight(b), Generated: e.texts[e.read]}
	e.read++
	var ids, types []int32
	if a != nil && a.example.Encoding.IDs != nil {
		ids, types = a.example.Encoding.IDs, a.example.Encoding.TypeIDs
	} else if ids, types, err = e.unmasked(b); err != nil {
		return err
	}
	if err := e.describe(&row, b, ids, types); err != nil {
		return err
	}
	loss, known := math.NaN(), false
	if a != nil {
		loss, known = e.answer(&row, b, a.outputs)
		row.Choice = e.choice(&row)
	}
	if row.Loss, err = e.loss(ctx, b, loss, known); err != nil {
		return fmt.Errorf("%s: %w", row.Record, err)
	}
	return each(row)
}

// probes is the number of examples whose computed losses are compared with the graph's.
const probes = 8

// loss returns the loss of an example. computed is the loss by a formula, if there is one.
func (e *examples) loss(ctx context.Context, b *dataset.Batch, computed float64, known bool) (runner.Number, error) {
	r := e.run
	if known && !e.exact && e.probed >= probes {
		return runner.Number(computed), nil
	}
	if r.on.Tpu != nil {
		if known {
			return runner.Number(computed), nil
		}
		return 0, fault.Usagef("the losses of single examples of this graph cannot be computed on a TPU; evaluate without --tpu")
	}
	sums, err := r.on.Evaluate(ctx, b.Features)
	if err != nil {
		return 0, lostInRead(err)
	}
	loss, weight := sums[runner.LossSum], sums[runner.WeightSum]
	if len(loss) != 1 || len(weight) != 1 {
		return 0, fmt.Errorf("evaluate returned %d losses and %d weights of an example; expected one each", len(loss), len(weight))
	}
	own := loss[0] / weight[0]
	if weight[0] == 0 {
		return runner.Number(computed), nil
	}
	if known {
		e.probed++
		e.exact = e.exact || !(math.Abs(own-computed) <= e.tolerance()*(1+math.Abs(own)))
	}
	return runner.Number(own), nil
}

// tolerance is how far a loss may be from another of the same example, by the graph's precision.
func (e *examples) tolerance() float64 {
	if e.run.Export.Contract.Precision == "float32" {
		return 1e-3
	}
	return 0.05
}

// weight returns the weight of the example of a batch.
func (e *examples) weight(b *dataset.Batch) float64 {
	for _, f := range e.run.Export.Contract.Features {
		if v := b.Feature(f.Name); f.Role == graphs.RoleWeight && v != nil && len(v.Float32) == 1 {
			return float64(v.Float32[0])
		}
	}
	return 1
}

// unmasked returns the tokens of an example, those that are masked as they were, and their types.
func (e *examples) unmasked(b *dataset.Batch) (ids, types []int32, err error) {
	in := b.Feature(packed.InputIDs)
	if in == nil {
		return nil, nil, nil
	}
	ids = slices.Clone(in.Int32)
	if t := b.Feature(packed.TypeIDs); t != nil {
		types = t.Int32
	}
	var at, was, weights *dataset.Feature
	for _, f := range e.run.Export.Contract.Features {
		switch f.Make {
		case packed.MakeMaskedPositions:
			at = b.Feature(f.Name)
		case packed.MakeMaskedLabels:
			was = b.Feature(f.Name)
		case packed.MakeMaskedWeights:
			weights = b.Feature(f.Name)
		}
	}
	if at == nil || was == nil || weights == nil {
		return ids, types, nil
	}
	for i, place := range at.Int32 {
		if weights.Float32[i] != 0 {
			ids[place] = was.Int32[i]
		}
	}
	return ids, types, nil
}

// describe sets where an example comes from, and its texts.
func (e *examples) describe(row *evaluation.Row, b *dataset.Batch, ids, types []int32) error {
	number, own, err := e.origins.id(b.Records[0])
	if err != nil {
		return err
	}
	if number != nil {
		row.ID = *number
		if e.manifest != nil {
			row.File, row.Line = e.manifest.Origin(e.split, *number)
		}
	}
	if own != nil {
		row.ID = own
	}
	var texts text.Pair
	known := false
	if e.originals != nil {
		texts, known = e.originals.Text(e.origins.buf)
	}
	if known {
		row.Text, row.TextPair = texts.A, texts.B
	} else if e.tokenizer != nil && len(ids) > 0 {
		row.Text, row.TextPair = e.decoded(b, ids, types)
		row.Decoded = true
	}
	return nil
}

// decoded returns the texts of an example's tokens; the second of choices are a JSON array.
func (e *examples) decoded(b *dataset.Batch, ids, types []int32) (first, second string) {
	var starts []int32
	for _, f := range e.run.Export.Contract.Features {
		if v := b.Feature(f.Name); f.Make == packed.MakeParts && v != nil {
			starts = v.Int32
		}
	}
	if starts == nil {
		return decoded(e.tokenizer, ids, types)
	}
	var choices []string
	for i, from := range starts {
		to := int32(min(b.Tokens, len(ids)))
		if i+1 < len(starts) && starts[i+1] > from {
			to = starts[i+1]
		} else if i > 0 && from <= starts[i-1] {
			break // the example has no more
		}
		var part string
		first, part = decoded(e.tokenizer, ids[from:to], types[min(int(from), len(types)):min(int(to), len(types))])
		choices = append(choices, part)
	}
	all, err := json.Marshal(choices)
	if err != nil {
		panic(err) // texts
	}
	return first, string(all)
}

// choice returns the text of the choice that a row predicts, or "".
func (e *examples) choice(row *evaluation.Row) string {
	predicted, ok := row.Prediction.(string)
	choices, err := convert.ParseChoices(row.TextPair)
	if !ok || err != nil || !e.run.Export.Contract.HasParts() {
		return ""
	}
	for i, text := range choices {
		for _, o := range e.outputs {
			if o.Kind == predict.Probabilities && evaluation.ClassName(o.Classes, i) == predicted {
				return text
			}
		}
	}
	return ""
}

// decoded returns the texts of tokens: the pieces of words joined, without special tokens.
func decoded(t *text.Tokenizer, ids, types []int32) (a, b string) {
	special, begins := t.Roles(), second(t.Template().Pair, ids)
	var texts [2][]int32
	for i, id := range ids {
		if id == special.Cls || id == special.Sep || id == special.Pad {
			continue
		}
		to := 0
		if i >= begins || i < len(types) && types[i] == 1 {
			to = 1
		}
		texts[to] = append(texts[to], id)
	}
	return t.Decode(texts[0], true), t.Decode(texts[1], true)
}

// second returns where the second text of a pair begins that no types tell apart: after the tokens between
// the texts. It is the number of ids if there are none.
func second(pair text.Frame, ids []int32) int {
	if n := len(pair.Between); n > 0 && pair.TypeA == pair.TypeB {
		for i := len(pair.Before); i+n+len(pair.After) <= len(ids); i++ {
			if slices.EqualFunc(ids[i:i+n], pair.Between, func(id int32, s text.Special) bool { return id == s.ID }) {
				return i + n
			}
		}
	}
	return len(ids)
}

// ownID returns the name that records have an id of the user's under, or that of the row's number if
// there is none.
func (e *examples) ownID() string {
	if e.manifest != nil {
		for _, f := range e.manifest.Features {
			if f.Role == convert.RoleID && len(f.Columns) > 0 {
				return f.Name
			}
		}
		return convert.ExampleID
	}
	for _, f := range e.run.Export.Contract.Features {
		if f.Role == graphs.RoleID && f.Make == "" {
			return e.run.recordName(f.Name)
		}
	}
	return convert.ExampleID
}

// origins reads which example a record is.
type origins struct {
	paths   []string
	files   map[int]*tfrecord.IndexedFile
	decoder *tfrecord.Decoder
	values  tfrecord.Values
	buf     []byte
}

// id returns the number of the row that a record is of, and the user's own id of it, a number or a text.
// Both are nil if the record has none.
func (o *origins) id(at dataset.RecordID) (number *int64, own any, err error) {
	f := o.files[at.File]
	if f == nil {
		if f, err = tfrecord.OpenIndexed(o.paths[at.File], tfrecord.OnCorrupt(tfrecord.Skip)); err != nil {
			return nil, nil, err
		}
		o.files[at.File] = f
	}
	if o.buf, err = f.Record(int(at.Record), o.buf); err != nil {
		return nil, nil, err
	}
	if err := o.decoder.Decode(o.buf, &o.values); err != nil {
		return nil, nil, fmt.Errorf("%s:%d: %w", o.paths[at.File], at.Record, err)
	}
	if ids, err := o.values.Int64s(0); err == nil && len(ids) == 1 {
		number = &ids[0]
	}
	if ids, err := o.values.Int64s(1); err == nil && len(ids) == 1 {
		own = ids[0]
	} else if ids, err := o.values.Bytes(1); err == nil && len(ids) == 1 {
		own = strings.ToValidUTF8(string(ids[0]), "\ufffd")
	}
	return number, own, nil
}

func (o *origins) close() (err error) {
	for _, f := range o.files {
		err = errors.Join(err, f.Close())
	}
	return err
}
