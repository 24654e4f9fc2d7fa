package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// uneven is a model whose calls take times of their own, so that they end in
// another order than they began.
type uneven struct {
	batches int
	fail    int // the batch that fails; 0: none

	mu      sync.Mutex
	now     int // calls in flight
	most    int
	ended   []int
	next    int
	cancel  context.CancelFunc
	stopAt  int // the batch whose drawing stops the evaluation
	metrics []int64
}

func (u *uneven) Next(context.Context) (Batch[int], error) {
	if u.next == u.batches {
		return Batch[int]{}, io.EOF
	}
	u.next++
	if u.next == u.stopAt {
		u.cancel()
	}
	return Batch[int]{Payload: u.next, Records: func() []string { return []string{"a record"} }}, nil
}

func (u *uneven) Evaluate(_ context.Context, batch int) (Sums, error) {
	u.mu.Lock()
	u.now++
	u.most = max(u.most, u.now)
	u.mu.Unlock()
	time.Sleep(time.Duration(1+batch%2*5) * time.Second)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now--
	u.ended = append(u.ended, batch)
	if batch == u.fail {
		return nil, errors.New("out of memory")
	}
	// A sum of floats that depends on the order of its terms.
	return Sums{LossSum: {[]float64{1e16, 1, -1e16}[batch%3]}, WeightSum: {1}}, nil
}

func (u *uneven) Begin(string, int64, int64) {}
func (u *uneven) Step(info StepInfo)         { u.metrics = append(u.metrics, info.Step) }
func (u *uneven) End()                       {}

func (u *uneven) evaluate(ctx context.Context, inFlight int) (Outputs, error) {
	open := func(context.Context) (BatchReader[int], error) { return u, nil }
	return NewStandardEvaluator[int](u, open, EvaluatorConfig{InFlight: inFlight, Observer: u}).Evaluate(ctx, UntilEnd)
}

func TestEvaluationsInFlight(t *testing.T) {
	var want Outputs
	for inFlight := range 5 {
		t.Run(fmt.Sprint(inFlight), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &uneven{batches: 11}
				out, err := u.evaluate(t.Context(), inFlight)
				if err != nil {
					t.Fatal(err)
				}
				if want == nil {
					want = out
				}
				if out.String() != want.String() {
					t.Errorf("outputs %v, want %v", out, want)
				}
				if u.most != max(1, inFlight) {
					t.Errorf("at most %d calls at a time, want %d", u.most, max(1, inFlight))
				}
				if inFlight > 1 && slices.IsSorted(u.ended) {
					t.Error("the calls ended in their order: the test shows nothing")
				}
				if len(u.metrics) != 11 || !slices.IsSorted(u.metrics) {
					t.Errorf("observed batches %v", u.metrics)
				}
			})
		})
	}
}

// TestEvaluationLeavesNoCall ends evaluations early: no call may continue after
// them, for the variables may change then.
func TestEvaluationLeavesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &uneven{batches: 11, fail: 4}
		if _, err := u.evaluate(t.Context(), 3); err == nil || !strings.Contains(err.Error(), "batch 4 on record a record: out of memory") {
			t.Errorf("error %v", err)
		}
		if u.now != 0 {
			t.Errorf("%d calls go on after an error", u.now)
		}

		u = &uneven{batches: 11, stopAt: 5}
		var ctx context.Context
		ctx, u.cancel = context.WithCancel(t.Context())
		if _, err := u.evaluate(ctx, 3); !errors.Is(err, ErrStopped) {
			t.Errorf("error %v, want ErrStopped", err)
		}
		if u.now != 0 {
			t.Errorf("%d calls go on after a stop", u.now)
		}
	})
}
