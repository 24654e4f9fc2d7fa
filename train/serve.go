package train

import (
	"github.com/gorbit-ml/gorbit/graphs"
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
