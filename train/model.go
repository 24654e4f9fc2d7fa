package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	tf "github.com/wamuir/graft/tensorflow"

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

// Model runs the updates and evaluations of a strategy for the loop. It implements runner.Model and
// runner.EvalModel.
type Model struct {
	strategy Strategy
	scalars  strategy.Scalars
	log      *slog.Logger
	// examples counts the examples that each replica, or lane, has trained on; nil before the
	// first update.
	examples []int64
}

// NewModel returns a Model for a strategy. scalars holds the hyperparameters that do not change
// during the run, such as weight_decay; missing ones have the contract's defaults, and the loop
// sets the learning rate. log receives a warning when memory runs out; nil discards it.
func NewModel(s Strategy, scalars strategy.Scalars, log *slog.Logger) *Model {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Model{strategy: s, scalars: scalars, log: log}
}

// Step implements runner.Model. If the micro-batches of an update do not fit in memory, it repeats
// the update with smaller ones.
func (m *Model) Step(ctx context.Context, b *Batch, hyper runner.Hyper) (runner.StepResult, error) {
	scalars := make(strategy.Scalars, len(m.scalars)+2)
	for name, value := range m.scalars {
		scalars[name] = value
	}
	scalars["learning_rate"] = hyper.LearningRate
	if hyper.LossScale > 0 {
		scalars[graphs.LossScale] = hyper.LossScale
	}
	for {
		results, err := m.strategy.Steps(ctx, []strategy.StepInput{{Batches: b.Micro, Drawn: b.Drawn, Seed: [2]int64{hyper.Seed, hyper.Step}, Scalars: scalars}})
		if err == nil {
			m.count(b.Examples)
			r := results[0]
			return runner.StepResult{Sums: r.Sums, GradientNorm: r.GradientNorm, Step: r.Iterations, Applied: r.Applied, InSession: r.InSession}, nil
		}
		oom := (*strategy.OutOfMemoryError)(nil)
		if !errors.As(err, &oom) || b.Halve == nil || len(b.Examples) >= b.all() {
			return runner.StepResult{}, err
		}
		if b, err = b.Halve(ctx); err != nil {
			return runner.StepResult{}, fmt.Errorf("smaller micro-batches after %w: %w", oom, err)
		}
		m.log.Warn("out of memory; halving the micro-batches and keeping the global batch",
			"step", hyper.Step+1, "accumulate", len(b.Examples)/m.strategy.Runtime().MicroBatches, "error", oom.Err)
	}
}

// count adds the examples of an update to the replicas' counts.
func (m *Model) count(examples []int) {
	if m.examples == nil {
		m.examples = make([]int64, m.strategy.Runtime().MicroBatches)
	}
	for i, n := range examples {
		m.examples[i%len(m.examples)] += int64(n)
	}
}

// Evaluate implements runner.EvalModel. The batch must consist of one micro-batch.
func (m *Model) Evaluate(ctx context.Context, b *Batch) (runner.Sums, error) {
	if len(b.Micro) != 1 {
		return nil, fmt.Errorf("evaluation batch has %d micro-batches; expected 1, as Evaluations returns it", len(b.Micro))
	}
	sums, err := m.strategy.Evaluate(ctx, b.Micro[0])
	return sums, err
}
