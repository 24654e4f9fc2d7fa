package serve

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/text"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Model is a model to serve. It has either Texts or Features.
type Model struct {
	// Name is the model's name in URLs.
	Name string
	// Version is the version that TensorFlow Serving's clients see.
	Version int64
	// Outputs describe the values of each predict.Result, and Renderer makes answers of them.
	Outputs  []Tensor
	Renderer predict.Renderer
	// Inputs describe the tensors of an example, as TensorFlow Serving takes them.
	Inputs []Tensor
	// Lanes is the number of calls that keep the devices busy.
	Lanes int

	Texts    *Texts
	Features *Features
	// Generates is set in addition to Texts if the model continues texts.
	Generates *Generates
}

// sourced reports whether the model makes texts of sources, which it has no other answers to: the function
// predict takes targets, too.
func (m *Model) sourced() bool { return m.Generates != nil && m.Generates.Limits.SourceLength > 0 }

// Texts answer texts and pairs of texts.
type Texts struct {
	Model     predict.Model
	Tokenizer *text.Tokenizer
	// MaxLength is the most tokens of an example.
	MaxLength int
	// Pairs reports whether the model was trained on pairs; nil if that is not known.
	Pairs *bool
	// Padded means that each text has a row of its own, as long as the longest of its call. Only texts
	// of about the same length then share a batch.
	Padded bool
}

// paddedStep is how much the lengths of texts in a batch may differ if texts are padded.
const paddedStep = 16

// example returns an encoded text as it waits for its outputs.
func (t *Texts) example(e text.Encoding, given *text.Pair) example {
	out := example{encoding: e, text: given, cost: len(e.IDs)}
	if t.Padded {
		out.key = strconv.Itoa((len(e.IDs) + paddedStep - 1) / paddedStep)
	}
	return out
}

// Features answer examples of any features.
type Features struct {
	Model  predict.BatchModel
	Layout dataset.Layout
	// Specs are the features that an example must have. Their names are those of the model's Inputs.
	Specs []dataset.Spec
	// Rows say how features are made of the columns of a table, and Tokenizer is that of texts. Without
	// Rows an example must have the features themselves.
	Rows      []convert.Feature
	Tokenizer *text.Tokenizer

	makers sync.Pool // of *rowMaker
}

// Tensor describes an input or an output of a model as TensorFlow Serving does.
type Tensor struct {
	Name  string
	DType dataset.DType
	// Shape has the length of each axis, -1 where it is open. The first one is that of examples.
	Shape []int64
}

// Validate returns an error that says what is missing.
func (m Model) Validate() error {
	switch {
	case m.Name == "" || strings.ContainsAny(m.Name, "/:?#% \t\r\n"):
		return fmt.Errorf("the model's name is %q; expected one without slashes, colons, spaces, ?, # and %%", m.Name)
	case m.Version < 0 || m.Lanes < 1 || m.Renderer == nil || len(m.Outputs) == 0:
		return fmt.Errorf("model %s: version %d, %d lanes, %d outputs; expected 0 or more, and 1 or more of the others", m.Name, m.Version, m.Lanes, len(m.Outputs))
	case (m.Texts == nil) == (m.Features == nil):
		return fmt.Errorf("model %s: expected either texts or features", m.Name)
	case m.Texts != nil && (m.Texts.Model == nil || m.Texts.Tokenizer == nil || m.Texts.MaxLength < 3):
		return fmt.Errorf("model %s: expected a model, a tokenizer, and 3 or more tokens", m.Name)
	case m.Features != nil && (m.Features.Model == nil || m.Features.Layout == nil || len(m.Features.Specs) == 0):
		return fmt.Errorf("model %s: expected a model, a layout and features", m.Name)
	}
	return nil
}

// example is an example as it waits for its outputs: an encoded text, or a record.
type example struct {
	encoding text.Encoding
	text     *text.Pair // nil if the example was given as tokens
	record   []byte
	cut      bool // a text of the record was too long

	cost int    // in tokens, or 1
	key  string // examples of a batch have the same
}

// compute returns the outputs of the examples of a batch.
func (t *Texts) compute(ctx context.Context, batch []item) ([]predict.Result, error) {
	encodings := make([]text.Encoding, len(batch))
	for k, i := range batch {
		encodings[k] = i.encoding
	}
	return checked(len(batch))(t.Model.Predict(ctx, encodings))
}

// compute returns the outputs of the examples of a batch.
func (f *Features) compute(ctx context.Context, batch []item) ([]predict.Result, error) {
	a := f.Layout.Assemblers()()
	a.Reset()
	for k, i := range batch {
		if bad := a.Add(dataset.RecordID{Record: int64(k)}, i.record); bad != nil {
			return nil, bad
		}
	}
	b := a.Batch()
	defer b.Release()
	return checked(len(batch))(f.Model.PredictBatch(ctx, b))
}

// checked returns a function that passes on the results of a model if there are n of them.
func checked(n int) func([]predict.Result, error) ([]predict.Result, error) {
	return func(results []predict.Result, err error) ([]predict.Result, error) {
		if err == nil && len(results) != n {
			err = errors.New("unexpected number of answers of the model; expected one for each example")
		}
		return results, err
	}
}
