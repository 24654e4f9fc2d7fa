package train

import (
	"runtime"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/exec/reclaim"
	_ "github.com/gorbit-ml/gorbit/internal/exec/tfprocess" // as the commands have it
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// TestCallsLeaveNothing counts the objects that are left of many calls: tensors
// are freed with the Go objects that hold them, so that a tensor that is never
// freed is an object too many.
func TestCallsLeaveNothing(t *testing.T) {
	p := testParams(t)
	export, set := opened(t, p)
	s, err := prepare.OpenLocal(t.Context(), p, export, strategy.FunctionsTrain)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	whole, err := set.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := loop.NewSource(set, s, 1).Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.Payload.From = nil // every round makes its step with it
	if err := set.Close(); err != nil {
		t.Fatal(err)
	}
	m := loop.NewModel(s, nil, nil)
	if _, err := loop.Initialize(t.Context(), s, export, loop.Init{}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range s.Variables() {
		names = append(names, v.Name)
	}
	calls := func(from, to int64) {
		for i := from; i < to; i++ {
			if _, err := m.Step(t.Context(), b.Payload, runner.Hyper{Step: i, LearningRate: 1e-5, Seed: 1}); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Evaluate(t.Context(), loop.NewBatch(whole)); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Predict(t.Context(), whole.Features); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Read(t.Context(), names...); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A finalizer's object goes with the collection after the one that ran it.
	live := func() int64 {
		for range 3 {
			reclaim.Memory()
		}
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapObjects)
	}
	const rounds = 150
	calls(0, 20)
	before := live()
	calls(20, 20+rounds)
	if left := live() - before; left > rounds/2 {
		t.Errorf("%d objects are left of %d rounds of calls", left, rounds)
	} else {
		t.Logf("%d objects are left of %d rounds of calls", left, rounds)
	}
}
