package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// TakesTexts reports whether the run's graph takes texts. The others take records.
func (r *Run) TakesTexts() bool { return prepare.TakesTokens(r.Export.Contract) }

// batchModel implements predict.BatchModel for a run.
type batchModel struct {
	run     *Run
	outputs []output
}

// PredictBatch implements predict.BatchModel. On a TPU each core answers its part of the batch.
func (m batchModel) PredictBatch(ctx context.Context, b *dataset.Batch) ([]predict.Result, error) {
	if m.run.on.Tpu == nil {
		return m.answer(ctx, b)
	}
	parts, err := m.run.Layout().Divide(b, m.run.on.Runtime().MicroBatches, 0)
	if err != nil {
		return nil, err
	}
	all, errs := make([][]predict.Result, len(parts)), make([]error, len(parts))
	var calls sync.WaitGroup
	for i, part := range parts {
		if part.Examples > 0 {
			calls.Go(func() { all[i], errs[i] = m.answer(ctx, part) })
		}
	}
	calls.Wait()
	return slices.Concat(all...), cmp.Or(errs...)
}

// answer answers the examples of a batch in one call.
func (m batchModel) answer(ctx context.Context, b *dataset.Batch) ([]predict.Result, error) {
	values, err := m.run.on.Predict(ctx, b.Features)
	if err != nil {
		return nil, lostInRead(err)
	}
	examples := b.Features[0].Shape[0]
	if starts := b.Feature(packed.ClsPositions); starts != nil { // the first one has rows
		examples = starts.Shape[0]
	}
	places := make([]place, b.Examples)
	for i := range places {
		places[i].example = i
		if b.Lengths != nil {
			places[i].tokens = b.Lengths[i]
		}
	}
	return results(m.outputs, values, examples, 0, places)
}

// PredictBatches answers the examples of batches and calls each with the answers, in order. The
// batches are those of Layout.
func (r *Run) PredictBatches(ctx context.Context, in predict.BatchReader, each func(predict.Answer) error) error {
	renderer, err := r.Renderer()
	if err != nil {
		return err
	}
	return r.predictBatches(ctx, in, renderer, each)
}

// predictBatches is PredictBatches with a renderer.
func (r *Run) predictBatches(ctx context.Context, in predict.BatchReader, renderer predict.Renderer, each func(predict.Answer) error) error {
	_, err := predict.Batches(ctx, batchModel{r, r.outputs()}, renderer, predict.ReadBatches(ctx, in), each)
	return err
}

// Layout returns how records become the batches that the run's graph answers.
func (r *Run) Layout() dataset.Layout {
	return prepare.LayoutFor(r.Params, r.Export.Contract, prepare.ToPredict)
}

// predictSplit answers the records of a split as they are.
func (r *Run) predictSplit(ctx context.Context, split string, renderer predict.Renderer, each func(predict.Answer) error) error {
	if r.on.Tpu != nil && r.Export.Contract.HasParts() {
		return fault.Usagef("the choices of the records of a split are not answered on a TPU; leave out --tpu")
	}
	s := r.setup()
	if err := s.OpenData(); err != nil {
		return err
	}
	if err := prepare.PreflightSplit(s, r.Folder, split, prepare.ToPredict); err != nil {
		return err
	}
	d, err := s.Open(ctx, split, prepare.ToPredict)
	if err != nil {
		return err
	}
	if err := d.CheckFirst(); err != nil {
		return errors.Join(fmt.Errorf("split %s: %w", split, err), d.Close())
	}
	return errors.Join(r.predictBatches(ctx, d, renderer, each), d.Close())
}

// RowFeatures describes the features that a row of a table must have to be answered: as the run's data
// was converted, or as the graph takes them if its manifest does not say it.
func (r *Run) RowFeatures() []convert.Feature {
	var out []convert.Feature
	for _, f := range r.Export.Contract.Features {
		if f.Role != graphs.RoleInput || f.Make != "" {
			continue
		}
		name := cmp.Or(r.Params.Data.Features[f.Name], f.Name)
		if r.Manifest != nil {
			if made := r.Manifest.Feature(name); made != nil {
				described := *made
				if made.Kind == convert.KindText {
					described.Vocab = &r.Manifest.Vocab
				}
				out = append(out, described)
				continue
			}
		}
		out = append(out, convert.Feature{Name: name, Kind: convert.KindNumber, DType: f.DType, Shape: f.Shape[1:], Role: f.Role})
	}
	return out
}

// RowsHaveTexts reports whether a feature of rows is made of texts, by the run's vocabulary.
func (r *Run) RowsHaveTexts() bool {
	return slices.ContainsFunc(r.RowFeatures(), func(f convert.Feature) bool { return f.Kind == convert.KindText })
}

// OpenRows opens a table whose rows have the run's RowFeatures in columns. The name - is standard input.
func (r *Run) OpenRows(ctx context.Context, path string, stdin io.Reader, columns predict.Columns) (*predict.Rows, error) {
	features := r.RowFeatures()
	tokenizer, err := convert.TokenizerOf(features, r.VocabPath())
	if err != nil {
		return nil, err
	}
	records, err := convert.NewRowRecords(features, vfs.Dir(path), tokenizer)
	if err != nil {
		return nil, err
	}
	rows, err := predict.OpenRows(ctx, path, stdin, columns, records, r.Layout(), r.Params.Eval.BatchSize)
	if err != nil {
		return nil, err
	}
	rows.Skip = r.Skip
	return rows, nil
}

// PredictRecords answers the records of TFRecord files and calls each with the answers, in order.
func (r *Run) PredictRecords(ctx context.Context, files []string, each func(predict.Answer) error) error {
	config := r.Params.Dataset(files, false, r.Layout())
	config.Logger = r.env.Log
	d, err := dataset.Open(ctx, config)
	if err != nil {
		return err
	}
	return errors.Join(r.PredictBatches(ctx, d, each), d.Close())
}

// errNoTexts says that a graph takes no texts.
func (r *Run) errNoTexts() error {
	return fault.Usagef("the graph of run %s takes no texts; expected records, with --split, or values in columns, with --file", r.Folder)
}
