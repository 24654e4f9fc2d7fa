package train

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
)

// training is a run with all that outlasts the loss of a worker.
type training struct {
	*setup
	given       Params // what the user wrote, before intervals were worked out
	folder      string
	scalars     strategy.Scalars
	examples    *dataset.Dataset // to train on
	start       dataset.State    // of the examples
	steps       int64
	evaluations func(context.Context) (runner.BatchReader[*Batch], error) // nil for none
	evalBatches int64
	manager     *checkpoint.Manager
	before      *past // of the run; nil for a new one
}

// newTraining opens what is trained on, and works out the params that are counted in
// epochs.
func newTraining(ctx context.Context, s *setup, folder string) (*training, error) {
	t := &training{setup: s, folder: folder}
	var err error
	if t.scalars, err = scalarsOf(s.params, s.export.Contract); err != nil {
		return nil, err
	}
	if err := s.openData(); err != nil {
		return nil, err
	}
	if err := preflightTraining(s, folder, readPast(folder)); err != nil {
		return nil, err
	}
	if t.examples, err = s.open(ctx, s.params.Data.Train, toTrain); err != nil {
		return nil, err
	}
	t.start = t.examples.State()
	if s.params.Runtime.Lanes == 0 {
		s.params.Runtime.Lanes = s.params.Runtime.lanes(s.export.Contract.XLA)
	}
	t.given = s.params
	if t.steps, err = intervals(&s.params, t.examples.BatchesPerEpoch()); err == nil && s.params.Train.EvalInterval != noEval {
		t.evaluations, t.evalBatches, err = s.evaluations(ctx, s.params.Data.Eval)
	}
	if err != nil {
		t.examples.Close()
		return nil, err
	}
	return t, nil
}

// checkBest returns an error unless evaluations of a graph give the metric by which the
// best checkpoint is kept, and its direction is known.
func checkBest(p Params, export *graphs.Export) error {
	if p.Checkpoint.Best == "" || p.Train.EvalInterval == noEval {
		return nil
	}
	metrics, err := metricsOf(export)
	if err != nil {
		return err
	}
	if _, ok := metrics[p.Checkpoint.Best]; !ok {
		return &ParamsError{fmt.Errorf("checkpoint.best is %q; evaluations of this graph give %s: give one with --set checkpoint.best=NAME",
			p.Checkpoint.Best, strings.Join(slices.Sorted(maps.Keys(metrics)), ", "))}
	}
	_, err = p.Checkpoint.order()
	return err
}

// metricsOf returns the metrics that evaluations of a graph give, of made-up sums.
func metricsOf(export *graphs.Export) (runner.Outputs, error) {
	sums := make(runner.Sums)
	for _, a := range export.Functions["evaluate"].Outputs {
		n := int64(1)
		for _, d := range a.Shape {
			n *= max(d, 1)
		}
		if a.Name == confusion && len(a.Shape) == 2 && a.Shape[0] < 1 {
			n = int64(export.Contract.Model.NumLabels) * int64(export.Contract.Model.NumLabels)
		}
		sums[a.Name] = slices.Repeat([]float64{1}, int(n))
	}
	return runner.Metrics(sums)
}

// confusion is the sum whose open dimensions are the labels.
const confusion = "confusion"
