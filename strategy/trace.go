package strategy

import (
	"context"
	"sync"
	"time"

	tf "github.com/wamuir/graft/tensorflow"
	sspb "github.com/wamuir/graft/tensorflow/core/framework/step_stats_go_proto"

	"github.com/gorbit-ml/gorbit/internal/exec/capi"
)

// Trace is what TensorFlow says of the calls that are made with a context of WithTrace.
type Trace struct {
	mu    sync.Mutex
	calls []TracedCall
}

// TracedCall is a call of a session.
type TracedCall struct {
	// Began and Ended are when the call was made, by this process's clock.
	Began, Ended time.Time
	// Stats are the operations that ran, by device. Their times are nanoseconds since 1970 by the clock
	// of the device's machine.
	Stats *sspb.StepStats
}

// Calls returns the calls so far, in the order in which they ended.
func (t *Trace) Calls() []TracedCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls
}

func (t *Trace) add(c TracedCall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, c)
}

type traceKey struct{}

// WithTrace returns a context whose calls of sessions are traced. They compute the same, and take longer.
// Calls of TPUs are programs of their own, of which the trace has nothing but the call.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// runTraced runs a session, with a trace if the context has one.
func runTraced(ctx context.Context, on *tf.Session, feeds map[tf.Output]*tf.Tensor, fetches []tf.Output, targets []*tf.Operation) ([]*tf.Tensor, error) {
	t, _ := ctx.Value(traceKey{}).(*Trace)
	if t == nil {
		return on.Run(feeds, fetches, targets)
	}
	began := time.Now()
	out, stats, err := capi.Traced(on, feeds, fetches, targets)
	if err == nil {
		t.add(TracedCall{began, time.Now(), stats})
	}
	return out, err
}
