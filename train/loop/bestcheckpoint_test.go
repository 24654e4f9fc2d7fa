package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	tf "github.com/wamuir/graft/tensorflow"

	"github.com/gorbit-ml/gorbit/checkpoint"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// saveBest saves a checkpoint whose state says which step is the best.
func saveBest(t *testing.T, m *checkpoint.Manager, step, best int64, opts ...checkpoint.SaveOption) {
	t.Helper()
	state, err := json.Marshal(runner.RunState{Version: 1, Step: step, Persistent: map[string]json.RawMessage{
		loop.BestState: fmt.Appendf(nil, `{"value": 0.5, "step": %d}`, best)}})
	if err != nil {
		t.Fatal(err)
	}
	value, err := tf.NewTensor([]float32{1})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Save(context.Background(), step, []checkpoint.NamedTensor{{Name: "v", Value: value}}, state, opts...); err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestBestIsToldByTheRun asks for the best checkpoint where the list of protected
// checkpoints is what a kill or a damage left of it.
func TestBestIsToldByTheRun(t *testing.T) {
	list := func(text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "protected.json"), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	both := func(all ...func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			for _, f := range all {
				f(t, dir)
			}
		}
	}
	noList := func(t *testing.T, dir string) {
		if err := os.Remove(filepath.Join(dir, "protected.json")); err != nil {
			t.Fatal(err)
		}
	}
	cut := func(t *testing.T, dir string) {
		if err := os.Truncate(filepath.Join(dir, "ckpt-9.index"), 10); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		do   func(*testing.T, string)
		want int64 // -1: refused as damaged
	}{
		{"as it should be", func(*testing.T, string) {}, 6},
		{"no list", noList, 6},
		{"an old list", list("[3]\n"), 6},
		{"an empty list", list("[]\n"), 6},
		{"half a list", list("[3, "), 6},
		{"newest checkpoint damaged", cut, 6},
		{"newest checkpoint damaged, no list", both(cut, noList), -1},
		{"newest checkpoint and list damaged", both(cut, list("[6")), -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			writer, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			saveBest(t, writer, 3, 3, checkpoint.Protected())
			saveBest(t, writer, 6, 6, checkpoint.Protected())
			saveBest(t, writer, 9, 6)
			test.do(t, dir)
			reader, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: dir, ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			step, err := loop.BestStep(reader)
			switch {
			case test.want < 0 && !errors.Is(err, fault.Damaged):
				t.Errorf("step %d, error %v", step, err)
			case test.want >= 0 && (err != nil || step != test.want):
				t.Errorf("step %d, error %v, want %d", step, err, test.want)
			}
		})
	}
}

// TestBestIsProtectedAgain restores a run whose list of protected checkpoints is not
// what its state says.
func TestBestIsProtectedAgain(t *testing.T) {
	dir := t.TempDir()
	writer, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	saveBest(t, writer, 6, 6, checkpoint.Protected())
	path := filepath.Join(dir, "protected.json")
	for _, content := range []string{"", "[3]\n", "[6"} {
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		again, err := checkpoint.OpenManager(checkpoint.ManagerConfig{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		best := runner.NewBest("accuracy", runner.HigherIsBetter)
		if err := best.Commit(context.Background(), 6, runner.Outputs{"accuracy": 1}); err != nil {
			t.Fatal(err)
		}
		m := &loop.Checkpoints{Manager: again, Best: best, Log: slog.New(slog.DiscardHandler)}
		if err := m.ProtectBest(); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != "[6]\n" {
			t.Errorf("%q became %q", content, got)
		}
	}
}
