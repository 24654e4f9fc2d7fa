package record

import (
	"context"
	"fmt"
	"maps"
	"slices"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// histogramBuckets is TensorBoard's own default.
const histogramBuckets = 30

// Tags of a variable's histograms that Histograms writes, in front of its name.
const (
	weightTag   = "weights/"
	gradientTag = "gradients/"
)

// Histograms writes histograms of the trained variables and their gradients, layer by layer, after every
// Interval updates: the values of the variables after the update, as a checkpoint of that step has them,
// and the gradient that it was made with, before it was clipped. The gradient is computed once more for
// it, so that the step itself stays what it is.
type Histograms struct {
	Interval int64
	Model    Inspected
	To       *Events

	gradients map[string][]float32 // of the update that is being made; nil if there are none
}

var _ loop.Inspector = (*Histograms)(nil)

// Together implements loop.Inspector: an update with histograms is a call of its own.
func (h *Histograms) Together(first int64, n int) int {
	until := (h.Interval - first%h.Interval) % h.Interval // updates before the next one with histograms
	return int(min(int64(n), max(1, until)))
}

// Before implements loop.Inspector.
func (h *Histograms) Before(ctx context.Context, first int64, inputs []strategy.StepInput) (_ context.Context, err error) {
	if h.gradients = nil; first%h.Interval == 0 {
		h.gradients, err = h.Model.Gradients(ctx, inputs[0])
	}
	return ctx, err
}

// After implements loop.Inspector. An update that was not applied has no histograms.
func (h *Histograms) After(ctx context.Context, first int64, results []strategy.Result) error {
	gradients := h.gradients
	if h.gradients = nil; gradients == nil || len(results) == 0 || !results[0].Applied {
		return nil
	}
	if err := h.To.variables(ctx, h.Model, weightTag, first); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(gradients)) {
		h.To.Histogram(gradientTag+name, first, gradients[name], histogramBuckets)
	}
	return nil
}

// Histograms returns an action that writes a histogram of every trained variable.
func (b *Board) Histograms(m loop.Variables) runner.Action {
	return func(ctx context.Context, step int64, _ runner.Outputs) error {
		return b.Eval.variables(ctx, m, "", step)
	}
}

// variables writes a histogram of every trained variable of one replica, with a tag in front of its name.
func (e *Events) variables(ctx context.Context, m loop.Variables, tag string, step int64) error {
	for _, v := range m.Variables() {
		if v.Slot || v.DType != tf.Float {
			continue
		}
		values, err := m.Read(ctx, v.Name)
		if err != nil {
			return err
		}
		flat, err := strategy.Float32s(values[0])
		if err != nil {
			return fmt.Errorf("histogram of %s: %w", v.Name, err)
		}
		e.Histogram(tag+v.Name, step, flat, histogramBuckets)
	}
	return nil
}
