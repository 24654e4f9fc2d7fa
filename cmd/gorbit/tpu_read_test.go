package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/runner"
)

// TestReadOnTPU evaluates a run on the emulator of a TPU, and lets it answer there. The run was trained
// on a CPU, in rows of any number, and the results must be those of a CPU but for rounding.
func TestReadOnTPU(t *testing.T) {
	t.Parallel()
	o := &onTPU{user: newUser(t)}
	o.fixture(100, "--split-by-hash", "id")
	o.run("gorbit", append([]string{"train", "--graph", "graph", "--data", "data", "--run", "run", "--steps", "4", "--batch-size", "16",
		"--learning-rate", "1e-2", "--steps-per-loop", "4", "--checkpoint-interval", "2", "--eval-interval", "-1"}, noDropout...)...)
	wantEvaluated, wantFollowed := o.evaluated(t), o.evaluated(t, "--follow", "--timeout", "1s")
	wantSplit := o.predicted(t, "--split", "train")
	texts := []string{"--text", "a great film .", "--text", "the cast was awful and the story is boring"}
	wantTexts := o.predicted(t, texts...)

	for _, topology := range []string{"2x1x1x1", "2x1x1x2"} {
		t.Run(topology, func(t *testing.T) {
			t.Cleanup(func() { gone(t, "") })
			_, at := o.emulator(t, "--topology", topology)
			tpu := []string{"--tpu", "grpc://" + at}
			nearEvaluations(t, o.evaluated(t, tpu...), wantEvaluated)
			nearAnswers(t, o.predicted(t, append(tpu, "--split", "train")...), wantSplit)
			if topology == "2x1x1x1" {
				return
			}
			nearEvaluations(t, o.evaluated(t, append(tpu, "--follow", "--timeout", "1s")...), wantFollowed)
			nearAnswers(t, o.predicted(t, append(tpu, texts...)...), wantTexts)
			// Other rows, of which some core has none.
			nearEvaluations(t, o.evaluated(t, append(tpu, "--set", "data.rows=9", "--set", "data.row_examples=3")...), wantEvaluated)
			nearAnswers(t, o.predicted(t, append(tpu, "--split", "train", "--set", "data.packing=none")...), wantSplit)
		})
	}
	t.Run("lost", func(t *testing.T) {
		t.Cleanup(func() { gone(t, "") })
		_, at := o.emulator(t, "--fault", "preempt@2:10m")
		o.failsOnce(t, o.start(t, "evaluate", "--run", "run", "--split", "train", "--set", "data.rows=8", "--tpu", "grpc://"+at), "run the same command again, with --tpu-wait to wait for the TPU")
		_, at = o.emulator(t, "--fault", "fail@1")
		o.failsOnce(t, o.start(t, "predict", "--run", "run", "--text", "a film", "--tpu", "grpc://"+at), "predict")
	})
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"evaluate", "--run", "run", "--tpu="}, "--tpu is empty"},
		{[]string{"evaluate", "--run", "run", "--tpu", "grpc://127.0.0.1:1", "--set", "runtime.lanes=2"}, "runtime.lanes is set, which is not for a TPU; leave it out"},
		{[]string{"evaluate", "--run", "run", "--tpu", "grpc://127.0.0.1:1", "--set", "data.packing=first-fit"}, "data.packing is first-fit, which does not fix the number of rows"},
		{[]string{"predict", "--run", "run", "--text", "a", "--tpu-zone", "z"}, "strategy.tpu_zone is set, which is only for strategy tpu"},
		{[]string{"export", "--run", "run", "--out", "served", "--set", "strategy.tpu=local"}, "a model is exported without a TPU; leave it out"},
	} {
		r := o.start(t, test.args...)
		r.exits(fault.ExitUsage)
		if !strings.Contains(r.out.String(), test.says) {
			t.Errorf("%v says %s, want %q", test.args, &r.out, test.says)
		}
	}
}

// evaluationLine is a line of gorbit evaluate --json.
type evaluationLine struct {
	Step    int64
	Outputs runner.Outputs
}

// evaluated returns the results of evaluations of the run.
func (o *onTPU) evaluated(t *testing.T, more ...string) (out []evaluationLine) {
	t.Helper()
	lines := o.run("gorbit", append([]string{"evaluate", "--run", "run", "--json", "--log-level", "error"}, more...)...)
	for line := range strings.Lines(lines) {
		var e evaluationLine
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, e)
	}
	return out
}

// predicted returns the answers of the run's last checkpoint.
func (o *onTPU) predicted(t *testing.T, more ...string) []prediction {
	t.Helper()
	return predictions(t, o.run("gorbit", append([]string{"predict", "--run", "run", "--checkpoint", "latest", "--format", "json", "--log-level", "error"}, more...)...))
}

func nearEvaluations(t *testing.T, got, want []evaluationLine) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d evaluations, want %d", len(got), len(want))
	}
	for i, w := range want {
		if got[i].Step != w.Step || len(got[i].Outputs) != len(w.Outputs) {
			t.Errorf("evaluation %v, want %v", got[i], w)
		}
		for name, value := range w.Outputs {
			if g := got[i].Outputs[name]; !(math.Abs(g-value) <= 1e-6) && !(math.IsNaN(g) && math.IsNaN(value)) {
				t.Errorf("%s of step %d is %v, on a CPU %v", name, w.Step, g, value)
			}
		}
	}
}

func nearAnswers(t *testing.T, got, want []prediction) {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%d answers, want %d", len(got), len(want))
	}
	for i, w := range want {
		if got[i].Label != w.Label || len(got[i].Probabilities) != len(w.Probabilities) {
			t.Errorf("answer %d is %v, on a CPU %v", i, got[i], w)
			continue
		}
		for k, p := range w.Probabilities {
			if !(math.Abs(got[i].Probabilities[k]-p) <= 1e-6) {
				t.Errorf("answer %d is %v, on a CPU %v", i, got[i], w)
			}
		}
	}
}
