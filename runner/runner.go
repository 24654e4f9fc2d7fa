package runner

import (
	"context"
	"encoding/json"
	"time"
)

// UntilEnd as a number of steps means until the data ends.
const UntilEnd int64 = -1

// A Trainer runs optimizer updates.
type Trainer interface {
	// Step returns the global step: the number of updates applied so far.
	Step() int64
	// Train runs the given number of updates and closes the loop; its outputs cover everything
	// since the last loop was closed. If ctx is done between two steps, it returns ErrStopped and
	// leaves the loop open for the next call to continue. If the data ends, it closes the loop and
	// returns ErrEndOfData.
	Train(ctx context.Context, steps int64) (Loop, error)
	// State returns the state for Restore, without the model's variables.
	State() (json.RawMessage, error)
	// Restore continues from a state saved at the given step. If the state is nil, it starts at
	// the beginning of the data. If keepInput is set, the data continues after the last batch read
	// and does not go back to the position in the state.
	Restore(step int64, state json.RawMessage, keepInput bool) error
}

// Loop is the result of one call of Trainer.Train.
type Loop struct {
	// Steps, Examples and Tokens count the steps of this call and what they trained on.
	Steps, Examples, Tokens int64
	// Outputs holds the metrics of the closed loop; nil if it was left open or is empty.
	Outputs Outputs
	// InModel is the time for which the model's graph ran in this call; 0 if the trainer does not
	// report it.
	InModel time.Duration
}

// Times reports how the training time was spent.
type Times struct {
	// Training is the total time without evaluations: input, steps, reports, and waiting for
	// checkpoints to be saved.
	Training time.Duration
	// InLoops is the part of Training spent in loops, on input and steps. Rates are relative to
	// it.
	InLoops time.Duration
	// InModel is the part of InLoops for which the model's graph ran.
	InModel time.Duration
}

// Overhead returns the share of the training time in which the model's graph did not run, from 0
// to 1.
func (t Times) Overhead() float64 {
	if t.Training <= 0 {
		return 0
	}
	return float64(t.Training-t.InModel) / float64(t.Training)
}

// An Evaluator evaluates the current model. If steps is below 0, it evaluates all of the data.
type Evaluator interface {
	Evaluate(ctx context.Context, steps int64) (Outputs, error)
}

// A Checkpointer saves and restores the model's variables together with the state of the run. A
// checkpoint becomes visible only when it is complete.
type Checkpointer interface {
	// Save saves the current variables. It returns as soon as training may continue; the channel
	// (buffered, one value) reports when the checkpoint is complete. Save is not called again
	// before that value is received. An existing checkpoint of the step is replaced. An
	// implementation that saves before it returns can use SavedNow.
	Save(ctx context.Context, step int64, state []byte) (<-chan Saved, error)
	// Latest returns the path of the newest complete checkpoint, or "" if there is none.
	Latest(ctx context.Context) (string, error)
	// Restore restores the checkpoint with the given path. If path is "", it restores the newest
	// undamaged checkpoint; a Restored without a Path means that there is none. If the checkpoint
	// does not exist, the error is an fs.ErrNotExist.
	Restore(ctx context.Context, path string) (Restored, error)
	// DiscardAfter deletes the checkpoints of steps after the given one, because training went
	// back to it.
	DiscardAfter(ctx context.Context, step int64) error
}

// Saved is the result of a save: the path of a complete checkpoint, or an error.
type Saved struct {
	Path string
	Err  error
}

// SavedNow returns a channel for Checkpointer.Save when the save is already complete. It is for the
// caller's own Checkpointers that do not save in the background.
func SavedNow(path string, err error) <-chan Saved {
	ch := make(chan Saved, 1)
	ch <- Saved{path, err}
	return ch
}

// Restored describes a checkpoint whose variables the model now holds.
type Restored struct {
	Path  string
	Step  int64  // the restored value of the graph's counter of updates
	State []byte // the state passed to Save; empty if another program wrote the checkpoint
}

// Summaries receives scalars for TensorBoard.
type Summaries interface {
	Scalar(tag string, step int64, value float64)
	Flush() error
	// Restart is called when training goes back. step is the first step that is repeated. (After a
	// process restarts, whoever opens the files must remove later steps.)
	Restart(step int64)
}

// Phases that an Observer is told about.
const (
	PhaseTrain = "train"
	PhaseEval  = "eval"
)

// An Observer watches a run step by step, for example to show a progress bar. Begin and End nest:
// an evaluation may run within training.
type Observer interface {
	// Begin starts a phase at a step. total is the last step, or below 0 if unknown.
	Begin(phase string, step, total int64)
	// Step reports one completed step of the innermost phase.
	Step(StepInfo)
	// End ends the innermost phase.
	End()
}

// StepInfo describes one completed step.
type StepInfo struct {
	Step             int64 // global step, or the number of the batch in an evaluation
	Epoch            int64
	Examples, Tokens int     // examples and tokens of this step
	Loss             float64 // mean loss of the loop so far
}

type noObserver struct{}

func (noObserver) Begin(string, int64, int64) {}
func (noObserver) Step(StepInfo)              {}
func (noObserver) End()                       {}
