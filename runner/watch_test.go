package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// growingDisk is a Checkpointer on which another process saves.
type growingDisk struct {
	Checkpointer
	start   time.Time
	at      []time.Duration // checkpoint number i, of step 10(i+1), appears then
	deleted map[string]bool
	err     error
	badFor  time.Duration // so long err is the answer; 0 means always
	model   *int64
}

func (d *growingDisk) Latest(context.Context) (string, error) {
	n := 0
	for n < len(d.at) && time.Since(d.start) >= d.at[n] {
		n++
	}
	if d.err != nil && (d.badFor == 0 || time.Since(d.start) < d.badFor) {
		return "", d.err
	}
	if n == 0 {
		return "", nil
	}
	return fmt.Sprintf("ckpt-%d", n*10), nil
}

func (d *growingDisk) Restore(_ context.Context, path string) (Restored, error) {
	if d.deleted[path] {
		return Restored{}, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	var step int64
	if _, err := fmt.Sscanf(path, "ckpt-%d", &step); err != nil {
		return Restored{}, err
	}
	*d.model = step
	return Restored{Path: path, Step: step, State: fmt.Appendf(nil, `{"version":1,"step":%d}`, step)}, nil
}

func TestEvaluateContinuously(t *testing.T) {
	const second = time.Second
	stopAt20 := func(_ context.Context, step int64, _ Outputs) error {
		if step == 20 {
			return ErrStopTraining
		}
		return nil
	}
	for _, c := range []struct {
		name    string
		disk    growingDisk
		watch   Watch
		actions []Action
		evalFor time.Duration
		cancel  time.Duration
		want    string // the steps evaluated
		err     error
		elapsed time.Duration
	}{
		{"each once, then a time-out", growingDisk{at: []time.Duration{0, 10 * second, 20 * second}},
			Watch{Timeout: 15 * second}, nil, second, 0, "10 20 30", nil, 36 * second},
		{"only the newest", growingDisk{at: []time.Duration{0, second, 2 * second}},
			Watch{Timeout: 5 * second}, nil, 10 * second, 0, "10 30", nil, 25 * second},
		{"none ever", growingDisk{}, Watch{Timeout: 3 * second}, nil, second, 0, "", ErrNoCheckpoint, 3 * second},
		{"a time-out shorter than a poll", growingDisk{}, Watch{Timeout: second, Poll: time.Hour}, nil, second, 0, "", ErrNoCheckpoint, second},
		{"last step", growingDisk{at: []time.Duration{0, 10 * second, 20 * second}},
			Watch{LastStep: 20}, nil, second, 0, "10 20", nil, 11 * second},
		{"an action ends it", growingDisk{at: []time.Duration{0, 10 * second, 20 * second}},
			Watch{}, []Action{stopAt20}, second, 0, "10 20", nil, 11 * second},
		{"stopped while waiting", growingDisk{at: []time.Duration{0}}, Watch{}, nil, second, 7 * second, "10", ErrStopped, 7 * second},
		{"stopped before anything", growingDisk{}, Watch{}, nil, second, 7 * second, "", ErrStopped, 7 * second},
		{"a deleted one is passed over", growingDisk{at: []time.Duration{0, 10 * second}, deleted: map[string]bool{"ckpt-10": true}},
			Watch{LastStep: 20}, nil, second, 0, "20", nil, 11 * second},
		{"a disk that fails", growingDisk{err: fs.ErrPermission}, Watch{}, nil, second, 0, "", fs.ErrPermission, 0},
		{"a disk that fails for a time", growingDisk{at: []time.Duration{0}, err: syscall.EIO, badFor: 3 * second}, Watch{Timeout: 5 * second}, nil, second, 0, "10", nil, 9 * second},
		{"a disk that fails until the time-out", growingDisk{at: []time.Duration{0}, err: syscall.EIO}, Watch{Timeout: 5 * second}, nil, second, 0, "", syscall.EIO, 5 * second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var model int64
				var evaluated []string
				disk := c.disk
				disk.start, disk.model = time.Now(), &model
				evaluate := evaluatorFunc(func(context.Context, int64) (Outputs, error) {
					time.Sleep(c.evalFor)
					evaluated = append(evaluated, fmt.Sprint(model))
					return Outputs{"loss": float64(model)}, nil
				})
				var said strings.Builder
				controller, err := NewController(Config{Evaluator: evaluate, Checkpoints: &disk, EvalActions: c.actions, Out: &said})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				out, err := controller.EvaluateContinuously(ctx, c.watch)
				if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
					t.Errorf("error is %v, want %v", err, c.err)
				}
				if got := strings.Join(evaluated, " "); got != c.want {
					t.Errorf("evaluated %s, want %s", got, c.want)
				}
				if len(evaluated) > 0 && fmt.Sprint(out["loss"]) != evaluated[len(evaluated)-1] {
					t.Errorf("outputs are %v", out)
				}
				if got := strings.Count(said.String(), "cannot read checkpoints now"); disk.err == syscall.EIO && got != 1 {
					t.Errorf("said %d times that checkpoints cannot be read; expected once:\n%s", got, said.String())
				}
				if got := time.Since(disk.start); got != c.elapsed {
					t.Errorf("took %v, want %v", got, c.elapsed)
				}
			})
		})
	}
}

type evaluatorFunc func(context.Context, int64) (Outputs, error)

func (f evaluatorFunc) Evaluate(ctx context.Context, steps int64) (Outputs, error) {
	return f(ctx, steps)
}

// oneCheckpoint restores whatever it is made of.
type oneCheckpoint struct {
	Checkpointer
	restored Restored
	err      error
}

func (c oneCheckpoint) Restore(context.Context, string) (Restored, error) { return c.restored, c.err }

func TestRestoreChecks(t *testing.T) {
	for _, c := range []struct {
		name  string
		disk  oneCheckpoint
		step  int64
		error string
	}{
		{"none", oneCheckpoint{}, 0, ""},
		{"fine", oneCheckpoint{restored: Restored{Path: "c", Step: 9, State: []byte(`{"version":1,"step":9}`)}}, 9, ""},
		{"of another program", oneCheckpoint{restored: Restored{Path: "c", Step: 9}}, 9, ""},
		{"told to stop", oneCheckpoint{err: context.Canceled}, 0, "stopped: context canceled"},
		{"unreadable", oneCheckpoint{err: errors.New("ckpt-9: bad checksum")}, 0, "ckpt-9: bad checksum"},
		{"state of another step", oneCheckpoint{restored: Restored{Path: "c", Step: 8, State: []byte(`{"version":1,"step":9}`)}}, 0,
			"checkpoint c: run state is of step 9: the graph's counter of updates is 8; expected 9"},
		{"newer state", oneCheckpoint{restored: Restored{Path: "c", Step: 9, State: []byte(`{"version":2,"step":9}`)}}, 0,
			"checkpoint c: run state: version is 2; expected 1 to 1, which this program can read"},
		{"negative step", oneCheckpoint{restored: Restored{Path: "c", Step: -1, State: []byte(`{"version":1,"step":-1}`)}}, 0, "step is -1"},
		{"no version", oneCheckpoint{restored: Restored{Path: "c", Step: 9, State: []byte(`{"step":9}`)}}, 0, "version is 0"},
		{"no JSON", oneCheckpoint{restored: Restored{Path: "c", Step: 9, State: []byte(`{"ver`)}}, 0, "checkpoint c: run state: unexpected end"},
		{"bad trainer state", oneCheckpoint{restored: Restored{Path: "c", Step: 9, State: []byte(`{"version":1,"step":9,"trainer":7}`)}}, 0,
			"checkpoint c: trainer state"},
		{"bad best metric", oneCheckpoint{restored: Restored{Path: "c", Step: 9, State: []byte(`{"version":1,"step":9,"persistent":{"best":7}}`)}}, 0,
			"checkpoint c: best: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTrainer(t, &scriptedModel{}, &listSource{}, nil)
			controller, err := NewController(Config{
				Trainer: tr, StepsPerLoop: 1, Checkpoints: c.disk,
				Persist: map[string]Persistent{"best": NewBest("f1", HigherIsBetter)},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			path, err := controller.Restore(ctx)
			if (err == nil) != (c.error == "") || err != nil && !strings.Contains(err.Error(), c.error) {
				t.Errorf("error is %v, want %q", err, c.error)
			}
			if err == nil && (controller.Step() != c.step || path != c.disk.restored.Path) {
				t.Errorf("restored %q at step %d", path, controller.Step())
			}
		})
	}
}
