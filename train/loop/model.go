package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"

	tf "github.com/wamuir/graft/tensorflow"
	"golang.org/x/sync/errgroup"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
)

// Variables gives access to the variables of a model. Every strategy.Strategy implements it.
type Variables interface {
	// Variables lists the variables, sorted by name.
	Variables() []strategy.VariableSpec
	// Read returns the values of the named variables, in the order of the names.
	Read(ctx context.Context, names ...string) ([]*tf.Tensor, error)
	// Assign sets the named variables.
	Assign(ctx context.Context, values map[string]*tf.Tensor) error
}

// Strategy is the part of strategy.Strategy that a Model uses.
type Strategy interface {
	// Steps makes one optimizer update for each of the inputs.
	Steps(ctx context.Context, steps []strategy.StepInput) ([]strategy.Result, error)
	// Evaluate returns the sums that metrics are computed from, for one batch.
	Evaluate(ctx context.Context, batch []strategy.Feature) (map[string][]float64, error)
	// Runtime describes how batches must be divided.
	Runtime() strategy.Runtime
}

// Model runs the updates and evaluations of a strategy for the loop. It implements runner.StepsModel
// and runner.EvalModel.
type Model struct {
	// Strategy computes the steps.
	Strategy Strategy
	scalars  strategy.Scalars
	log      *slog.Logger
	// micro is the number of micro-batches into which a batch must be divided to fit in memory; 0
	// before memory has run out.
	micro int
	// single is set if a call of several steps does not fit in memory, and one step does.
	single bool
	// Examples counts the examples that each replica, or lane, has trained on; nil before the
	// first update.
	Examples []int64
	// last is the number of micro-batches of the last update.
	last int
	// Cut changes the features of a micro-batch for an update, counted from 0, and returns what they then cost
	// in addition to their batch's FLOPs; nil leaves them as they are.
	Cut func(features []strategy.Feature, step int64) (cut []strategy.Feature, flops float64)
	// Inspectors look at the updates.
	Inspectors []Inspector
	// Reduce condenses the values of an evaluated batch's examples; nil leaves them as they are.
	Reduce func([]strategy.Feature, runner.Sums) error
}

// NewModel returns a Model for a strategy. scalars holds the hyperparameters that do not change
// during the run, such as weight_decay; missing ones have the contract's defaults, and the loop
// sets the learning rate. log receives a warning when memory runs out; nil discards it.
func NewModel(s Strategy, scalars strategy.Scalars, log *slog.Logger) *Model {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Model{Strategy: s, scalars: scalars, log: log}
}

// Step implements runner.Model. If the micro-batches of an update do not fit in memory, it repeats
// the update with smaller ones. The memory of the batch is given back once the update was made.
func (m *Model) Step(ctx context.Context, b *Batch, hyper runner.Hyper) (runner.StepResult, error) {
	for {
		input, flops := m.input(b, hyper)
		results, err := m.steps(ctx, hyper.Step+1, []strategy.StepInput{input})
		if err == nil {
			m.made(b, results[0])
			return stepResult(results[0], flops), nil
		}
		oom := (*strategy.OutOfMemoryError)(nil)
		switch {
		case !errors.As(err, &oom) || b.Halve != nil && len(b.Examples) >= b.All():
			return runner.StepResult{}, err
		case b.Halve == nil:
			return runner.StepResult{}, fmt.Errorf("%w; start another run with fewer data.rows, or a smaller train.batch_size", err)
		}
		if b, err = b.Halve(ctx); err != nil {
			return runner.StepResult{}, fmt.Errorf("smaller micro-batches after %w: %w", oom, err)
		}
		m.micro = len(b.Examples)
		m.log.Warn("out of memory; halving the micro-batches and keeping the global batch",
			"step", hyper.Step+1, "accumulate", len(b.Examples)/m.Strategy.Runtime().MicroBatches, "error", oom.Err)
	}
}

// Steps implements runner.StepsModel. If memory runs out, the call ends with the update that did not
// fit, made by itself.
func (m *Model) Steps(ctx context.Context, batches []*Batch, hypers []runner.Hyper) ([]runner.StepResult, error) {
	if m.single {
		batches = batches[:1]
	}
	batches = batches[:m.together(hypers[0].Step+1, len(batches))]
	inputs, flops := make([]strategy.StepInput, len(batches)), make([]float64, len(batches))
	for i, b := range batches {
		// Read before memory ran out.
		if len(b.Examples) < m.micro && b.Halve != nil {
			again, err := b.Halve(ctx)
			if err != nil {
				return nil, fmt.Errorf("smaller micro-batches: %w", err)
			}
			*b = *again
		}
		inputs[i], flops[i] = m.input(b, hypers[i])
	}
	results, err := m.steps(ctx, hypers[0].Step+1, inputs)
	out := make([]runner.StepResult, len(results), len(inputs))
	for i, r := range results {
		m.made(batches[i], r)
		out[i] = stepResult(r, flops[i])
	}
	if oom := (*strategy.OutOfMemoryError)(nil); !errors.As(err, &oom) || len(out) == len(batches) {
		return out, err
	}
	failed, before := len(out), m.micro
	r, err := m.Step(ctx, batches[failed], hypers[failed])
	if err != nil {
		return out, err
	}
	if m.micro == before && len(batches) > 1 {
		m.single = true
		m.log.Warn("out of memory in a call of several steps; making one step per call from now on", "step", hypers[failed].Step+1, "steps_per_call", len(batches))
	}
	return append(out, r), nil
}

// input returns the strategy's input for an update, and what Cut says of its cost.
func (m *Model) input(b *Batch, hyper runner.Hyper) (in strategy.StepInput, flops float64) {
	scalars := make(strategy.Scalars, len(m.scalars)+2)
	maps.Copy(scalars, m.scalars)
	scalars["learning_rate"] = hyper.LearningRate
	if hyper.LossScale > 0 {
		scalars[graphs.LossScale] = hyper.LossScale
	}
	micro := b.Micro
	if m.Cut != nil {
		micro = make([][]strategy.Feature, len(b.Micro))
		for i, features := range b.Micro {
			var cost float64
			micro[i], cost = m.Cut(features, hyper.Step)
			flops += cost
		}
	}
	return strategy.StepInput{Batches: micro, Drawn: b.Drawn, Seed: [2]int64{hyper.Seed, hyper.Step}, Scalars: scalars}, flops
}

func stepResult(r strategy.Result, flops float64) runner.StepResult {
	return runner.StepResult{Sums: r.Sums, GradientNorm: r.GradientNorm, Step: r.Iterations, Applied: r.Applied, InSession: r.InSession, FLOPs: flops}
}

// made counts the examples of an update, and gives the memory of its batch back. That of a batch that was
// not applied stays, for who looks for the reason.
func (m *Model) made(b *Batch, r strategy.Result) {
	m.count(b.Examples)
	if r.Applied {
		b.release()
	}
}

// count adds the examples of an update to the replicas' counts.
func (m *Model) count(examples []int) {
	m.last = len(examples)
	if m.Examples == nil {
		m.Examples = make([]int64, m.Strategy.Runtime().MicroBatches)
	}
	for i, n := range examples {
		m.Examples[i%len(m.Examples)] += int64(n)
	}
}

// Accumulated returns the number of micro-batches, one after the other, of an update; 0 before the
// first.
func (m *Model) Accumulated() int64 {
	return int64(m.last / max(1, m.Strategy.Runtime().MicroBatches))
}

// sideBySide is a Strategy all of whose replicas evaluate at once, such as the cores of a TPU.
type sideBySide interface {
	// EvaluateAll returns the sums of micro-batches, one for each replica.
	EvaluateAll(ctx context.Context, batches [][]strategy.Feature) (map[string][]float64, error)
}

// Evaluate implements runner.EvalModel. The batch must consist of one micro-batch or, for a TPU, of
// one for each core.
func (m *Model) Evaluate(ctx context.Context, b *Batch) (runner.Sums, error) {
	if m.Reduce != nil {
		return m.evaluateEach(ctx, b)
	}
	if all, ok := m.Strategy.(sideBySide); ok {
		sums, err := all.EvaluateAll(ctx, b.Micro)
		return sums, err
	}
	if len(b.Micro) != 1 {
		return nil, fmt.Errorf("evaluation batch has %d micro-batches; expected 1, as Evaluations returns it", len(b.Micro))
	}
	sums, err := m.Strategy.Evaluate(ctx, b.Micro[0])
	return sums, err
}

// evaluateEach evaluates the micro-batches of a batch side by side, and reduces the values of each.
func (m *Model) evaluateEach(ctx context.Context, b *Batch) (runner.Sums, error) {
	parts := make([]runner.Sums, len(b.Micro))
	g, ctx := errgroup.WithContext(ctx)
	for i, features := range b.Micro {
		g.Go(func() error {
			sums, err := m.Strategy.Evaluate(ctx, features)
			if err == nil {
				err = m.Reduce(features, sums)
			}
			parts[i] = sums
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	total := runner.Sums{}
	for _, part := range parts {
		if err := total.Add(part); err != nil {
			return nil, err
		}
	}
	return total, nil
}
