package runner

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestRunActions(t *testing.T) {
	ctx := context.Background()
	var ran []string
	action := func(name string, err error) Action {
		return func(context.Context, int64, Outputs) error {
			ran = append(ran, name)
			return err
		}
	}
	failed := errors.New("failed")
	stop := []Action{action("a", nil), action("b", ErrStopTraining), action("c", nil)}
	if err := runActions(ctx, stop, 1, nil); !errors.Is(err, ErrStopTraining) || strings.Join(ran, "") != "abc" {
		t.Errorf("ran %v, error %v: want all, and the stop", ran, err)
	}
	ran = nil
	fail := []Action{action("a", ErrStopped), action("b", failed), action("c", nil)}
	if err := runActions(ctx, fail, 1, nil); err != failed || strings.Join(ran, "") != "ab" {
		t.Errorf("ran %v, error %v: want the failure to end it", ran, err)
	}
	ran = nil
	yes := func(int64, Outputs) (bool, error) { return true, nil }
	no := func(int64, Outputs) (bool, error) { return false, nil }
	broken := func(int64, Outputs) (bool, error) { return true, failed }
	if err := When(yes, action("a", nil), action("b", failed), action("c", nil))(ctx, 1, nil); err != failed || strings.Join(ran, "") != "ab" {
		t.Errorf("ran %v, error %v", ran, err)
	}
	ran = nil
	if err := When(no, action("a", nil))(ctx, 1, nil); err != nil || ran != nil {
		t.Errorf("ran %v, error %v", ran, err)
	}
	if err := When(broken, action("a", nil))(ctx, 1, nil); err != failed || ran != nil {
		t.Errorf("ran %v, error %v", ran, err)
	}
}

func TestNewBest(t *testing.T) {
	ctx := context.Background()
	nan := math.NaN()
	for _, c := range []struct {
		order  Better
		values []float64
		want   []int64 // steps (from 1) that are a new best
	}{
		{HigherIsBetter, []float64{0.5, 0.5, 0.4, 0.6, 0.6}, []int64{1, 4}},
		{LowerIsBetter, []float64{0.5, 0.5, 0.6, 0.4, 0.4}, []int64{1, 4}},
		{HigherIsBetter, []float64{nan, -1, nan, math.Inf(1), 5}, []int64{2, 4}},
		{LowerIsBetter, []float64{nan, nan}, nil},
	} {
		best := NewBest("f1", c.order)
		var got []int64
		for i, v := range c.values {
			step, out := int64(i+1), Outputs{"f1": v}
			ok, err := best.Test(step, out)
			if again, _ := best.Test(step, out); err != nil || again != ok {
				t.Errorf("testing twice gave %v and %v, %v", ok, again, err)
			}
			if ok {
				got = append(got, step)
			}
			if err := best.Commit(ctx, step, out); err != nil {
				t.Fatal(err)
			}
			if ok, _ := best.Test(step, out); ok {
				t.Errorf("step %d is a new best after it was recorded", step)
			}
			// Through a checkpoint and back.
			state, err := best.State()
			if err != nil {
				t.Fatal(err)
			}
			value, at, any := best.Best()
			best = NewBest("f1", c.order)
			if err := best.Restore(state); err != nil {
				t.Fatal(err)
			}
			if v2, at2, any2 := best.Best(); any2 != any || at2 != at || any && v2 != value {
				t.Errorf("restored as %v, %v, %v from %s", v2, at2, any2, state)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: new best at %v, want %v", c.values, got, c.want)
		}
	}
	best := NewBest("f1", HigherIsBetter)
	err := best.Commit(ctx, 1, Outputs{"loss": 1, "accuracy": 2})
	if err == nil || err.Error() != `metric "f1" is missing; the metrics are [accuracy loss]` {
		t.Errorf("error is %v", err)
	}
	if err := best.Commit(ctx, 3, Outputs{"f1": 0.5}); err != nil {
		t.Fatal(err)
	}
	if err := best.Restore(nil); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := best.Best(); ok {
		t.Error("the state before the first best has one")
	}
	if err := best.Restore(json.RawMessage(`{"value":"high"}`)); err == nil {
		t.Error("a bad state gave no error")
	}
}

func TestEarlyStopping(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		order    Better
		patience int64
		delta    float64
		values   []float64
		want     int64 // step (from 1) at which it stops, 0 for never
	}{
		{HigherIsBetter, 1, 0, []float64{0.1, 0.2, 0.2}, 3},
		{HigherIsBetter, 2, 0, []float64{0.1, 0.2, 0.2, 0.3, 0.3, 0.1}, 6},
		{LowerIsBetter, 2, 0, []float64{0.3, 0.2, 0.2, 0.1, 0.2, 0.05}, 0},
		{HigherIsBetter, 2, 0.05, []float64{0.10, 0.14, 0.16, 0.17, 0.18}, 5},
		{LowerIsBetter, 1, 0, []float64{math.NaN()}, 1},
		{LowerIsBetter, 2, 0, []float64{math.NaN(), 5, math.NaN(), 4}, 0},
	} {
		early, err := NewEarlyStopping("m", c.order, c.patience, c.delta)
		if err != nil {
			t.Fatal(err)
		}
		var stopped int64
		for i, v := range c.values {
			err := early.Check(ctx, int64(i+1), Outputs{"m": v})
			if errors.Is(err, ErrStopTraining) {
				stopped = int64(i + 1)
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			state, err := early.State()
			if err != nil {
				t.Fatal(err)
			}
			if early, err = NewEarlyStopping("m", c.order, c.patience, c.delta); err != nil {
				t.Fatal(err)
			}
			if err := early.Restore(state); err != nil {
				t.Fatal(err)
			}
		}
		if stopped != c.want {
			t.Errorf("%+v: stopped at %d", c, stopped)
		}
	}
	for _, bad := range []struct {
		patience int64
		delta    float64
	}{{0, 0}, {1, -1}, {1, math.NaN()}, {1, math.Inf(1)}} {
		if _, err := NewEarlyStopping("m", HigherIsBetter, bad.patience, bad.delta); err == nil {
			t.Errorf("%+v gave no error", bad)
		}
	}
	delta, err := NewEarlyStopping("m", HigherIsBetter, 1, 0.05)
	if err == nil {
		err = delta.Check(ctx, 1, Outputs{"m": 0.5})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := delta.Check(ctx, 2, Outputs{"m": 0.52}); err == nil || !strings.HasSuffix(err.Error(), "m is 0.52 and has not improved on the 0.5 of step 1 by more than 0.05 in 1 evaluations") {
		t.Errorf("stopped by %v", err)
	}
	early, err := NewEarlyStopping("m", HigherIsBetter, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := early.Check(ctx, 1, Outputs{"loss": 1}); err == nil || errors.Is(err, ErrStopTraining) {
		t.Errorf("a metric that is not there gave %v", err)
	}
}
