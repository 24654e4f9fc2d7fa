package described

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/generate"
	"github.com/gorbit-ml/gorbit/internal/data/layout"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// readMaker reads how the model makes texts.
func (m *Model) readMaker() error {
	d := json.NewDecoder(bytes.NewReader(m.Generation))
	d.DisallowUnknownFields() // which would change the texts
	m.Maker = new(predict.Maker)
	if err := d.Decode(m.Maker); err != nil {
		return err
	}
	if m.Tokenizer == nil {
		return errors.New("the model makes texts and has no vocabulary; expected one")
	}
	if _, ok := m.Calls[layout.Encode]; ok != (m.Maker.SourceLength > 0) {
		return fmt.Errorf("source_length is %d, and there is a call %s: %v; expected both or neither", m.Maker.SourceLength, layout.Encode, ok)
	}
	return m.Maker.Validate()
}

// nextTokens is the generate.Model of a served model.
type nextTokens struct {
	calls map[string]Run
	vocab int
}

// Generator makes caches of the limits, and returns what computes next tokens with them. There is one at a time.
// by returns what calls a signature.
func (c Caller) Generator(ctx context.Context, l generate.Limits, by func(layout.Call) (Run, error)) (generate.Model, error) {
	n := nextTokens{make(map[string]Run), l.VocabSize}
	for name, call := range c.Calls {
		run, err := by(call)
		if err != nil {
			return nil, fmt.Errorf("signature %s: %w", name, err)
		}
		n.calls[name] = run
	}
	// One more, for padding.
	slots := []dataset.Feature{{Name: layout.Slots, Int32: []int32{int32(l.Slots + 1)}}, {Name: layout.SourceSlots, Int32: []int32{int32(l.SourceSlots + 1)}}}
	_, err := n.call(ctx, layout.MakeCaches, slots...)
	return n, err
}

// call calls a signature, and returns its output.
func (n nextTokens) call(ctx context.Context, name string, features ...dataset.Feature) (Tensor, error) {
	if err := ctx.Err(); err != nil {
		return Tensor{}, err
	}
	out, err := n.calls[name](ctx, features)
	if err == nil && len(out) != 1 {
		err = fmt.Errorf("the model gave %d outputs; expected one", len(out))
	}
	if err != nil {
		return Tensor{}, fmt.Errorf("%s: %w", name, err)
	}
	return out[0], nil
}

// Compute implements generate.Model.
func (n nextTokens) Compute(ctx context.Context, b *generate.Batch) ([]float32, error) {
	matrix := func(name string, rows, columns int, values []int32) dataset.Feature {
		return dataset.Feature{Name: name, Shape: []int{rows, columns}, Int32: values}
	}
	if e := b.Encode; e != nil {
		if _, err := n.call(ctx, layout.Encode, matrix(layout.InputIDs, e.Rows, e.Tokens, e.InputIDs),
			matrix(layout.PositionIDs, e.Rows, e.Tokens, e.PositionIDs), matrix(layout.Slots, e.Rows, e.Tokens, e.Slots)); err != nil {
			return nil, err
		}
	}
	out, err := n.call(ctx, layout.Generate, matrix(layout.InputIDs, b.Rows, b.Tokens, b.InputIDs),
		matrix(layout.PositionIDs, b.Rows, b.Tokens, b.PositionIDs), matrix(layout.Slots, b.Rows, b.Tokens, b.Slots),
		matrix(layout.Context, b.Rows, b.Context, b.ContextSlots), dataset.Feature{Name: layout.Last, Shape: []int{b.Rows}, Int32: b.Last},
		matrix(layout.Source, b.Sources, b.Source, b.SourceSlots))
	if err != nil {
		return nil, err
	}
	if want := []int64{int64(b.Rows), int64(n.vocab)}; out.DType != "float32" || !slices.Equal(out.Shape, want) {
		return nil, fmt.Errorf("the model gave logits of %s %v; expected float32 %v", out.DType, out.Shape, want)
	}
	if len(out.Raw) != 4*b.Rows*n.vocab {
		return nil, fmt.Errorf("the model gave %d bytes of logits; expected %d", len(out.Raw), 4*b.Rows*n.vocab)
	}
	// Nobody else has the bytes, which stand where numbers of 4 bytes may.
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(out.Raw))), b.Rows*n.vocab), nil
}
