package runner

import (
	"github.com/gorbit-ml/gorbit/internal/fault"

	"context"
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrStopped says that a run ended because its context was cancelled (a
	// signal, a time limit) or an action asked for it, with the state saved
	// where there is a Checkpointer. The same command continues the run.
	ErrStopped error = fault.Stopped
	// ErrEndOfData says that the data ended before the steps asked for. The
	// steps done are valid.
	ErrEndOfData = errors.New("end of data")
	// ErrStopTraining is returned (wrapped, with the reason) by an action to end
	// training as if the last step had been reached: final evaluation,
	// checkpoint, no error.
	ErrStopTraining = errors.New("stopping early")
	// ErrNoCheckpoint says that no checkpoint appeared in time.
	ErrNoCheckpoint = errors.New("no checkpoint")
)

// NonFiniteError says that a step gave a loss or a gradient that is no finite
// number, or that the graph declined to apply the update.
type NonFiniteError struct {
	Step         int64    // the step that the update would have been
	Loss         float64  // mean loss of the batch
	GradientNorm float64  // global norm of its gradient
	Records      []string // where the examples of the batch came from
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
	return what + " on " + recordList(e.Records)
}

// CountError says that the graph's own counter of updates is not where the
// update just run should have put it.
type CountError struct {
	Got, Want int64
}

func (e *CountError) Error() string {
	return fmt.Sprintf("the graph counts %d updates where the run counts %d", e.Got, e.Want)
}

// InputError says that reading a batch failed. The model is as it was after
// step Step, so the run can be saved there.
type InputError struct {
	Step int64
	Err  error
}

func (e *InputError) Error() string { return fmt.Sprintf("input after step %d: %v", e.Step, e.Err) }

// Unwrap returns the source's error.
func (e *InputError) Unwrap() error { return e.Err }

// recordList names the records of a batch, the first few where there are many.
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

// stopError gives ErrStopped with the reason once ctx is done, and nil before.
func stopError(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrStopped, context.Cause(ctx))
}

// asStop turns an error that ctx brought about into an ErrStopped, and leaves
// every other error as it is.
func asStop(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, ErrStopped) {
		return err
	}
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return stopError(ctx)
	}
	return err
}
