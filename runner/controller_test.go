package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// countingTrainer is a Trainer that moves by more steps than asked for.
type countingTrainer struct {
	step, extra int64
	stateErr    error
}

func (c *countingTrainer) Step() int64 { return c.step }
func (c *countingTrainer) Train(_ context.Context, steps int64) (Loop, error) {
	c.step += steps + c.extra
	return Loop{Steps: steps}, nil
}
func (c *countingTrainer) State() (json.RawMessage, error) { return nil, c.stateErr }
func (c *countingTrainer) Restore(step int64, _ json.RawMessage, _ bool) error {
	c.step = step
	return nil
}

// memory is a Checkpointer that remembers steps and states.
type memory struct {
	Checkpointer
	saves    []string
	restored Restored
}

func (m *memory) Restore(context.Context, string) (Restored, error) { return m.restored, nil }

func (m *memory) Save(_ context.Context, step int64, state []byte) (<-chan Saved, error) {
	m.saves = append(m.saves, fmt.Sprint(step))
	return SavedNow(fmt.Sprintf("ckpt-%d", step), nil), nil
}

type failingSummaries struct{ err error }

func (failingSummaries) Scalar(string, int64, float64) {}
func (failingSummaries) Restart(int64)                 {}
func (f failingSummaries) Flush() error                { return f.err }

// A trainer of one's own without outputs: its loops are told all the same.
func TestCustomTrainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		disk := &memory{}
		c, err := NewController(Config{Trainer: &countingTrainer{}, StepsPerLoop: 4, SaveInterval: 8, Checkpoints: disk,
			TrainSummaries: failingSummaries{}, Out: &log})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Train(context.Background(), 10); err != nil {
			t.Fatal(err)
		}
		want := `train | step:      0 | training until step 10...
train | step:      4 | steps/sec:    0.0 | output: {}
train | step:      8 | steps/sec:    0.0 | output: {}
saved checkpoint to ckpt-8.
train | step:     10 | steps/sec:    0.0 | output: {}
saved checkpoint to ckpt-10.
`
		if log.String() != want {
			t.Errorf("log is\n%swant\n%s", log.String(), want)
		}
		if err := c.Save(context.Background()); err != nil || strings.Join(disk.saves, " ") != "8 10 10" {
			t.Errorf("saved %v, %v", disk.saves, err)
		}
		if c.evaluated != nil {
			t.Errorf("an evaluation that never was: %+v", c.evaluated)
		}
	})
}

func TestControllerErrors(t *testing.T) {
	broken := errors.New("broken")
	fails := func(context.Context, int64, Outputs) error { return broken }
	evaluates := evaluatorFunc(func(context.Context, int64) (Outputs, error) { return nil, nil })
	for _, c := range []struct {
		name  string
		cfg   Config
		want  string
		saves string // steps saved all the same
	}{
		{"trainer that goes too far", Config{Trainer: &countingTrainer{extra: 1}}, "the trainer is at step 5 after 4 steps from step 0; expected step 4", ""},
		{"training summaries", Config{TrainSummaries: failingSummaries{broken}}, "training summaries: broken", "4"},
		{"evaluation summaries", Config{EvalSummaries: failingSummaries{broken}}, "evaluation summaries: broken", "6"},
		{"train action", Config{TrainActions: []Action{fails}}, "broken", "4"},
		{"eval action", Config{EvalActions: []Action{fails}}, "broken", "6"},
		{"trainer state", Config{Trainer: &countingTrainer{stateErr: broken}}, "checkpoint of step 6: broken", ""},
		{"persistent state", Config{Persist: map[string]Persistent{"best": brokenState{broken}}}, "checkpoint of step 6: best: broken", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := &memory{}
			if c.cfg.Trainer == nil {
				c.cfg.Trainer = &countingTrainer{}
			}
			c.cfg.Evaluator, c.cfg.Checkpoints, c.cfg.StepsPerLoop = evaluates, disk, 4
			controller, err := NewController(c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			_, err = controller.TrainAndEvaluate(context.Background(), 6, 1, 0)
			if err == nil || err.Error() != c.want {
				t.Errorf("error is %v, want %s", err, c.want)
			}
			if got := strings.Join(disk.saves, " "); got != c.saves {
				t.Errorf("saved %q, want %q", got, c.saves)
			}
		})
	}
	controller, err := NewController(Config{Trainer: &countingTrainer{}, Evaluator: evaluates, StepsPerLoop: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := controller.TrainAndEvaluate(context.Background(), 6, 1, -1); err == nil {
		t.Error("a negative evaluation interval gave no error")
	}
}

type brokenState struct{ err error }

func (b brokenState) State() (json.RawMessage, error) { return nil, b.err }
func (b brokenState) Restore(json.RawMessage) error   { return b.err }

// A checkpoint to go back to that was deleted is replaced by the newest.
func TestRollBackToDeletedCheckpoint(t *testing.T) {
	for _, c := range []struct {
		keep int // the checkpoints of this index and later are kept
		want string
	}{
		{1, "going back to step 10"},
		{2, "going back to run/ckpt-5: no checkpoint"},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := defaultWorld()
			cfg.save, cfg.nan, cfg.guard, cfg.rollbacks = 5, []int64{12}, false, 1
			w := &world{worldConfig: cfg}
			p := w.start(t)
			if err := p.controller.Train(p.ctx, 10); err != nil {
				t.Fatal(err)
			}
			p.controller.rollbackTo = "run/ckpt-5"
			w.disk = w.disk[c.keep:]
			_, err := p.controller.TrainAndEvaluate(p.ctx, 20, UntilEnd, 0)
			told := fmt.Sprint(strings.Join(w.log, "\n"), err)
			if !strings.Contains(told, c.want) {
				t.Errorf("%s\nlacks %q", told, c.want)
			}
		})
	}
}
