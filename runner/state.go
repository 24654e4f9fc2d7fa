package runner

import (
	"encoding/json"
	"fmt"
)

// stateVersion is the version of RunState that this package writes. It reads
// every version up to it.
const stateVersion = 1

// RunState is the state of a run that is saved with each checkpoint, as JSON.
type RunState struct {
	Version int   `json:"version"`
	Step    int64 `json:"step"`
	// Trainer is the trainer's own state: a TrainerState (data position, epoch,
	// seed, schedule, the sums of an open loop) for a StandardTrainer.
	Trainer json.RawMessage `json:"trainer,omitempty"`
	// Evaluated is the last complete evaluation.
	Evaluated *Evaluation `json:"evaluated,omitempty"`
	// Rollbacks counts how often the run went back to a checkpoint.
	Rollbacks int64 `json:"rollbacks,omitempty"`
	// StoppedEarly is set where an action ended training.
	StoppedEarly *EarlyStop `json:"stopped_early,omitempty"`
	// Interrupted is set in a checkpoint that was saved because the run stopped,
	// and not because one was due.
	Interrupted *Interrupted `json:"interrupted,omitempty"`
	// Persistent holds the states of Config.Persist, such as the best metric.
	Persistent map[string]json.RawMessage `json:"persistent,omitempty"`
}

// Complete reports whether nothing is left to do for a run that trains until the given
// step, with an evaluation at the end or without any.
func (s RunState) Complete(steps int64, evaluates bool) bool {
	if s.StoppedEarly != nil && s.StoppedEarly.Total == steps {
		return true
	}
	at := position{step: s.Step, evaluated: -1, saved: s.Step}
	if s.Evaluated != nil {
		at.evaluated = s.Evaluated.Step
	}
	return plan{total: steps, evaluates: evaluates, saves: true}.next(at) == workDone
}

// Evaluation is the outcome of an evaluation.
type Evaluation struct {
	Step    int64   `json:"step"`
	Outputs Outputs `json:"outputs"`
}

// EarlyStop says why training ended before its last step. It holds until
// another last step is asked for.
type EarlyStop struct {
	Reason string `json:"reason"`
	Total  int64  `json:"total"`
}

// Interrupted is what a checkpoint saved at a stop adds.
type Interrupted struct {
	RollbackTo string `json:"rollback_to,omitempty"` // the last checkpoint that was due, if any
}

// ParseRunState reads the state saved with a checkpoint.
func ParseRunState(b []byte) (RunState, error) {
	var s RunState
	if err := json.Unmarshal(b, &s); err != nil {
		return RunState{}, fmt.Errorf("run state: %w", err)
	}
	if s.Version < 1 || s.Version > stateVersion {
		return RunState{}, fmt.Errorf("run state: version %d, and this program knows 1 to %d", s.Version, stateVersion)
	}
	if s.Step < 0 {
		return RunState{}, fmt.Errorf("run state: step %d: want 0 or more", s.Step)
	}
	return s, nil
}

// Persistent is something with a state that belongs to the run, such as the
// best metric so far.
type Persistent interface {
	State() (json.RawMessage, error)
	// Restore goes back to a state; nil is the state at the beginning of a run.
	Restore(json.RawMessage) error
}
