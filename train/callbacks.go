package train

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gorbit-ml/gorbit/runner"
)

// ErrPersistName says that a name in Env.Persist is one of the run's own: metrics, graph,
// best or early_stopping.
var ErrPersistName = errors.New("the run itself has a persistent state of that name: use another one")

// addCallbacks adds the caller's actions and persistent states behind those of the run.
func (e Env) addCallbacks(config *runner.Config) error {
	config.TrainActions = append(config.TrainActions, e.TrainActions...)
	config.EvalActions = append(config.EvalActions, e.EvalActions...)
	for _, name := range slices.Sorted(maps.Keys(e.Persist)) {
		if slices.Contains([]string{metricsState, graphState, bestState, stoppingState}, name) {
			return fmt.Errorf("%w: %q", ErrPersistName, name)
		}
		config.Persist[name] = e.Persist[name]
	}
	return nil
}

// beginCallbacks tells the caller's persistent states that a run begins.
func (e Env) beginCallbacks() error {
	for _, name := range slices.Sorted(maps.Keys(e.Persist)) {
		if err := e.Persist[name].Restore(nil); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
