package train

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/data/tokenizers"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/predict"
	"github.com/gorbit-ml/gorbit/train/task"
)

// DocStride returns the number of tokens that neighbouring windows of a context share in the run's data;
// 0 if they do not say it.
func (r *Run) DocStride() int {
	if r.Manifest == nil {
		return 0
	}
	return r.Manifest.DocStride
}

// Tokenizer returns the tokenizer of the run's data. vocab, if not "", and lowercase, if not nil,
// are for data that do not say theirs. It returns an error if they are not those that the run was trained
// with.
func (r *Run) Tokenizer(vocab string, lowercase *bool) (*text.Tokenizer, error) {
	if !r.TakesTexts() {
		return nil, r.errNoTexts()
	}
	if vocab == "" {
		vocab = r.VocabPath()
	}
	if vocab == "" {
		return nil, fmt.Errorf("run %s has no vocabulary because its data has no manifest; name one with --vocab", r.Folder)
	}
	config := text.Uncased()
	if r.Manifest != nil {
		config = r.Manifest.TokenizerConfig()
	}
	if lowercase != nil && r.Manifest == nil {
		config.Lowercase, config.Accents = *lowercase, text.AccentsByCase
	}
	file, err := tokenizers.Open(vocab, config)
	if err != nil {
		return nil, tokenizers.Usage(err)
	}
	own := file.Path == r.VocabPath()
	if m := r.Manifest; m != nil && own && fmt.Sprintf("%x", sha256.Sum256(file.Content)) != m.Vocab.SHA256 {
		return nil, &convert.ManifestError{Path: file.Path, Reason: "is not the vocabulary of the run's data; its checksum differs"}
	}
	size := convert.Vocab{Size: file.Tokenizer.Vocab().Size()}
	if file.Name != tokenizers.Vocab {
		size.Special = file.Tokenizer.Roles()
	}
	if want := prepare.VocabSizeOf(r.Export.Contract); want > 0 && !size.Rows(want) {
		return nil, fmt.Errorf("vocabulary %s has %d tokens; expected %d, as in the graph", vocab, size.Size, want)
	}
	if how := otherTokenizer(r.VocabPath(), file, config); how != "" {
		return nil, &params.PreflightError{Findings: []string{fmt.Sprintf("vocabulary %s is not the one that run %s was trained with (%s); leave out --vocab", vocab, r.Folder, how)}}
	}
	switch {
	case lowercase != nil && file.Name != tokenizers.Vocab:
		return nil, &params.PreflightError{Findings: []string{fmt.Sprintf("lowercase is %v, and %s says itself how case is treated; leave out --lowercase", *lowercase, file.Path)}}
	case lowercase != nil && r.Manifest != nil && *lowercase != config.Lowercase:
		return nil, &params.PreflightError{Findings: []string{fmt.Sprintf("lowercase is %v; expected %v, as in the data that run %s was trained with; leave out --lowercase", *lowercase, config.Lowercase, r.Folder)}}
	}
	return file.Tokenizer, nil
}

// otherTokenizer says in what a tokenizer differs from that of a run, of which config is how text is
// prepared; "" if in nothing.
func otherTokenizer(own string, file *tokenizers.File, config text.Config) string {
	if own == "" {
		return ""
	}
	was, err := tokenizers.Open(own, config)
	switch {
	case err != nil:
		return ""
	case file.Name == tokenizers.Vocab && file.Config != config:
		return "its folder says otherwise how case, accents and ideographs are treated"
	}
	return tokenizers.Difference(was, file)
}

// ToAsk returns the flags of gorbit predict with which to ask the run's model, such as --text "...".
func (r *Run) ToAsk() string { return toAsk(r.Export.Contract, r.Manifest) }

// ToAsk returns what Run.ToAsk does of the run in a folder of this machine, and composes no graph.
func ToAsk(folder string, log *slog.Logger) (string, error) {
	p, err := runfolder.ReadParams(folder)
	if err != nil {
		return "", err
	}
	path, err := runfolder.GraphToRead(p, folder, nil, log)
	if err != nil {
		return "", err
	}
	export, err := graphs.Open(path)
	if err != nil {
		return "", err
	}
	m, err := runfolder.ReadManifest(folder)
	return toAsk(export.Contract, m), err
}

// PredictTexts classifies texts and calls each with the answers, in order. Texts that are longer
// than MaxLength are cut; their answers are marked and their number is logged.
func (r *Run) PredictTexts(ctx context.Context, tokenizer *text.Tokenizer, in predict.Source, each func(predict.Answer) error) error {
	p, err := r.Predictor(tokenizer)
	if err != nil {
		return err
	}
	if r.Manifest != nil {
		in = predict.CheckPairs(in, r.Manifest.Pairs(), func(number int, message string) { r.env.Log.Warn(message, "first", number) })
	}
	done, err := p.Each(ctx, in, each)
	if done.Truncated > 0 {
		r.env.Log.Warn("texts that were too long were cut; their answers use only their beginning", "texts", done.Truncated, "of", done.Answers, "tokens", r.MaxLength())
	}
	return err
}

// Predictor returns a Predictor for the checkpoint that Load restored. Several goroutines may use
// it at once. tokenizer is needed for texts only, see Tokenizer.
func (r *Run) Predictor(tokenizer *text.Tokenizer) (*predict.Predictor, error) {
	c := predict.Config{
		Tokenizer:  tokenizer,
		TopK:       r.TopK,
		Skip:       r.Skip,
		MaxLength:  r.MaxLength(),
		Window:     windowExamples,
		CallTokens: callCells,
		InFlight:   r.on.Runtime().InFlight,
	}
	var err error
	if c.Renderer, err = r.Renderer(); err != nil {
		return nil, err
	}
	c.DocStride = r.DocStride()
	if r.Export.Contract.XLA {
		c.RowLength = r.Params.Data.RowLength
	}
	if s := r.tpuShape(); s.Rows > 0 {
		c.Rows, c.RowLength, c.RowExamples = s.Rows, s.RowLength, s.Examples/s.Rows
	}
	return predict.New(predictModel{r, r.outputs(), 0}, c)
}

// Labels returns the names of the labels, or nil if the run's data has no manifest.
func (r *Run) Labels() []string {
	if r.Manifest == nil {
		return nil
	}
	return r.Manifest.Labels
}

// MaxLength returns the maximum number of tokens of an example of the run.
func (r *Run) MaxLength() int {
	most := r.Params.Data.RowLength
	if f := r.Export.Contract.Feature(packed.PositionIDs); f != nil && f.Below != nil {
		most = min(most, f.Classes()) // a row of several texts may be longer
	}
	if r.Manifest != nil && r.Manifest.MaxLength > 0 {
		return min(r.Manifest.MaxLength, most)
	}
	return most
}

// PredictSplit classifies the records of a split and calls each with the answers, in order. A
// record that is longer than a row is an error; with data.truncate, such records are cut and their
// number is logged.
func (r *Run) PredictSplit(ctx context.Context, split string, each func(predict.Answer) error) error {
	if !r.TakesTexts() || r.Export.Contract.HasParts() {
		renderer, err := r.Renderer()
		if err != nil {
			return err
		}
		return r.predictSplit(ctx, split, renderer, each)
	}
	if r.Export.Contract.Task == task.Embed {
		return fault.Usagef("the examples of a split are several texts, and the model of run %s makes a vector of one; expected texts, with --text or --file", r.Folder)
	}
	if r.Export.Contract.Task == task.QuestionAnswering {
		return r.predictQuestions(ctx, split, each)
	}
	var tokenizer *text.Tokenizer // which says what is around the words
	if r.Export.Contract.Task == task.Tokens && r.VocabPath() != "" {
		var err error
		if tokenizer, err = r.Tokenizer("", nil); err != nil {
			return err
		}
	}
	p, err := r.Predictor(tokenizer)
	if err != nil {
		return err
	}
	done, err := p.EachEncoded(ctx, r.examples(ctx, split), each)
	if done.Truncated > 0 {
		r.env.Log.Warn("records longer than a row were cut; their answers use only their beginning", "records", done.Truncated, "of", done.Answers, "row_length", r.Params.Data.RowLength)
	}
	return err
}

// predictQuestions answers the questions of a split, in their order.
func (r *Run) predictQuestions(ctx context.Context, split string, each func(predict.Answer) error) error {
	s := r.setup()
	if err := s.OpenData(); err != nil {
		return err
	}
	if err := prepare.PreflightSplit(s, r.Folder, split, prepare.ToPredict); err != nil {
		return err
	}
	questions, err := s.Questions(ctx, split)
	if err != nil {
		return err
	}
	tokenizer, err := r.Tokenizer("", nil)
	if err != nil {
		return err
	}
	var in predict.List
	for _, q := range questions {
		in.Texts, in.Pairs = append(in.Texts, q.Question), append(in.Pairs, q.Context)
	}
	return r.PredictTexts(ctx, tokenizer, &in, each)
}

// examples yields the examples of a split, one window at a time.
func (r *Run) examples(ctx context.Context, split string) iter.Seq2[[]text.Encoding, error] {
	return func(yield func([]text.Encoding, error) bool) {
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

// openSplit opens a split for prediction, with one example per row so that examples are easy to
// extract.
func (r *Run) openSplit(ctx context.Context, split string) (*dataset.Dataset, error) {
	s := r.setup()
	if err := s.OpenData(); err != nil {
		return nil, err
	}
	if err := prepare.PreflightSplit(s, r.Folder, split, prepare.ToPredict); err != nil {
		return nil, err
	}
	return s.OpenSingle(ctx, split, window(s), prepare.ToPredict)
}

// window returns the number of examples that are read together.
func window(s *prepare.Setup) int {
	return min(windowExamples, max(1, windowCells/s.Params.Data.RowLength))
}

// unpack returns the examples of a batch that has one per row. A batch counts the examples that
// were cut without naming them, so if there are any, all that fill their rows are marked.
func unpack(b *dataset.Batch) []text.Encoding {
	ids, types, sequences := b.Feature(packed.InputIDs), b.Feature(packed.TypeIDs), b.Feature(packed.SequenceIDs)
	out := make([]text.Encoding, b.Examples)
	for i := range out {
		from, to := i*b.RowLength, (i+1)*b.RowLength
		if n := slices.Index(sequences.Int32[from:to], 0); n >= 0 {
			to = from + n
		}
		out[i] = text.Encoding{
			IDs: ids.Int32[from:to], TypeIDs: types.Int32[from:to],
			Truncated: b.Truncated > 0 && to-from == b.RowLength,
		}
	}
	return out
}

const (
	// callCells limits the positions in one call. Fewer leave cores idle; more do not fit in the
	// caches.
	callCells = 1024
	// windowExamples is the number of examples that are sorted by length together. windowCells
	// limits it when rows are long.
	windowExamples = predict.DefaultWindow
	windowCells    = 1 << 20
)

// predictModel implements predict.Model for a run.
type predictModel struct {
	run     *Run
	outputs []output
	// longRows is the number of tokens that rows may have at least, see strategy.Runtime; 0 makes them
	// as long as the longest example.
	longRows int
}

// Predict implements predict.Model.
func (m predictModel) Predict(ctx context.Context, examples []text.Encoding) ([]predict.Result, error) {
	batch, err := m.batch(examples)
	if err != nil {
		return nil, err
	}
	values, err := m.run.on.Predict(ctx, batch.Features)
	if err != nil {
		return nil, lostInRead(err)
	}
	// Batches of a fixed shape may have places without an example.
	starts := batch.Feature(packed.ClsPositions).Int32
	places := make([]place, len(examples))
	for i, e := range examples {
		places[i] = place{example: i, start: int(starts[i]), tokens: len(e.IDs)}
	}
	m.mask(batch, places)
	return results(m.outputs, values, len(starts), batch.Rows*batch.RowLength, places)
}

// mask finds the masked tokens of each place. A place of the batch that only fills its shape has the
// position of no token that is masked, or of one that was already found.
func (m predictModel) mask(batch *dataset.Batch, places []place) {
	masking := m.run.Export.Contract.Masking
	if masking == nil {
		return
	}
	i := slices.IndexFunc(m.run.Export.Contract.Features, func(f graphs.Feature) bool { return f.Make == packed.MakeMaskedPositions })
	if i < 0 {
		return
	}
	positions := batch.Feature(m.run.Export.Contract.Features[i].Name).Int32
	ids := batch.Feature(packed.InputIDs).Int32
	seen := make(map[int32]bool)
	for k, at := range positions {
		if seen[at] || int64(ids[at]) != int64(masking.MaskToken) {
			continue
		}
		seen[at] = true
		for j := range places {
			if p := &places[j]; int(at) >= p.start && int(at) < p.start+p.tokens {
				p.masked = append(p.masked, k)
			}
		}
	}
}

// batch packs examples into rows as long as the longest example, of the graph's fixed length, or, for
// the core of a TPU, of a fixed number.
func (m predictModel) batch(examples []text.Encoding) (*dataset.Batch, error) {
	config := prepare.CallFor(m.run.Params, m.run.Export.Contract)
	if s := m.run.tpuShape(); s.Rows > 0 {
		config.Rows, config.RowExamples, config.Packing = s.Rows, s.Examples/s.Rows, packed.PackFirstFit
	} else if m.run.Export.Contract.XLA {
		config.FixedRowLength, config.Packing = true, packed.PackNone
	} else {
		config.RowLength = 1
		total := 0
		for _, e := range examples {
			config.RowLength, total = max(config.RowLength, len(e.IDs)), total+len(e.IDs)
		}
		config.RowLength = max(config.RowLength, min(m.longRows, total))
	}
	some := make([]packed.Example, len(examples))
	for i, e := range examples {
		some[i] = packed.Example{IDs: e.IDs, TypeIDs: e.TypeIDs}
	}
	return packed.FromExamples(config, some)
}
