package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// An EvalModel runs the forward pass on one batch and returns sums.
type EvalModel[P any] interface {
	Evaluate(ctx context.Context, batch P) (Sums, error)
}

// EvaluatorConfig configures a StandardEvaluator.
type EvaluatorConfig struct {
	// Batches is the number of batches of a whole pass where it is known, for
	// the Observer only.
	Batches int64
	// Metrics computes the outputs; nil means Metrics.
	Metrics MetricsFunc
	// Observer may be nil.
	Observer Observer
}

// StandardEvaluator makes one pass over the data per evaluation and computes
// the metrics from the sums of all batches.
type StandardEvaluator[P any] struct {
	model EvalModel[P]
	open  func(context.Context) (BatchReader[P], error)
	cfg   EvaluatorConfig
}

// NewStandardEvaluator returns an evaluator that calls open for every
// evaluation and reads its batches from the first on. A reader that is an
// io.Closer is closed afterwards.
func NewStandardEvaluator[P any](model EvalModel[P], open func(context.Context) (BatchReader[P], error), cfg EvaluatorConfig) *StandardEvaluator[P] {
	if cfg.Metrics == nil {
		cfg.Metrics = Metrics
	}
	if cfg.Observer == nil {
		cfg.Observer = noObserver{}
	}
	return &StandardEvaluator[P]{model: model, open: open, cfg: cfg}
}

// Evaluate implements Evaluator. Data that ends before the given number of
// steps is evaluated whole; data without any weighted example is an error.
func (e *StandardEvaluator[P]) Evaluate(ctx context.Context, steps int64) (out Outputs, err error) {
	total := steps
	if steps < 0 || e.cfg.Batches > 0 && e.cfg.Batches < steps {
		total = e.cfg.Batches
	}
	if total <= 0 {
		total = UntilEnd
	}
	e.cfg.Observer.Begin(PhaseEval, 0, total)
	defer e.cfg.Observer.End()

	data, err := e.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("evaluation data: %w", asStop(ctx, err))
	}
	if closer, ok := data.(io.Closer); ok {
		defer func() { err = errors.Join(err, closer.Close()) }()
	}
	sums := Sums{}
	for n := int64(0); steps < 0 || n < steps; n++ {
		if err := stopError(ctx); err != nil {
			return nil, err
		}
		batch, err := data.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("evaluation data: %w", asStop(ctx, err))
		}
		got, err := e.model.Evaluate(context.WithoutCancel(ctx), batch.Payload)
		if err == nil {
			err = sums.Add(got)
		}
		if err != nil {
			return nil, fmt.Errorf("evaluation batch %d on %s: %w", n+1, recordList(batch.records()), err)
		}
		info := StepInfo{Step: n + 1, Epoch: batch.Epoch, Examples: batch.Examples, Tokens: batch.Tokens}
		if loss, weight := sums[LossSum], sums[WeightSum]; len(loss) == 1 && len(weight) == 1 {
			info.Loss = loss[0] / weight[0]
		}
		e.cfg.Observer.Step(info)
	}
	if len(sums) == 0 {
		return nil, errors.New("evaluation data: no batch")
	}
	if weight := sums[WeightSum]; len(weight) == 1 && weight[0] == 0 {
		return nil, errors.New("evaluation data: no example has any weight")
	}
	return e.cfg.Metrics(sums)
}
