package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// An Action runs after a loop or an evaluation, with its outputs. An error that wraps
// ErrStopTraining ends the training successfully; one that wraps ErrStopped stops the run as a
// signal would; any other error ends the run as a failure after a checkpoint is saved.
type Action func(ctx context.Context, step int64, out Outputs) error

// runActions runs the actions in order. After an action that fails, the rest do not run; after one
// that asks to stop, they do.
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

// A Condition tests outputs.
type Condition func(step int64, out Outputs) (bool, error)

// When returns an action that runs the given actions, in order, if the condition holds (Orbit's
// ConditionalAction). It is for the caller's own actions in Config.TrainActions and
// Config.EvalActions.
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

// StopIf returns an action that stops the run, as a signal would, if check returns true (Orbit's
// SaveCheckpointIfPreempted). It is for the Config.TrainActions of callers whose machines announce
// their end by other means than a signal.
func StopIf(check func(context.Context) (reason string, stop bool)) Action {
	return func(ctx context.Context, step int64, out Outputs) error {
		if reason, stop := check(ctx); stop {
			return fmt.Errorf("%w: %s", ErrStopped, reason)
		}
		return nil
	}
}

// Better is the direction in which a metric gets better.
type Better int

// The two directions.
const (
	HigherIsBetter Better = iota
	LowerIsBetter
)

// better reports whether value is better than than by more than delta. NaN is never better;
// every other value is better than NaN.
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
	Value Number `json:"value"` // NaN before the first evaluation
	Step  int64  `json:"step"`
	Since int64  `json:"since"` // number of evaluations since then
	// Metric and Order describe the metric. States saved by older versions lack them.
	Metric string `json:"metric,omitempty"`
	Order  Better `json:"order,omitempty"`
}

func noBest() bestState { return bestState{Value: Number(math.NaN())} }

// restore restores a saved state. It ignores the state of another metric, unless metric is "".
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

// save returns the state as JSON, with the metric and its order.
func (s bestState) save(metric string, order Better) (json.RawMessage, error) {
	s.Metric, s.Order = metric, order
	return json.Marshal(s)
}

// NewBestMetric tracks the best value of a metric. Its Test is a Condition that holds if the value
// is strictly better than all before. Add it to Config.Persist to save the best value with the
// checkpoints.
type NewBestMetric struct {
	metric string
	order  Better
	best   bestState
}

// NewBest returns a NewBestMetric for a metric by name.
func NewBest(metric string, order Better) *NewBestMetric {
	return &NewBestMetric{metric: metric, order: order, best: noBest()}
}

// Best returns the best value and its step; ok is false if there is none yet.
func (b *NewBestMetric) Best() (value float64, step int64, ok bool) {
	return float64(b.best.Value), b.best.Step, !math.IsNaN(float64(b.best.Value))
}

// Test reports whether the outputs have a new best value. It does not record it.
func (b *NewBestMetric) Test(step int64, out Outputs) (bool, error) {
	value, err := out.get(b.metric)
	if err != nil {
		return false, err
	}
	return b.order.better(value, float64(b.best.Value), 0), nil
}

// Commit is an Action that records the value in the outputs if it is a new best. As the last action
// of When(best.Test, ...), it records the value only if the actions before it succeeded.
func (b *NewBestMetric) Commit(_ context.Context, step int64, out Outputs) error {
	ok, err := b.Test(step, out)
	if ok {
		b.best = bestState{Value: Number(out[b.metric]), Step: step}
	}
	return err
}

// State implements Persistent.
func (b *NewBestMetric) State() (json.RawMessage, error) { return b.best.save(b.metric, b.order) }

// Restore implements Persistent.
func (b *NewBestMetric) Restore(raw json.RawMessage) error {
	return b.best.restore(raw, b.metric, b.order)
}

// EarlyStopping ends training when a metric has not improved for a number of consecutive
// evaluations. Add its Check to Config.EvalActions and itself to Config.Persist.
type EarlyStopping struct {
	metric   string
	order    Better
	patience int64
	minDelta float64
	best     bestState
}

// NewEarlyStopping returns an EarlyStopping that ends training after patience consecutive
// evaluations (1 or more) in which the metric is not better than the best before by more than
// minDelta.
func NewEarlyStopping(metric string, order Better, patience int64, minDelta float64) (*EarlyStopping, error) {
	if patience < 1 {
		return nil, fmt.Errorf("early stopping: patience is %d; expected 1 or more", patience)
	}
	if !(minDelta >= 0) || math.IsInf(minDelta, 0) {
		return nil, fmt.Errorf("early stopping: minimum change is %v; expected a finite number, 0 or more", minDelta)
	}
	return &EarlyStopping{metric: metric, order: order, patience: patience, minDelta: minDelta, best: noBest()}, nil
}

// Check is an Action. It returns an error that wraps ErrStopTraining when patience runs out.
func (e *EarlyStopping) Check(_ context.Context, step int64, out Outputs) error {
	value, err := out.get(e.metric)
	if err != nil {
		return err
	}
	if e.order.better(value, float64(e.best.Value), e.minDelta) {
		e.best = bestState{Value: Number(value), Step: step}
		return nil
	}
	e.best.Since++
	if e.best.Since < e.patience {
		return nil
	}
	by := ""
	if e.minDelta > 0 {
		by = fmt.Sprintf(" by more than %s", pythonFloat(e.minDelta))
	}
	return fmt.Errorf("%w: %s is %s and has not improved on the %s of step %d%s in %d evaluations",
		ErrStopTraining, e.metric, pythonFloat(value), pythonFloat(float64(e.best.Value)), e.best.Step, by, e.best.Since)
}

// State implements Persistent.
func (e *EarlyStopping) State() (json.RawMessage, error) { return e.best.save(e.metric, e.order) }

// Restore implements Persistent.
func (e *EarlyStopping) Restore(raw json.RawMessage) error {
	return e.best.restore(raw, e.metric, e.order)
}
