package train

import (
	"io"
	"log/slog"

	"github.com/gorbit-ml/gorbit/internal/vfs"
	"github.com/gorbit-ml/gorbit/runner"
)

// Files of a run folder.
const (
	paramsFile = "params.yaml"
	dataFile   = "data.json"
	vocabFile  = "vocab.txt"
	initFile   = "init.txt"
)

// Env is what a run needs of the program around it.
type Env struct {
	// Out takes the lines that tell of progress, one Write each.
	Out io.Writer
	// Log takes everything else.
	Log *slog.Logger
	// Version of the program, for workers of other versions.
	Version string
	// Observer watches the steps, for a progress bar; nil for none.
	Observer runner.Observer
	// AllowOps names operations that reach beyond the graph and are let run all
	// the same, see graphs.Export.RefuseUnsafe.
	AllowOps []string

	// TrainActions run at the end of every loop of training, and EvalActions after every
	// evaluation, behind the run's own. What they return decides how the run goes on, see
	// runner.Action.
	TrainActions, EvalActions []runner.Action
	// Persist names states that are saved with every checkpoint and restored when the run
	// goes on; Restore(nil) begins a new run. See ErrPersistName.
	Persist map[string]runner.Persistent
}

// The run's own names of persistent states.
const (
	metricsState  = "metrics"
	graphState    = "graph"
	bestState     = "best"
	stoppingState = "early_stopping"
)

// replaceFile writes a file that is there whole or not at all.
func replaceFile(path string, content []byte) error {
	return vfs.ReplaceFile(vfs.At(path), path, path+".part", content)
}
