package train

import (
	"cmp"
	"context"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/run/groups"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/params"
)

// training is a run with everything that survives the loss of a worker.
type training struct {
	*prepare.Setup
	env         Env
	given       params.Params // as the user wrote them, before intervals were resolved
	folder      string
	scalars     strategy.Scalars
	groups      *groups.Division // nil: all variables are trained alike
	examples    *dataset.Dataset // training examples
	start       dataset.State    // position of the first batch
	steps       int64
	evaluations []*prepare.Evaluated // by data.eval; nil for none
	manager     *checkpoint.Manager
	readOnly    bool  // whether the folder cannot be written to
	before      *past // state of an earlier process; nil for a new run
	journal     journal
	// place composes the model on its devices. It is a field so that tests can replace it.
	place func(context.Context) (prepare.Placed, error)
}

// name is what to call the run: its folder, which may be in a bucket.
func (t *training) name() string { return cmp.Or(t.env.remote, t.folder) }

// newTraining opens the training data and resolves the params that are given in epochs.
func newTraining(ctx context.Context, s *prepare.Setup, folder string, env Env) (*training, error) {
	t := &training{Setup: s, folder: folder, env: env}
	t.place = func(ctx context.Context) (prepare.Placed, error) {
		env := t.env.prepare()
		env.Folder = t.folder
		return prepare.OpenModel(ctx, t.Params, t.Export, strategy.FunctionsTrain, localData(t.Params, t.Export.Contract, t.examples), env)
	}
	var err error
	if t.scalars, err = prepare.ScalarsOf(s.Params, s.Export.Contract); err != nil {
		return nil, err
	}
	if t.groups, err = groups.Divide(s.Export.Contract, s.Params.Optimizer.Groups, s.Params.Optimizer.LayerDecay); err != nil {
		return nil, err
	}
	if err := s.OpenData(); err != nil {
		return nil, err
	}
	var before *past
	if !env.Overwrite {
		before = readPast(folder, s.Export.Contract)
	}
	var began *params.Params
	if before != nil {
		began = &before.params
	}
	if err := prepare.PreflightTraining(ctx, s, folder, began); err != nil {
		return nil, err
	}
	if t.examples, err = s.OpenTraining(ctx); err != nil {
		return nil, err
	}
	if err := t.examples.CheckFirst(); err != nil {
		t.examples.Close()
		return nil, prepare.OfSplit(s.Params, s.Export.Contract, s.Params.Data.Train, err)
	}
	if err := s.CheckWhole(t.examples); err != nil {
		t.examples.Close()
		return nil, err
	}
	t.start = t.examples.State()
	if s.Params.Runtime.Lanes == 0 && s.Params.Strategy.Kind() != devices.TPU {
		s.Params.Runtime.Lanes = prepare.LanesOf(s.Params.Runtime, s.Export.Contract.XLA)
		if !s.Export.Contract.Additive {
			s.Params.Runtime.Lanes = 1 // examples of other lanes would not count
		}
	}
	t.given = s.Params
	if t.steps, err = prepare.Intervals(ctx, &s.Params, t.examples); err == nil && s.Params.Train.EvalInterval != params.NoEval {
		t.evaluations, err = s.EvaluatedSplits(ctx)
	}
	if err != nil {
		t.examples.Close()
		return nil, err
	}
	return t, nil
}
