package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// An EvalModel runs the forward pass on a batch and returns sums.
type EvalModel[P any] interface {
	Evaluate(ctx context.Context, batch P) (Sums, error)
}

// EvaluatorConfig configures a StandardEvaluator.
type EvaluatorConfig struct {
	// Batches is the number of batches in a whole pass, or 0 if unknown. Only the Observer uses
	// it.
	Batches int64
	// InFlight is the number of concurrent calls of the model; 0 means 1. More than one needs a
	// model that several goroutines may call. The outputs do not depend on it because sums are
	// added in the order of the batches.
	InFlight int
	// Metrics computes the outputs; nil means Metrics.
	Metrics MetricsFunc
	// Observer may be nil.
	Observer Observer
}

// StandardEvaluator makes one pass over the data for each evaluation and computes the metrics from
// the sums of all batches.
type StandardEvaluator[P any] struct {
	model EvalModel[P]
	open  func(context.Context) (BatchReader[P], error)
	cfg   EvaluatorConfig
}

// NewStandardEvaluator returns an evaluator that calls open for each evaluation and reads the
// batches from the first. If the reader is an io.Closer, it is closed afterwards.
func NewStandardEvaluator[P any](model EvalModel[P], open func(context.Context) (BatchReader[P], error), cfg EvaluatorConfig) *StandardEvaluator[P] {
	if cfg.Metrics == nil {
		cfg.Metrics = Metrics
	}
	if cfg.Observer == nil {
		cfg.Observer = noObserver{}
	}
	return &StandardEvaluator[P]{model: model, open: open, cfg: cfg}
}

// Evaluate implements Evaluator. If the data ends before the given number of steps, it evaluates
// all of the data. It returns an error if no example has any weight.
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
	var calls []*evalCall[P] // in flight, oldest first
	defer func() {
		for _, c := range calls {
			<-c.done
		}
	}()
	// oldest waits for the oldest call and adds its sums.
	oldest := func() error {
		c := calls[0]
		<-c.done
		calls = calls[1:]
		if c.err == nil {
			c.err = sums.Add(c.sums)
		}
		if c.err != nil {
			return fmt.Errorf("evaluation batch %d on %s: %w", c.number, recordList(c.batch.records()), c.err)
		}
		info := StepInfo{Step: c.number, Epoch: c.batch.Epoch, Examples: c.batch.Examples, Tokens: c.batch.Tokens}
		if loss, weight := sums[LossSum], sums[WeightSum]; len(loss) == 1 && len(weight) == 1 {
			info.Loss = loss[0] / weight[0]
		}
		e.cfg.Observer.Step(info)
		return nil
	}
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
		calls = append(calls, e.call(context.WithoutCancel(ctx), n+1, batch))
		if len(calls) >= e.cfg.InFlight {
			if err := oldest(); err != nil {
				return nil, err
			}
		}
	}
	for len(calls) > 0 {
		if err := oldest(); err != nil {
			return nil, err
		}
	}
	if len(sums) == 0 {
		return nil, errors.New("evaluation data has no batches; expected at least one")
	}
	if weight := sums[WeightSum]; len(weight) == 1 && weight[0] == 0 {
		return nil, errors.New("evaluation data has no example with a weight above 0")
	}
	return e.cfg.Metrics(sums)
}

// evalCall is a call of the model on a batch. sums and err are set when done is closed.
type evalCall[P any] struct {
	number int64 // number of the batch, from 1
	batch  Batch[P]
	done   chan struct{}
	sums   Sums
	err    error
}

// call calls the model, in the background if several calls may be in flight.
func (e *StandardEvaluator[P]) call(ctx context.Context, number int64, batch Batch[P]) *evalCall[P] {
	c := &evalCall[P]{number: number, batch: batch, done: make(chan struct{})}
	run := func() {
		defer close(c.done)
		c.sums, c.err = e.model.Evaluate(ctx, batch.Payload)
	}
	if e.cfg.InFlight > 1 {
		go run()
	} else {
		run()
	}
	return c
}
