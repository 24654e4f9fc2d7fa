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

// Variables are the values of a model. Every strategy.Strategy has them.
type Variables interface {
	// Variables lists them, sorted by name.
	Variables() []strategy.VariableSpec
	// Read returns the values of some, in the order of the names.
	Read(ctx context.Context, names ...string) ([]*tf.Tensor, error)
	// Assign sets some.
	Assign(ctx context.Context, values map[string]*tf.Tensor) error
}

// Strategy is what a Model needs of a strategy.Strategy.
type Strategy interface {
	// Steps makes one optimizer update for each of the inputs.
	Steps(ctx context.Context, steps []strategy.StepInput) ([]strategy.Result, error)
	// Evaluate returns the sums that metrics are computed from, for one batch.
	Evaluate(ctx context.Context, batch []strategy.Feature) (map[string][]float64, error)
	// Runtime says how batches are to be divided.
	Runtime() strategy.Runtime
}

// Model makes a strategy's updates and evaluations for the loop: it is a runner.Model and
// a runner.EvalModel.
type Model struct {
	strategy Strategy
	scalars  strategy.Scalars
	log      *slog.Logger
	// examples are how many every replica, or lane, has trained on; nil before the first
	// update.
	examples []int64
}

// NewModel returns a model over a strategy. Scalars are the hyperparameters that stay the
// same for the run, such as weight_decay; those that it lacks have the contract's
// defaults, and the learning rate is the loop's to say. Log receives a warning where memory
// runs out; nil is silent.
func NewModel(s Strategy, scalars strategy.Scalars, log *slog.Logger) *Model {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Model{strategy: s, scalars: scalars, log: log}
}

// Step implements runner.Model. An update whose micro-batches do not fit in memory is made
// again with smaller ones.
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
		m.log.Warn("out of memory: micro-batches are halved, the global batch stays what it is",
			"step", hyper.Step+1, "accumulate", len(b.Examples)/m.strategy.Runtime().MicroBatches, "error", oom.Err)
	}
}

// count adds the examples of an update to those of the replicas.
func (m *Model) count(examples []int) {
	if m.examples == nil {
		m.examples = make([]int64, m.strategy.Runtime().MicroBatches)
	}
	for i, n := range examples {
		m.examples[i%len(m.examples)] += int64(n)
	}
}

// Evaluate implements runner.EvalModel. The batch must not be divided.
func (m *Model) Evaluate(ctx context.Context, b *Batch) (runner.Sums, error) {
	if len(b.Micro) != 1 {
		return nil, fmt.Errorf("a batch to evaluate comes in %d micro-batches, expected 1: see Evaluations", len(b.Micro))
	}
	sums, err := m.strategy.Evaluate(ctx, b.Micro[0])
	return sums, err
}
