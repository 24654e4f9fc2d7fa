package described

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/dataset/packed"
	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Run calls a loaded graph with features and returns its outputs, in the order of the description's
// answers. Features that the graph does not take are left out. Each of TensorFlow's bindings has one.
type Run func(ctx context.Context, features []dataset.Feature) ([]Tensor, error)

// Caller answers examples with a loaded graph. It implements predict.Model for texts, with one text in a
// row, and predict.BatchModel for batches of Layout.
type Caller struct {
	*Model
	Run Run
	// Packed calls the signature of rows that texts share; nil without it. Longest is the most tokens of
	// such a row; 0 makes rows as long as the longest text, because attention covers whole rows.
	Packed  Run
	Longest int
}

// PackedSignature is the name of the signature of rows that texts share.
const PackedSignature = "packed"

// RowTokens is the most tokens of a row if attention looks at one text only. It limits what grows with
// the square of the texts in a row.
const RowTokens = 4096

// Predict answers texts with one call. Its rows are as long as the longest, or shared.
func (c Caller) Predict(ctx context.Context, examples []text.Encoding) ([]predict.Result, error) {
	if c.Packed != nil {
		return c.predictPacked(ctx, examples)
	}
	rows := Padded(examples)
	shape := []int{len(examples), rows.Length}
	results, err := c.Answer(ctx, c.Run, len(examples), []dataset.Feature{
		{Name: layout.InputIDs, Shape: shape, Int32: rows.IDs},
		{Name: layout.AttentionMask, Shape: shape, Int32: rows.Mask},
		{Name: layout.TokenTypeIDs, Shape: shape, Int32: rows.Types}})
	if err != nil {
		return nil, err
	}
	c.Cut(results, Lengths(examples), rows.Length)
	return results, nil
}

func (c Caller) predictPacked(ctx context.Context, examples []text.Encoding) ([]predict.Result, error) {
	config := packed.Config{Labels: packed.LabelsNone}
	some := make([]packed.Example, len(examples))
	total := 0
	for i, e := range examples {
		some[i] = packed.Example{IDs: e.IDs, TypeIDs: e.TypeIDs}
		config.RowLength, total = max(config.RowLength, len(e.IDs)), total+len(e.IDs)
	}
	config.RowLength = max(config.RowLength, min(total, c.Longest))
	b, err := packed.FromExamples(config, some)
	if err != nil {
		return nil, err
	}
	return c.Answer(ctx, c.Packed, len(examples), b.Features)
}

// PredictBatch answers a batch.
func (c Caller) PredictBatch(ctx context.Context, b *dataset.Batch) ([]predict.Result, error) {
	results, err := c.Answer(ctx, c.Run, b.Features[0].Shape[0], b.Features)
	if err != nil {
		return nil, err
	}
	results = results[:b.Examples] // of a batch without examples, none
	if b.Lengths != nil {
		c.Cut(results, b.Lengths, b.RowLength)
	}
	return results, nil
}

// Answer calls the graph by run, and divides its outputs among n examples.
func (c Caller) Answer(ctx context.Context, run Run, n int, features []dataset.Feature) ([]predict.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tensors, err := run(ctx, features)
	if err != nil {
		return nil, err
	}
	return c.Results(n, tensors)
}

// Feeds makes tensors of features with read, the ReadTensor of a binding, for the inputs of a graph by
// their names. Features that the graph does not take are left out.
func Feeds[O comparable, T any, D ~uint32](inputs map[string]O, features []dataset.Feature, read func(D, []int64, io.Reader) (T, error)) (map[O]T, error) {
	feeds := make(map[O]T, len(inputs))
	for i := range features {
		f := &features[i]
		to, ok := inputs[f.Name]
		if !ok {
			continue
		}
		t, err := read(D(dtype.Of(string(f.DType()))), f.Dims(), bytes.NewReader(f.Raw()))
		if err != nil {
			return nil, fmt.Errorf("feature %s: %w", f.Name, err)
		}
		feeds[to] = t
	}
	return feeds, nil
}

// fetched is a tensor of a binding.
type fetched[D ~uint32] interface {
	DataType() D
	Shape() []int64
	WriteContentsTo(io.Writer) (int64, error)
}

// Fetched returns the outputs of a call, as Results takes those of the Answers.
func Fetched[T fetched[D], D ~uint32](outputs []T) ([]Tensor, error) {
	tensors := make([]Tensor, len(outputs))
	for k, t := range outputs {
		var raw bytes.Buffer
		if _, err := t.WriteContentsTo(&raw); err != nil {
			return nil, fmt.Errorf("output %d: %w", k, err)
		}
		tensors[k] = Tensor{DType: dtype.DType(t.DataType()).String(), Shape: t.Shape(), Raw: raw.Bytes()}
	}
	return tensors, nil
}
