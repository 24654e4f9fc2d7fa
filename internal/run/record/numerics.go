package record

import (
	"context"
	"fmt"

	"github.com/gorbit-ml/gorbit/internal/base/dtype"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// Inspected is a model whose passes can be looked into. strategy.Model implements it.
type Inspected interface {
	loop.Variables
	// CheckGradients returns an error if they cannot be.
	CheckGradients() error
	// Gradients returns the gradient of the mean loss of a batch, by trained variable.
	Gradients(ctx context.Context, in strategy.StepInput) (map[string][]float32, error)
	// Diagnose computes the pass of a step again, and finds where it is not finite first.
	Diagnose(ctx context.Context, in strategy.StepInput) (*strategy.Diagnosis, error)
}

// Numerics says why an update was not finite. It keeps what the last call was given, and costs nothing
// else until then.
type Numerics struct {
	Model Inspected
	first int64
	last  []strategy.StepInput
}

var _ loop.Inspector = (*Numerics)(nil)

// Together implements loop.Inspector.
func (n *Numerics) Together(_ int64, updates int) int { return updates }

// Before implements loop.Inspector.
func (n *Numerics) Before(ctx context.Context, first int64, inputs []strategy.StepInput) (context.Context, error) {
	n.first, n.last = first, inputs
	return ctx, nil
}

// After implements loop.Inspector.
func (n *Numerics) After(context.Context, int64, []strategy.Result) error { return nil }

// Explain computes the update after the given step again, which the last call made and did not apply, and
// says which tensor is not finite first.
func (n *Numerics) Explain(ctx context.Context, step int64) string {
	at := step + 1 - n.first
	if at < 0 || at >= int64(len(n.last)) {
		return fmt.Sprintf("the batch of step %d is gone, and the reason was not looked for", step+1)
	}
	d, err := n.Model.Diagnose(ctx, n.last[at])
	if err != nil {
		return fmt.Sprintf("the reason was not found: %v", err)
	}
	if d.Tensor == nil {
		return "computed again, all tensors are finite"
	}
	text := "computed again, the first tensor that is not finite is " + placed(d.Tensor) + values(d.Tensor)
	if d.Gradient != nil {
		text += ", and the first gradient that of " + d.Gradient.Variable + values(d.Gradient)
	}
	if n := len(n.last[at].Batches); n > 1 {
		text += fmt.Sprintf(", in micro-batch %d of %d", d.Micro+1, n)
	}
	return text
}

// placed says which tensor it is.
func placed(t *strategy.NonFinite) string {
	switch {
	case t.Op == "":
		return "the input " + t.Name
	case t.Op == "ReadVariableOp":
		return "the variable " + t.Variable
	case t.Variable == "":
		return fmt.Sprintf("the output of %s (%s)", t.Name, t.Op)
	}
	return fmt.Sprintf("the output of %s (%s), computed with %s", t.Name, t.Op, t.Variable)
}

// values says what a tensor holds.
func values(t *strategy.NonFinite) string {
	return fmt.Sprintf(" [%s: %d NaN and %d infinite of %d, the largest other %.6g]", dtype.DType(t.DType), t.NaNs, t.Infinite, t.Elements, t.Largest)
}
