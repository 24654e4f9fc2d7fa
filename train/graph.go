package train

import (
	"context"

	"github.com/gorbit-ml/gorbit/internal/exec/devices"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/params"
)

// ComposeGraph composes the graph that Train would run with the same params. Devices of this machine
// that the params name need not be there. No data is read.
func ComposeGraph(ctx context.Context, p params.Params, env Env) (*strategy.Graph, error) {
	if p.Data.Dir == "" {
		p.Data.Dir = "." // a graph does not depend on the data
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	switch p.Strategy.Kind() {
	case devices.TPU:
		return nil, params.Errorf("strategy.name", "is %s; expected devices of this machine", devices.TPU)
	case devices.MultiWorker:
		return nil, params.Errorf("strategy.workers", "is %s, and only the workers know what devices they have; expected devices of this machine, such as strategy.devices=gpu:2", p.Strategy.Workers)
	}
	export, err := prepare.OpenExport(ctx, p.Graph, env.withDefaults().prepare())
	if err != nil {
		return nil, err
	}
	return prepare.ComposeLocal(p, export)
}
