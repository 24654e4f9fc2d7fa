package train

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// ErrPersistName reports that a name in Env.Persist is reserved for the run itself: metrics,
// graph, frozen_variables, best or early_stopping.
var ErrPersistName = errors.New("the name of a persistent state is reserved; use another name")

// addCallbacks adds the caller's actions and persistent states after those of the run.
func (e Env) addCallbacks(config *runner.Config) error {
	config.TrainActions = append(config.TrainActions, e.TrainActions...)
	config.EvalActions = append(config.EvalActions, e.EvalActions...)
	for _, name := range slices.Sorted(maps.Keys(e.Persist)) {
		if slices.Contains([]string{loop.MetricsState, loop.GraphState, loop.FrozenNames, loop.BestState, loop.StoppingState}, name) {
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
