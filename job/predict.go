package job

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
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
	if m := r.Manifest; m != nil && vocab == r.VocabPath() {
		content, err := os.ReadFile(vocab)
		if err != nil {
			return nil, err
		}
		if fmt.Sprintf("%x", sha256.Sum256(content)) != m.Vocab.SHA256 {
			return nil, &convert.ManifestError{Path: vocab, Reason: "is not the vocabulary of the run's data: its checksum differs"}
		}
	}
	v, err := text.LoadVocab(vocab)
	if err != nil {
		return nil, err
	}
	if want := r.Export.Contract.Model.ConfigInt("vocab_size"); want > 0 && v.Size() != want {
		return nil, fmt.Errorf("vocabulary %s has %d tokens, the graph has %d", vocab, v.Size(), want)
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

// PredictTexts answers on texts, in order. Longer ones than a row are shortened,
// longest first.
func (r *Run) PredictTexts(ctx context.Context, tokenizer *text.Tokenizer, texts []questions.Example) ([]Prediction, error) {
	maxLength := r.MaxLength()
	pairs := make([]text.Pair, len(texts))
	for i, t := range texts {
		pairs[i] = text.Pair{A: t.Text, B: t.Pair}
	}
	encodings := tokenizer.EncodeBatch(pairs, maxLength)
	var out []Prediction
	for len(encodings) > 0 {
		n := min(len(encodings), r.Params.Eval.BatchSize)
		examples := make([]dataset.Example, n)
		for i, e := range encodings[:n] {
			examples[i] = dataset.Example{IDs: e.IDs, TypeIDs: e.TypeIDs}
		}
		encodings = encodings[n:]
		config := r.Params.dataset(nil, false)
		config.RowLength, config.Labels = maxLength, dataset.LabelsNone
		batch, err := dataset.FromExamples(config, examples)
		if err != nil {
			return nil, err
		}
		if out, err = r.predict(ctx, batch, out); err != nil {
			return nil, err
		}
	}
	return out, nil
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
	records, err := openData(r.Params.Data.Dir)
	if err != nil {
		return err
	}
	if err := records.check(r.Export.Contract); err != nil {
		return err
	}
	d, err := records.open(ctx, r.Params, r.Export.Contract, split, toPredict, r.env.Log)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		batch, err := d.Next(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		answers, err := r.predict(ctx, batch, nil)
		if err != nil {
			return err
		}
		for _, a := range answers {
			if err := each(a); err != nil {
				return err
			}
		}
	}
}

// predict appends the answers on a batch.
func (r *Run) predict(ctx context.Context, batch *dataset.Batch, out []Prediction) ([]Prediction, error) {
	values, err := r.model.Predict(ctx, features(batch))
	if err != nil {
		return nil, err
	}
	probabilities, logits := values["probabilities"], values["logits"]
	if batch.Examples == 0 || len(probabilities) == 0 || len(probabilities)%batch.Examples != 0 || len(logits) != len(probabilities) {
		return nil, fmt.Errorf("predict gave %d probabilities and %d logits for %d examples", len(probabilities), len(logits), batch.Examples)
	}
	n := len(probabilities) / batch.Examples
	for i := range batch.Examples {
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
		out = append(out, p)
	}
	return out, nil
}
