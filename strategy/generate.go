package strategy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/graphs/build"
	"github.com/gorbit-ml/gorbit/strategy/internal/compose"
)

// Generator is a Strategy whose model makes tokens one after the other, on the first replica. A Model is
// one, if it does not train or has Config.Generate.
type Generator interface {
	// MakeCaches makes the caches of a generation: so many slots, of zeros, slot 0 for padding
	// included, and so many of the caches of sources, if the model has any. What they held before is
	// lost. It must be called after the values of variables have changed, too: a model whose matrices are
	// bfloat16 has copies of them.
	MakeCaches(ctx context.Context, slots, sources int) error
	// Encode writes to the caches what the model needs of sources.
	Encode(ctx context.Context, in Sources) error
	// NextLogits returns the logits of the tokens that follow the last new ones, by row, in memory that the
	// next call overwrites. There must be only one call at a time.
	NextLogits(ctx context.Context, in NewTokens) ([]float32, error)
}

var _ Generator = (*Model)(nil)

// NewTokens are the arguments of the function generate of an export.
type NewTokens struct {
	// Rows, Tokens and Context are the sizes of the matrices.
	Rows, Tokens, Context int
	// InputIDs, PositionIDs and Slots are [Rows, Tokens].
	InputIDs, PositionIDs, Slots []int32
	// ContextSlots is [Rows, Context], and Last is [Rows].
	ContextSlots []int32
	Last         []int32
	// SourceSlots is [Sources, Source], of a model with sources: each is that of Rows / Sources sequences in a
	// row.
	Sources, Source int
	SourceSlots     []int32
}

// Sources are the arguments of the function encode of an export: InputIDs, PositionIDs and Slots are
// [Rows, Tokens].
type Sources struct {
	Rows, Tokens                 int
	InputIDs, PositionIDs, Slots []int32
}

// errNoGenerate says that there is no function generate.
var errNoGenerate = errors.New("the graph does not generate; expected an export with generation, composed to evaluate or to generate, too")

// MakeCaches implements Generator.
func (m *Model) MakeCaches(ctx context.Context, slots, sources int) error {
	p := m.plan.Generate
	if p == nil {
		return errNoGenerate
	}
	fill := func(c compose.Caches, slots int) error {
		if slots < 2 || slots > math.MaxInt32 {
			return fmt.Errorf("the caches have %d slots; expected 2 to %d", slots, math.MaxInt32)
		}
		fed, err := tensors([]spec{{c.Count, tf.Int64, []int64{1}, [][]byte{raw([]int64{int64(slots)})}}})
		if err != nil {
			return err
		}
		if _, err := m.session.run(ctx, fed, nil, c.Made); err != nil {
			return memoryError(fmt.Errorf("make caches of %d slots: %w", slots, err))
		}
		return nil
	}
	if !p.Narrowed.IsZero() {
		if _, err := m.session.run(ctx, nil, nil, p.Narrowed); err != nil {
			return memoryError(fmt.Errorf("copy variables for next tokens: %w", err))
		}
	}
	if err := fill(p.Caches, slots); err != nil || p.Encode == nil {
		return err
	}
	return fill(p.Encode.Caches, sources)
}

// memoryError returns an error as an *OutOfMemoryError, if it says that memory ran out.
func memoryError(err error) error {
	if oom(err) {
		return &OutOfMemoryError{err}
	}
	return err
}

// Encode implements Generator.
func (m *Model) Encode(ctx context.Context, in Sources) error {
	if m.plan.Generate == nil || m.plan.Generate.Encode == nil {
		return errors.New("the graph does not encode; expected an export of an encoder-decoder model, composed to evaluate or to generate, too")
	}
	p := m.plan.Generate.Encode
	shape := []int64{int64(in.Rows), int64(in.Tokens)}
	fed, err := tensors([]spec{
		{p.InputIDs, tf.Int32, shape, [][]byte{raw(in.InputIDs)}},
		{p.PositionIDs, tf.Int32, shape, [][]byte{raw(in.PositionIDs)}},
		{p.Slots, tf.Int32, shape, [][]byte{raw(in.Slots)}},
	})
	if err == nil {
		_, err = m.session.run(ctx, fed, []build.Ref{p.Encoded})
	}
	if err != nil {
		return memoryError(fmt.Errorf("encode: %w", err))
	}
	return nil
}

// NextLogits implements Generator.
func (m *Model) NextLogits(ctx context.Context, in NewTokens) ([]float32, error) {
	p := m.plan.Generate
	if p == nil {
		return nil, errNoGenerate
	}
	rows, tokens, columns := int64(in.Rows), int64(in.Tokens), int64(in.Context)
	specs := []spec{
		{p.InputIDs, tf.Int32, []int64{rows, tokens}, [][]byte{raw(in.InputIDs)}},
		{p.PositionIDs, tf.Int32, []int64{rows, tokens}, [][]byte{raw(in.PositionIDs)}},
		{p.Slots, tf.Int32, []int64{rows, tokens}, [][]byte{raw(in.Slots)}},
		{p.Context, tf.Int32, []int64{rows, columns}, [][]byte{raw(in.ContextSlots)}},
		{p.Last, tf.Int32, []int64{rows}, [][]byte{raw(in.Last)}},
	}
	if p.Encode != nil {
		specs = append(specs, spec{p.Source, tf.Int32, []int64{int64(in.Sources), int64(in.Source)}, [][]byte{raw(in.SourceSlots)}})
	}
	fed, err := tensors(specs)
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	out, err := m.session.run(ctx, fed, []build.Ref{p.Logits})
	if err != nil {
		return nil, memoryError(fmt.Errorf("generate: %w", err))
	}
	n := in.Rows * m.export.Contract.Generation.VocabSize
	m.logits = slices.Grow(m.logits[:0], n)
	logits := m.logits[:n]
	if shape := out[0].Shape(); len(shape) != 2 || shape[0]*shape[1] != int64(len(logits)) {
		return nil, fmt.Errorf("generate gave logits of shape %v; expected [%d,%d]", shape, in.Rows, m.export.Contract.Generation.VocabSize)
	}
	_, err = out[0].WriteContentsTo(&memory{raw(logits)})
	return logits, err
}

// memory is a writer into bytes that there are.
type memory struct{ left []byte }

func (m *memory) Write(p []byte) (int, error) {
	n := copy(m.left, p)
	m.left = m.left[n:]
	if n < len(p) {
		return n, errors.New("a tensor has more bytes than its shape says")
	}
	return n, nil
}
