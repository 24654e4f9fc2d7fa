package runner

import (
	"github.com/gorbit-ml/gorbit/internal/base/fault"

	"context"
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrStopped reports that a run ended because its context was cancelled (a signal, a time
	// limit) or because an action stopped it. The state was saved if there is a Checkpointer, and
	// the same command continues the run.
	ErrStopped error = fault.Stopped
	// ErrEndOfData reports that the data ended before the requested number of steps. The steps
	// made so far are valid.
	ErrEndOfData = errors.New("end of data")
	// ErrStopTraining is returned by an action, wrapped with the reason, to end training as if the
	// last step had been reached: with the final evaluation, a checkpoint, and no error.
	ErrStopTraining = errors.New("stopping early")
	// ErrNoCheckpoint reports that no checkpoint appeared within the timeout.
	ErrNoCheckpoint = errors.New("no checkpoint")
)

// NonFiniteError reports that a step had a loss or gradient that is not finite, or that the graph
// did not apply the update.
type NonFiniteError struct {
	Step         int64    // number of the step, had the update been applied
	Loss         float64  // mean loss of the batch
	GradientNorm float64  // global norm of the gradient
	Records      []string // names of the records in the batch
	Cause        string   // what TrainerConfig.Explain found; "" if nobody looked
}

func (e *NonFiniteError) Error() string { return fmt.Sprintf("step %d: %s", e.Step, e.detail()) }

func (e *NonFiniteError) detail() string {
	var what string
	switch lossOK, normOK := finite(e.Loss), finite(e.GradientNorm); {
	case !lossOK && !normOK:
		what = fmt.Sprintf("loss is %s and gradient norm is %s", pythonFloat(e.Loss), pythonFloat(e.GradientNorm))
	case !lossOK:
		what = "loss is " + pythonFloat(e.Loss)
	case !normOK:
		what = "gradient norm is " + pythonFloat(e.GradientNorm)
	default:
		what = "the graph did not apply the update"
	}
	if what += " on " + recordList(e.Records); e.Cause != "" {
		what += "; " + e.Cause
	}
	return what
}

// CountError reports that the graph's counter of updates does not match the run's.
type CountError struct {
	Got, Want int64
}

func (e *CountError) Error() string {
	return fmt.Sprintf("the graph's counter of updates is %d; expected %d", e.Got, e.Want)
}

// InputError reports that reading a batch failed. The model is unchanged since step Step, so the
// run can be saved.
type InputError struct {
	Step int64
	Err  error
}

func (e *InputError) Error() string { return fmt.Sprintf("input after step %d: %v", e.Step, e.Err) }

// Unwrap returns the source's error.
func (e *InputError) Unwrap() error { return e.Err }

// recordList returns the names of the records of a batch, or the first few if there are many.
func recordList(records []string) string {
	const most = 8
	switch n := len(records); {
	case n == 0:
		return "a batch of unknown records"
	case n == 1:
		return "record " + records[0]
	case n <= most:
		return "records " + strings.Join(records, ", ")
	default:
		return fmt.Sprintf("records %s and %d more", strings.Join(records[:most], ", "), n-most)
	}
}

// stopError returns ErrStopped with the reason if ctx is done, otherwise nil.
func stopError(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrStopped, context.Cause(ctx))
}

// asStop converts an error caused by the cancellation of ctx into ErrStopped. It returns other
// errors unchanged.
func asStop(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, ErrStopped) {
		return err
	}
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return stopError(ctx)
	}
	return err
}
