package train

import (
	"context"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// TextModel returns what answers encoded texts with the checkpoint that Load restored, for servers
// that make their own batches. On CPUs the texts of a call are one row without padding. It must not be
// used for a run that takes no texts.
func (r *Run) TextModel() predict.Model {
	return predictModel{r, r.outputs(), r.on.Runtime().LongRows}
}

// BatchModel returns what answers batches of Layout with the checkpoint that Load restored.
func (r *Run) BatchModel() predict.BatchModel { return batchModel{r, r.outputs()} }

// Alone returns the run for answers that no others are computed beside: each call of its TextModel and its
// BatchModel uses all cores, while one of r's uses its share if there are several InFlight. It returns nil
// where a call of r has all cores anyway, and where the params say how many threads operations have. It
// shares the memory of r's variables, and is closed with r. See strategy.Model.Alone.
func (r *Run) Alone(ctx context.Context) (*Run, error) {
	m, ok := r.on.Strategy.(*strategy.Model)
	if !ok || r.Params.Runtime.IntraOpThreads > 0 {
		return nil, nil
	}
	on, err := m.Alone(ctx)
	if on == nil || err != nil {
		return nil, err
	}
	alone := *r
	alone.on = prepare.Placed{Strategy: on}
	return &alone, nil
}

// InFlight returns the number of calls of TextModel or BatchModel that keep the devices busy.
func (r *Run) InFlight() int { return r.on.Runtime().InFlight }

// Outputs describes the values of a result of TextModel and BatchModel: names, dtypes and shapes of the
// graph's outputs.
func (r *Run) Outputs() []graphs.Arg {
	f := r.Export.Functions["predict"]
	var out []graphs.Arg
	for _, o := range r.outputs() {
		out = append(out, f.Outputs[f.Output(o.Name)])
	}
	return out
}

// Inputs returns the features that an example of a run that takes no texts must have.
func (r *Run) Inputs() []graphs.Feature {
	var out []graphs.Feature
	for _, f := range r.Export.Contract.Features {
		if f.Role == graphs.RoleInput && f.Make == "" {
			out = append(out, f)
		}
	}
	return out
}
