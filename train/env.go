package train

import (
	"io"
	"log/slog"

	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
)

// Env is the environment of a run: everything that the calling program provides.
type Env struct {
	// Out receives the lines that report progress, one Write per line.
	Out io.Writer
	// Log receives all other messages.
	Log *slog.Logger
	// Version is the version of the program. Workers compare it with their own.
	Version string
	// Keys are for workers that have keys; nil for workers without.
	Keys Keys
	// Sockets is the folder of the Unix sockets by which workers on this machine are reached, without
	// ports or keys; "" for workers that have ports.
	Sockets string
	// Observer watches the steps, for a progress bar; nil for none.
	Observer runner.Observer
	// Placed, if not nil, is called when the model has been placed on its devices, also on those that
	// take the place of lost ones.
	Placed func(strategy.Runtime)
	// AllowOps names operations that are allowed although they reach beyond the graph, see
	// graphs.Export.RefuseUnsafe.
	AllowOps []string

	// ResumeFrom makes the run continue from this checkpoint instead of the newest: a step, Best,
	// Latest, or a checkpoint's path, which may be that of another run if the run is new. What the run
	// has of later steps is set aside in a folder of its own.
	ResumeFrom string
	// Overwrite removes a run that is in the folder and starts anew.
	Overwrite bool

	// TrainActions run at the end of every training loop, and EvalActions after every evaluation,
	// after the run's own actions. Their errors may stop the run, see runner.Action.
	TrainActions, EvalActions []runner.Action
	// Persist holds named states that are saved with every checkpoint and restored when the run
	// continues. For a new run, Restore(nil) is called. See ErrPersistName.
	Persist map[string]runner.Persistent

	// remote is the run's folder in a bucket, if the run folder is where that is worked on.
	remote string
}

// prepare returns what the set-up of a run takes of the environment.
func (e Env) prepare() prepare.Env {
	return prepare.Env{Log: e.Log, Version: e.Version, Keys: e.Keys, Sockets: e.Sockets, AllowOps: e.AllowOps}
}
