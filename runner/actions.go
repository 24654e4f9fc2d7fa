package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// An Action is run with the outputs of a loop or of an evaluation. An error
// that wraps ErrStopTraining ends training well, one that wraps ErrStopped
// stops the run as a signal would; any other ends it as a failure, after a
// checkpoint was saved.
type Action func(ctx context.Context, step int64, out Outputs) error

// runActions runs every action. One that fails keeps the later ones from
// running; one that asks to stop does not.
func runActions(ctx context.Context, actions []Action, step int64, out Outputs) error {
	var stop error
	for _, action := range actions {
		err := action(ctx, step, out)
		if errors.Is(err, ErrStopTraining) || errors.Is(err, ErrStopped) {
			stop = errors.Join(stop, err)
		} else if err != nil {
			return err
		}
	}
	return stop
}

// A Condition decides on outputs.
type Condition func(step int64, out Outputs) (bool, error)

// When runs the actions, in order, where the condition holds (Orbit's
// ConditionalAction).
func When(condition Condition, actions ...Action) Action {
	return func(ctx context.Context, step int64, out Outputs) error {
		ok, err := condition(step, out)
		if err != nil || !ok {
			return err
		}
		for _, action := range actions {
			if err := action(ctx, step, out); err != nil {
				return err
			}
		}
		return nil
	}
}

// StopIf stops the run, as a signal would, where check gives a reason (Orbit's
// SaveCheckpointIfPreempted): for machines that announce their end by other
// means than a signal.
func StopIf(check func(context.Context) (reason string, stop bool)) Action {
	return func(ctx context.Context, step int64, out Outputs) error {
		if reason, stop := check(ctx); stop {
			return fmt.Errorf("%w: %s", ErrStopped, reason)
		}
		return nil
	}
}

// Better says which of two values of a metric is the better one.
type Better int

// The two directions.
const (
	HigherIsBetter Better = iota
	LowerIsBetter
)

// better reports whether a is better than b by more than delta. NaN is never
// better than anything, and everything else is better than NaN.
func (b Better) better(value, than, delta float64) bool {
	switch {
	case math.IsNaN(value):
		return false
	case math.IsNaN(than):
		return true
	case b == LowerIsBetter:
		return value < than-delta
	default:
		return value > than+delta
	}
}

// bestState is the best value of a metric so far.
type bestState struct {
	Value number `json:"value"` // NaN before the first
	Step  int64  `json:"step"`
	Since int64  `json:"since"` // evaluations since without a better one
	// Metric and Order say what the value is of. States of old do not say it.
	Metric string `json:"metric,omitempty"`
	Order  Better `json:"order,omitempty"`
}

func noBest() bestState { return bestState{Value: number(math.NaN())} }

// restore goes back to a state. The best value of another metric says nothing of this one;
// metric "" takes any.
func (s *bestState) restore(raw json.RawMessage, metric string, order Better) error {
	*s = noBest()
	if raw == nil {
		return nil
	}
	saved := noBest()
	if err := json.Unmarshal(raw, &saved); err != nil {
		return err
	}
	if saved.Metric == "" || metric == "" || saved.Metric == metric && saved.Order == order {
		*s = saved
	}
	return nil
}

// save returns the state with what it is of.
func (s bestState) save(metric string, order Better) (json.RawMessage, error) {
	s.Metric, s.Order = metric, order
	return json.Marshal(s)
}

// NewBestMetric is a condition that holds for outputs in which a metric is
// strictly better than ever before. List it in Config.Persist and its best
// value lives with the checkpoints.
type NewBestMetric struct {
	metric string
	order  Better
	best   bestState
}

// NewBest returns the condition for a metric by name.
func NewBest(metric string, order Better) *NewBestMetric {
	return &NewBestMetric{metric: metric, order: order, best: noBest()}
}

// Best returns the best value and its step; ok is false before the first.
func (b *NewBestMetric) Best() (value float64, step int64, ok bool) {
	return float64(b.best.Value), b.best.Step, !math.IsNaN(float64(b.best.Value))
}

// Test reports whether the outputs hold a new best value, without recording it.
func (b *NewBestMetric) Test(step int64, out Outputs) (bool, error) {
	value, err := out.get(b.metric)
	if err != nil {
		return false, err
	}
	return b.order.better(value, float64(b.best.Value), 0), nil
}

// Commit is an Action that records the outputs' value where it is a new best.
// As the last of the actions of When(best.Test, ...), it records only what the
// actions before it have dealt with.
func (b *NewBestMetric) Commit(_ context.Context, step int64, out Outputs) error {
	ok, err := b.Test(step, out)
	if ok {
		b.best = bestState{Value: number(out[b.metric]), Step: step}
	}
	return err
}

// State implements Persistent.
func (b *NewBestMetric) State() (json.RawMessage, error) { return b.best.save(b.metric, b.order) }

// Restore implements Persistent.
func (b *NewBestMetric) Restore(raw json.RawMessage) error {
	return b.best.restore(raw, b.metric, b.order)
}

// EarlyStopping ends training when a metric has not got better for a number of
// evaluations in a row. Give its Check to Config.EvalActions and itself to
// Config.Persist.
type EarlyStopping struct {
	metric   string
	order    Better
	patience int64
	minDelta float64
	best     bestState
}

// NewEarlyStopping returns an action that allows patience evaluations in a row
// (1 or more) in which the metric is not better than the best before by more
// than minDelta.
func NewEarlyStopping(metric string, order Better, patience int64, minDelta float64) (*EarlyStopping, error) {
	if patience < 1 {
		return nil, fmt.Errorf("early stopping: patience %d: want 1 or more", patience)
	}
	if !(minDelta >= 0) || math.IsInf(minDelta, 0) {
		return nil, fmt.Errorf("early stopping: smallest change %v: want a finite number, 0 or more", minDelta)
	}
	return &EarlyStopping{metric: metric, order: order, patience: patience, minDelta: minDelta, best: noBest()}, nil
}

// Check is the Action.
func (e *EarlyStopping) Check(_ context.Context, step int64, out Outputs) error {
	value, err := out.get(e.metric)
	if err != nil {
		return err
	}
	if e.order.better(value, float64(e.best.Value), e.minDelta) {
		e.best = bestState{Value: number(value), Step: step}
		return nil
	}
	e.best.Since++
	if e.best.Since < e.patience {
		return nil
	}
	return fmt.Errorf("%w: %s is %s and has not got better than the %s of step %d in %d evaluations",
		ErrStopTraining, e.metric, pythonFloat(value), pythonFloat(float64(e.best.Value)), e.best.Step, e.best.Since)
}

// State implements Persistent.
func (e *EarlyStopping) State() (json.RawMessage, error) { return e.best.save(e.metric, e.order) }

// Restore implements Persistent.
func (e *EarlyStopping) Restore(raw json.RawMessage) error {
	return e.best.restore(raw, e.metric, e.order)
}
