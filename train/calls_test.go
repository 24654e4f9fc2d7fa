package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// A run ends in the same bits for any number of steps per call, on one device and on two, also if it
// is stopped and continues with another number.
func TestStepsPerCall(t *testing.T) {
	long(t)
	for _, test := range []struct {
		devices string
		calls   int
	}{{"", 20}, {"cpu:2", 5}} {
		t.Run(fmt.Sprint(test.devices, " ", test.calls), func(t *testing.T) {
			p := testParams(t)
			p.Train.StepsPerLoop, p.Train.EvalInterval, p.Checkpoint.Interval = 10, 14, 9
			p.Train.Steps, p.Strategy.Devices = 25, test.devices
			single, run := filepath.Join(t.TempDir(), "single"), filepath.Join(t.TempDir(), "run")
			mustTrain(t, p, single)
			p.Train.StepsPerCall = test.calls
			stopAt(t, p, run, 12)
			if _, step := final(t, run); step != 14 {
				t.Errorf("stopped within the call that ends with step 14, the evaluation, saved step %d", step)
			}
			p.Train.StepsPerCall = 3
			mustTrain(t, p, run)
			sameRuns(t, run, single)
		})
	}
}

// longCalls is a strategy that runs out of memory in calls of too many cells, as a loop on the device
// does, and in steps of too large micro-batches.
type longCalls struct {
	loop.Strategy
	calls      int // StepsPerCall
	all, micro int // cells that fit
	asked      []int
}

func (s *longCalls) Runtime() strategy.Runtime {
	r := s.Strategy.Runtime()
	r.StepsPerCall = s.calls
	return r
}

func (s *longCalls) Steps(ctx context.Context, steps []strategy.StepInput) ([]strategy.Result, error) {
	s.asked = append(s.asked, len(steps))
	all := 0
	for _, step := range steps {
		for _, micro := range step.Batches {
			all += cells(micro)
			if cells(micro) > s.micro {
				all = math.MaxInt32
			}
		}
	}
	if all > s.all {
		return nil, &strategy.OutOfMemoryError{Err: errors.New("OOM when allocating")}
	}
	return s.Strategy.Steps(ctx, steps)
}

// TestOutOfMemoryInCalls wants the steps of a run that has enough memory, of the same batches in the
// same order, from calls that do not fit.
func TestOutOfMemoryInCalls(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.BatchSize = 16
	for _, name := range []string{"hidden_dropout", "attention_dropout", "classifier_dropout"} {
		p.Optimizer.Hyperparameters[name] = 0
	}
	type outcome struct {
		losses, position string
		sums             []float64
		asked            []int
	}
	run := func(t *testing.T, calls, all, micro int) outcome {
		export, set := opened(t, p)
		s, err := strategy.NewOneDevice(t.Context(), export, "", strategy.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := loop.Initialize(t.Context(), s, export, loop.Init{}); err != nil {
			t.Fatal(err)
		}
		scalars, err := prepare.ScalarsOf(p, export.Contract)
		if err != nil {
			t.Fatal(err)
		}
		small := &longCalls{Strategy: s, calls: calls, all: all, micro: micro}
		var seen losses
		trainer, err := runner.NewStandardTrainer(loop.NewModel(small, scalars, nil), runner.Source[*loop.Batch](loop.NewSource(set, small, 1)),
			runner.TrainerConfig{Schedule: p.ScheduleConfig(100), StepsPerCall: calls, Observer: &seen})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trainer.Train(t.Context(), 14); err != nil {
			t.Fatal(err)
		}
		state, err := trainer.State()
		if err != nil {
			t.Fatal(err)
		}
		_, position, _ := strings.Cut(string(state), `"position":`)
		position, _, _ = strings.Cut(position, `"seed"`)
		return outcome{losses: fmt.Sprint(seen.examples), position: position, sums: seen.losses, asked: small.asked}
	}
	want := run(t, 1, math.MaxInt32, math.MaxInt32)
	for _, c := range []struct {
		name       string
		all, micro int
		asked      func([]int) bool
	}{
		{"enough", math.MaxInt32, math.MaxInt32, func(a []int) bool { return slices.Equal(a, []int{4, 4, 4, 2}) }},
		// Halved once, and the rest of the call with the smaller micro-batches.
		{"micro-batches too large", math.MaxInt32 - 1, 4 * rowLength, func(a []int) bool { return slices.Equal(a[:2], []int{4, 1}) && slices.Max(a[4:]) > 1 }},
		{"call too long", 20 * rowLength, math.MaxInt32, func(a []int) bool { return slices.Equal(a[:2], []int{4, 1}) && slices.Max(a[1:]) == 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, 4, c.all, c.micro)
			if !c.asked(got.asked) {
				t.Errorf("the calls were of %v steps", got.asked)
			}
			if got.losses != want.losses || got.position != want.position {
				t.Errorf("batches of %s until %s, expected %s until %s", got.losses, got.position, want.losses, want.position)
			}
			for i := range want.sums {
				if math.Abs(got.sums[i]-want.sums[i]) > 1e-4 {
					t.Errorf("loss of step %d is %v, expected %v", i+1, got.sums[i], want.sums[i])
				}
			}
		})
	}
}

// losses records the steps of a training.
type losses struct {
	losses   []float64
	examples []int
}

func (l *losses) Begin(string, int64, int64) {}
func (l *losses) End()                       {}
func (l *losses) Step(i runner.StepInfo) {
	l.losses, l.examples = append(l.losses, i.Loss), append(l.examples, i.Examples)
}
