package train

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// Env is the environment of a run: everything that the calling program provides.
type Env struct {
	// Out receives the lines that report progress, one Write per line; nil for nowhere.
	Out io.Writer
	// Log receives all other messages; nil for nowhere.
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
	// Saved, if not nil, is called when a checkpoint of a training is on disk, which may be during later
	// steps.
	Saved func(step int64, path string)
	// AllowOps names operations that are allowed although they reach beyond the graph, see
	// graphs.Export.RefuseUnsafe.
	AllowOps []string

	// Memory is how many bytes of memory a training on this machine may take; 0 if that is not known. A
	// training that takes more anyway is warned of.
	Memory int64

	// ResumeFrom makes the run continue from this checkpoint instead of the newest: a step, Best,
	// Latest, or a checkpoint's path, which may be that of another run if the run is new. What the run
	// has of later steps is set aside in a folder of its own.
	ResumeFrom string
	// Overwrite removes a run that is in the folder and starts again.
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

// withDefaults returns the environment with somewhere to write to.
func (e Env) withDefaults() Env {
	if e.Out == nil {
		e.Out = io.Discard
	}
	if e.Log == nil {
		e.Log = slog.New(slog.DiscardHandler)
	}
	return e
}

// prepare returns what the set-up of a run takes of the environment.
func (e Env) prepare() prepare.Env {
	return prepare.Env{Log: e.Log, Version: e.Version, Keys: e.Keys, Sockets: e.Sockets, AllowOps: e.AllowOps}
}

// Keys are what this process proves to workers by mutual TLS who it is, and knows them by.
type Keys interface {
	// Client makes a connection to the worker at a host one of TLS. protocol is what is spoken
	// inside.
	Client(ctx context.Context, conn net.Conn, host, protocol string) (*tls.Conn, error)
	// Explain returns an error that says what is wrong with the keys for one of TLS, and others as
	// they are.
	Explain(err error) error
}

// The classes of errors, for errors.Is; an error of neither is any other failure. The programs' exit
// codes follow them. A run that was stopped and saved ends with runner.ErrStopped.
var (
	// ErrUsage is a mistake in the params, the environment or the choice of files.
	ErrUsage error = fault.Usage
	// ErrDamaged is corrupt or invalid data: records, checkpoints, exports.
	ErrDamaged error = fault.Damaged
)

// ErrPersistName reports that a name in Env.Persist is reserved for the run itself: metrics,
// graph, frozen_variables, best, early_stopping or plateau.
var ErrPersistName = errors.New("the name of a persistent state is reserved; use another name")

// addCallbacks adds the caller's actions and persistent states after those of the run.
func (e Env) addCallbacks(config *runner.Config) error {
	config.TrainActions = append(config.TrainActions, e.TrainActions...)
	config.EvalActions = append(config.EvalActions, e.EvalActions...)
	for _, name := range slices.Sorted(maps.Keys(e.Persist)) {
		if slices.Contains([]string{loop.MetricsState, loop.GraphState, loop.FrozenNames, loop.BestState, loop.StoppingState, loop.PlateauState}, name) {
			return fmt.Errorf("%w: %q", ErrPersistName, name)
		}
		config.Persist[name] = e.Persist[name]
	}
	return nil
}

// beginCallbacks resets the caller's persistent states for a new run.
func (e Env) beginCallbacks() error {
	for _, name := range slices.Sorted(maps.Keys(e.Persist)) {
		if err := e.Persist[name].Restore(nil); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
