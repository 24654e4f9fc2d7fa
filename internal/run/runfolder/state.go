package runfolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/runner"
)

// Running is the state of a run that a process trains now. The others are the outcomes of the last
// process: one that was killed counts as stopped.
const Running Outcome = "running"

// saved is what the newest checkpoint of a run says of the run.
type saved struct {
	step  int64
	steps int64 // of the whole run; 0 if it is not known
	early string
	done  bool
	best  struct {
		Metric string        `json:"metric"`
		Order  runner.Better `json:"order"`
	}
}

// Newest returns the prefix of the newest checkpoint of a run and the run's state in it, which is in
// the given variable, or in checkpoint.StateVariable if the name is "". The prefix is "" if there is none,
// or one that another program wrote.
func Newest(folder, variable string) (prefix string, state runner.RunState, err error) {
	prefix, state, _, err = newest(folder, variable)
	return prefix, state, err
}

// newest returns what Newest does, and newer checkpoints that are damaged.
func newest(folder, variable string) (prefix string, state runner.RunState, damaged []checkpoint.Skipped, err error) {
	manager, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: filepath.Join(folder, Checkpoints), State: variable, ReadOnly: true})
	if errors.Is(err, fs.ErrNotExist) {
		return "", state, damaged, nil
	}
	if err != nil {
		return "", state, damaged, err
	}
	defer manager.Close()
	latest, damaged, err := manager.LatestOf()
	if errors.Is(err, checkpoint.ErrNoCheckpoint) {
		return "", state, damaged, nil
	}
	if err != nil {
		return "", state, damaged, err
	}
	raw, err := manager.State(latest)
	if err != nil || raw == nil {
		return "", state, damaged, err
	}
	if state, err = runner.ParseRunState(raw); err != nil {
		return "", state, damaged, fmt.Errorf("checkpoint %s: %w", latest.Prefix, err)
	}
	return latest.Prefix, state, damaged, nil
}

// readSaved reads the state in the newest checkpoint of a run; nil if there is none. It also returns the newer
// checkpoints that are damaged, as far as their indexes and the sizes of their files show it.
func readSaved(folder string) (*saved, []checkpoint.Skipped, error) {
	prefix, state, damaged, err := newest(folder, "")
	if err != nil || prefix == "" {
		return nil, damaged, err
	}
	s := &saved{step: state.Step}
	var trainer runner.TrainerState
	if json.Unmarshal(state.Trainer, &trainer) == nil {
		s.steps = trainer.Schedule.TotalSteps
	}
	if state.StoppedEarly != nil {
		s.early = state.StoppedEarly.Reason
	}
	s.done = s.steps > 0 && state.Complete(s.steps, state.Evaluated != nil)
	_ = json.Unmarshal(state.Persistent["best"], &s.best) // a run without one has none
	return s, damaged, nil
}

// tellState sets the state of a run, and why it is that.
func (r *Run) tellState(s *saved) {
	if s != nil {
		r.Steps, r.Early = s.steps, s.early
		r.Saved = s.step
		if s.best.Metric != "" {
			r.Best.Metric, r.Best.Mode = s.best.Metric, modeOf(s.best.Order)
		}
	}
	var last *Process
	if n := len(r.Processes); n > 0 {
		last = &r.Processes[n-1]
		r.Steps = last.Start.Steps
		if last.Start.Best != "" {
			r.Best.Metric, r.Best.Mode = last.Start.Best, last.Start.Mode
		}
	}
	holder, err := checkpoint.Holder(r.Folder)
	if err != nil {
		r.Problems = append(r.Problems, fmt.Sprintf("cannot see whether a process trains now: %v", err))
	}
	switch {
	case holder != nil:
		r.State = Running
		r.Reason = fmt.Sprintf("process %d on %s trains since %s", holder.PID, holder.Host, holder.Since.Format(time.DateTime))
		if holder.PID == 0 {
			r.Reason = "a process trains"
		}
	case last != nil && last.End != nil:
		r.State, r.Reason = last.End.Outcome, last.End.Error
		if r.State == Finished {
			r.Reason = r.Early
		}
	case last != nil:
		r.State, r.Reason = Stopped, "the process that trained was killed, or its machine was"
	case s != nil && s.done:
		r.State, r.Reason = Finished, r.Early
	default:
		r.State = Stopped
	}
}

func modeOf(b runner.Better) string {
	if b == runner.LowerIsBetter {
		return "min"
	}
	return "max"
}

// time sums the times of the processes that trained. Of one that has no end it is known only until
// when it wrote metrics.
func (r *Run) time(now time.Time) {
	path := filepath.Join(r.Folder, Metrics)
	info, err := vfs.Stat(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.Problems = append(r.Problems, err.Error())
		}
	} else {
		r.Written = info.ModTime()
	}
	for i, p := range r.Processes {
		end := r.Written
		switch {
		case p.End != nil:
			r.Seconds += p.End.Seconds
			r.PeakMemoryMiB = max(r.PeakMemoryMiB, p.End.PeakMemoryMiB)
			continue
		case i+1 < len(r.Processes): // killed
			end = p.Start.Time
		case r.State == Running:
			end = now
		}
		r.Seconds += max(p.seconds(), end.Sub(p.Start.Time).Seconds())
	}
}
