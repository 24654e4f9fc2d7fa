package train

import (
	"context"

	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/train/loop"
	"github.com/gorbit-ml/gorbit/train/params"
)

// Objective returns the metric by which the evaluations of runs with these params are compared, and
// its direction, max or min: checkpoint.best and checkpoint.best_mode, or what the graph says where
// they are auto. It opens the graph, and returns the error of the first of variants, which are params
// of runs that are to be compared, that are not valid for it.
func Objective(ctx context.Context, p params.Params, variants []params.Params, env Env) (metric, mode string, err error) {
	env = env.withDefaults()
	if err := p.Validate(); err != nil {
		return "", "", err
	}
	export, err := prepare.OpenExport(ctx, p.Graph, env.prepare())
	if err != nil {
		return "", "", err
	}
	p.Checkpoint.ResolveBest(export.Contract)
	switch {
	case p.Checkpoint.Best == "":
		return "", "", params.Errorf("checkpoint.best", "is empty, and the graph names no metric; expected the metric by which runs are compared")
	case p.Train.EvalInterval == params.NoEval:
		return "", "", params.Errorf("train.eval_interval", "is -2 (no evaluation); expected evaluations, by which runs are compared")
	}
	if err := prepare.CheckBest(p, export); err != nil {
		return "", "", err
	}
	order, err := p.BestOrder(loop.KnownTask(export.Contract))
	if err != nil {
		return "", "", err
	}
	for _, v := range variants {
		if err := v.Validate(); err != nil {
			return "", "", err
		}
		if _, err := prepare.ScalarsOf(v, export.Contract); err != nil {
			return "", "", err
		}
	}
	return p.Checkpoint.Best, params.BestModes[order], nil
}
