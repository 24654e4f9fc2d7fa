package runner

import (
	"encoding/json"
	"fmt"
)

// stateVersion is the version of RunState that this package writes. It can read all earlier
// versions.
const stateVersion = 1

// RunState is the state of a run. It is saved with each checkpoint, as JSON.
type RunState struct {
	Version int   `json:"version"`
	Step    int64 `json:"step"`
	// Trainer is the trainer's own state: for a StandardTrainer, a TrainerState (data position,
	// epoch, seed, schedule, the sums of an open loop).
	Trainer json.RawMessage `json:"trainer,omitempty"`
	// Evaluated is the last complete evaluation.
	Evaluated *Evaluation `json:"evaluated,omitempty"`
	// Rollbacks counts how often the run went back to a checkpoint.
	Rollbacks int64 `json:"rollbacks,omitempty"`
	// StoppedEarly is set if an action ended training.
	StoppedEarly *EarlyStop `json:"stopped_early,omitempty"`
	// Interrupted is set in a checkpoint that was saved because the run stopped, not because one
	// was due.
	Interrupted *Interrupted `json:"interrupted,omitempty"`
	// Persistent holds the states of Config.Persist, such as the best metric.
	Persistent map[string]json.RawMessage `json:"persistent,omitempty"`
}

// NewRunState returns the state of a run that has made no step.
func NewRunState() RunState {
	return RunState{Version: stateVersion, Persistent: make(map[string]json.RawMessage)}
}

// Complete reports whether a run that trains until the given step is complete. evaluates says
// whether it ends with an evaluation.
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

// Evaluation is the result of an evaluation.
type Evaluation struct {
	Step    int64   `json:"step"`
	Outputs Outputs `json:"outputs"`
}

// EarlyStop records why training ended before its last step, Total. It no longer applies if another
// last step is requested.
type EarlyStop struct {
	Reason string `json:"reason"`
	Total  int64  `json:"total"`
}

// Interrupted is additional state in a checkpoint that was saved because the run stopped.
type Interrupted struct {
	RollbackTo string `json:"rollback_to,omitempty"` // path of the last checkpoint that was due, if any
}

// ParseRunState parses the state saved with a checkpoint. It returns an error if the JSON, the
// version or the step is invalid.
func ParseRunState(b []byte) (RunState, error) {
	var s RunState
	if err := json.Unmarshal(b, &s); err != nil {
		return RunState{}, fmt.Errorf("run state: %w", err)
	}
	if s.Version < 1 || s.Version > stateVersion {
		return RunState{}, fmt.Errorf("run state: version is %d; expected 1 to %d, which this program can read", s.Version, stateVersion)
	}
	if s.Step < 0 {
		return RunState{}, fmt.Errorf("run state: step is %d; expected 0 or more", s.Step)
	}
	return s, nil
}

// Persistent is implemented by values whose state is saved with the run, such as the best metric so
// far.
type Persistent interface {
	// State returns the current state.
	State() (json.RawMessage, error)
	// Restore restores a saved state; nil is the state at the beginning of a run.
	Restore(json.RawMessage) error
}
