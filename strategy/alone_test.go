package strategy

import (
	"math/rand/v2"
	"testing"
)

// TestAlone wants the predictions of a model with lanes from the one for calls that are alone, also after
// its values have changed.
func TestAlone(t *testing.T) {
	export, ctx := replicaExport(t), t.Context()
	m, err := NewOneDevice(ctx, export, "", Config{Functions: FunctionsEvaluate, Lanes: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	rng := rand.New(rand.NewPCG(3, 1))
	start(t, m, rng)
	alone, err := m.Alone(ctx)
	if err != nil || alone == nil {
		t.Fatalf("%v, %v; expected a model for calls that are alone", alone, err)
	}
	if again, err := m.Alone(ctx); again != alone || err != nil {
		t.Errorf("the second time there is another one, or %v", err)
	}
	features := micro(t, randomBatch(t, rng, 9), 1)[0]
	predicted := func(m *Model) map[string][]float64 {
		out, err := m.Predict(ctx, features)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	var before float64
	for round := range 2 {
		got, want := predicted(alone), predicted(m)
		if len(got) == 0 || len(got) != len(want) {
			t.Fatalf("%d outputs, expected %d", len(got), len(want))
		}
		for name := range want {
			for i, v := range want[name] {
				if !near(got[name][i], v, 1e-6) {
					t.Errorf("output %s: %v, expected %v", name, got[name][i], v)
				}
			}
		}
		first := want["logits"][0]
		if round == 1 && first == before {
			t.Error("the predictions are those of the values before")
		}
		before = first
		start(t, m, rng)
	}
}

// TestAloneIsForLanes wants no model for calls that are alone where each call has all cores, and none that
// would share the variables of a training.
func TestAloneIsForLanes(t *testing.T) {
	for _, tt := range []struct {
		config Config
		fails  bool
	}{{Config{Functions: FunctionsEvaluate}, false}, {Config{Lanes: 2}, true}} {
		m, err := NewOneDevice(t.Context(), replicaExport(t), "", tt.config)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if alone, err := m.Alone(t.Context()); alone != nil || (err != nil) != tt.fails {
			t.Errorf("%d lanes: %v, %v; expected none", tt.config.Lanes, alone, err)
		}
	}
}
