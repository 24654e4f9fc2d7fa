package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// counted counts the loops and evaluations of a run, across stops.
type counted struct {
	Train, Eval int
	begun       int // how often the run began again
}

func (l *counted) State() (json.RawMessage, error) { return json.Marshal(l) }

func (l *counted) Restore(state json.RawMessage) error {
	if state == nil {
		*l = counted{begun: l.begun + 1}
		return nil
	}
	return json.Unmarshal(state, l)
}

// env returns what counts loops, and stops after a step with an error.
func (l *counted) env(at int64, stop error) Env {
	e := quiet()
	e.Persist = map[string]runner.Persistent{"loops": l}
	e.TrainActions = []runner.Action{func(_ context.Context, step int64, out runner.Outputs) error {
		l.Train++
		if _, ok := out["learning_rate"]; !ok {
			return fmt.Errorf("no learning rate among %v", out)
		}
		if step == at {
			return fmt.Errorf("%w: enough", stop)
		}
		return nil
	}}
	e.EvalActions = []runner.Action{func(context.Context, int64, runner.Outputs) error { l.Eval++; return nil }}
	return e
}

// TestOwnActions stops a run by an action, and continues with what another one has counted.
func TestOwnActions(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.Steps = 12 // in loops that end at 2, 3, 4, 6, 8, 9, 10 and 12; evaluated at 6 and 12
	whole := new(counted)
	if _, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), whole.env(0, nil)); err != nil {
		t.Fatal(err)
	}
	if want := (counted{8, 2, 1}); *whole != want {
		t.Errorf("the run had %+v, expected %+v", *whole, want)
	}

	run := filepath.Join(t.TempDir(), "run")
	if _, err := Train(t.Context(), p, run, new(counted).env(8, runner.ErrStopped)); !errors.Is(err, runner.ErrStopped) {
		t.Fatalf("error is %v, expected that the run was stopped", err)
	}
	again := new(counted)
	if _, err := Train(t.Context(), p, run, again.env(0, nil)); err != nil {
		t.Fatal(err)
	}
	if want := (counted{8, 2, 0}); *again != want {
		t.Errorf("the run that was stopped had %+v, expected %+v", *again, want)
	}
}

// TestActionEndsTraining ends a run before its last step.
func TestActionEndsTraining(t *testing.T) {
	p := testParams(t)
	p.Train.Steps = 12
	run := filepath.Join(t.TempDir(), "run")
	e := new(counted).env(4, runner.ErrStopTraining)
	var saved []int64
	e.Saved = func(step int64, path string) {
		saved = append(saved, step)
		if _, err := os.Stat(path + ".index"); err != nil {
			t.Errorf("the checkpoint of step %d is not there when it is told of: %v", step, err)
		}
	}
	out, err := Train(t.Context(), p, run, e)
	if err != nil || len(out) == 0 {
		t.Fatalf("outputs %v, error %v; expected those of a last evaluation", out, err)
	}
	if len(saved) == 0 || saved[len(saved)-1] != 4 {
		t.Errorf("checkpoints of steps %v are told of; expected 4 as the last", saved)
	}
	if step := newest(t, run).Step; step != 4 {
		t.Errorf("the run ended at step %d, expected 4", step)
	}
}

func TestPersistNamesAreTaken(t *testing.T) {
	p := testParams(t)
	p.Train.Steps = 2
	for _, name := range []string{loop.MetricsState, loop.GraphState, loop.FrozenNames, loop.BestState, loop.StoppingState, loop.PlateauState} {
		e := quiet()
		e.Persist = map[string]runner.Persistent{name: new(counted)}
		if _, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), e); !errors.Is(err, ErrPersistName) {
			t.Errorf("%s: error is %v, expected that the name is taken", name, err)
		}
	}
}
