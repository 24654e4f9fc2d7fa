package prepare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/dataset"
	"github.com/gorbit-ml/gorbit/runner"
)

// SeekBatch moves to the position of the newest checkpoint before a step, and on from there where the
// position follows from the number of steps. It returns how many batches are still before that of the
// step.
func (s *Setup) SeekBatch(folder string, set *dataset.Dataset, step int64) (left int64, err error) {
	at, position := int64(0), set.State()
	manager, err := s.OpenManager(folder, true)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if err == nil {
		defer manager.Close()
		all, err := manager.All()
		if err != nil {
			return 0, err
		}
		for _, c := range all {
			if c.Step >= step || c.Step < at {
				continue
			}
			if saved, ok := positionIn(manager, c); ok {
				at, position = c.Step, saved
			}
		}
	}
	left = step - 1 - at
	if s.Params.Data.Rows == 0 && s.Params.Train.BatchWarmup == "" && s.Params.Train.OnNonFinite == "fail" && left > 0 {
		perEpoch := set.BatchesPerEpoch()
		size := int64(s.Params.Train.BatchSize)
		batches := position.Position/size + left
		position.Epoch += batches / perEpoch
		position.Position = batches % perEpoch * size
		left = 0
	}
	if err := set.Restore(position); err != nil {
		return 0, fmt.Errorf("the data are not those that the run was trained on: %w", err)
	}
	return left, nil
}

// positionIn returns the position in the training data that a checkpoint records.
func positionIn(manager *checkpoint.Manager, c checkpoint.Checkpoint) (position dataset.State, ok bool) {
	saved, err := manager.State(c)
	if err != nil || saved == nil {
		return position, false
	}
	state, err := runner.ParseRunState(saved)
	if err != nil {
		return position, false
	}
	var trainer runner.TrainerState
	ok = json.Unmarshal(state.Trainer, &trainer) == nil && json.Unmarshal(trainer.Position, &position) == nil
	return position, ok
}
