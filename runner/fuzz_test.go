package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
)

// FuzzRunState gives hostile states to everything that reads them. A state that
// is taken is written the same way twice, and a run can continue from it.
func FuzzRunState(f *testing.F) {
	f.Add([]byte(`{"version":1,"step":13,"trainer":{"epoch":1,"position":{"batch":13},"seed":0,"schedule":{"name":"linear"},` +
		`"open_loop":{"steps":3,"sums":{"loss_sum":[1.5],"weight_sum":["nan"]},"learning_rate":0.1,"gradient_norm":2}},` +
		`"evaluated":{"step":10,"outputs":{"loss":"-inf"}},"rollbacks":1,"stopped_early":{"reason":"x","total":20},` +
		`"interrupted":{"rollback_to":"ckpt-10"},"persistent":{"best":{"value":0.5,"step":10,"since":0}}}`))
	f.Add([]byte(`{"version":1,"trainer":{"open_loop":{"steps":1}}}`))
	f.Add([]byte(`{"version":1,"trainer":null,"persistent":{"best":null}}`))
	f.Add([]byte(`{"version":9}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, b []byte) {
		state, err := ParseRunState(b)
		if err != nil {
			return
		}
		once, err := json.Marshal(state)
		if err != nil {
			t.Fatalf("a state that was read cannot be written: %v", err)
		}
		again, err := ParseRunState(once)
		if err != nil {
			t.Fatalf("%s was written and cannot be read: %v", once, err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s became %s, %v", once, twice, err)
		}
		tr := newTrainer(t, &scriptedModel{results: []StepResult{good(state.Step + 1)}}, &listSource{batches: batches(1)}, nil)
		disk := &memory{restored: Restored{Path: "c", Step: state.Step, State: b}}
		c, err := NewController(Config{
			Trainer: tr, StepsPerLoop: 1, Checkpoints: disk,
			Persist: map[string]Persistent{"best": NewBest("f1", HigherIsBetter)},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		if _, err := c.Restore(ctx); err != nil {
			return
		}
		if err := c.Train(ctx, UntilEnd); err == nil && state.Step >= 0 && state.StoppedEarly == nil && c.Step() != state.Step+1 {
			t.Fatalf("from %s the run went on to step %d", b, c.Step())
		}
	})
}
