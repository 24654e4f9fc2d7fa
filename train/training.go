package train

import (
	"cmp"
	"context"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/run/groups"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/params"
)

// training is a run with everything that survives the loss of a worker.
type training struct {
	*setup
	env         Env
	given       params.Params // as the user wrote them, before intervals were resolved
	folder      string
	scalars     strategy.Scalars
	groups      *groups.Division // nil: all variables are trained alike
	examples    *dataset.Dataset // training examples
	start       dataset.State    // position of the first batch
	steps       int64
	evaluations *evaluated // nil for none
	manager     *checkpoint.Manager
	before      *past // state of an earlier process; nil for a new run
	journal     journal
	// place composes the model on its devices. It is a field so that tests can replace it.
	place func(context.Context) (placed, error)
}

// name is what to call the run: its folder, which may be in a bucket.
func (t *training) name() string { return cmp.Or(t.env.remote, t.folder) }

// newTraining opens the training data and resolves the params that are given in epochs.
func newTraining(ctx context.Context, s *setup, folder string, env Env) (*training, error) {
	t := &training{setup: s, folder: folder, env: env}
	t.place = func(ctx context.Context) (placed, error) {
		return openModel(ctx, t.params, t.export, strategy.FunctionsTrain, localData(t.params, t.export.Contract, t.examples), t.env.prepare())
	}
	var err error
	if t.scalars, err = scalarsOf(s.params, s.export.Contract); err != nil {
		return nil, err
	}
	if t.groups, err = groups.Divide(s.export.Contract, s.params.Optimizer.Groups, s.params.Optimizer.LayerDecay); err != nil {
		return nil, err
	}
	if err := s.openData(); err != nil {
		return nil, err
	}
	var before *past
	if !env.Overwrite {
		before = readPast(folder, s.export.Contract)
	}
	var began *params.Params
	if before != nil {
		began = &before.params
	}
	if err := preflightTraining(ctx, s, folder, began); err != nil {
		return nil, err
	}
	if t.examples, err = s.openTraining(ctx); err != nil {
		return nil, err
	}
	if err := t.examples.CheckFirst(); err != nil {
		t.examples.Close()
		return nil, ofSplit(s.params, s.export.Contract, s.params.Data.Train, err)
	}
	if err := s.checkWhole(t.examples); err != nil {
		t.examples.Close()
		return nil, err
	}
	t.start = t.examples.State()
	if s.params.Runtime.Lanes == 0 && s.params.Strategy.Kind() != devices.TPU {
		s.params.Runtime.Lanes = lanesOf(s.params.Runtime, s.export.Contract.XLA)
		if !s.export.Contract.Additive {
			s.params.Runtime.Lanes = 1 // examples of other lanes would not count
		}
	}
	t.given = s.params
	if t.steps, err = intervals(ctx, &s.params, t.examples); err == nil && s.params.Train.EvalInterval != params.NoEval {
		t.evaluations, err = s.evaluations(ctx, s.params.Data.Eval)
	}
	if err != nil {
		t.examples.Close()
		return nil, err
	}
	return t, nil
}
