package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestPlateau lowers the learning rate when the metric of the second split does not get better, and
// ends the same if it is stopped twice.
func TestPlateau(t *testing.T) {
	long(t)
	p := plateauParams(t)
	run, _ := stoppedEndsAsAnother(t, p, 5, 9)
	peak := p.Optimizer.LearningRate
	// The first evaluation, at step 2, is the best by far. Patience is 1, so that the one at step 4 halves the
	// learning rate, and the next one cools down and counts again, as with Keras.
	want := map[int64]float64{2: peak, 4: peak, 6: peak / 2, 8: peak / 4, 10: peak / 8, 12: peak / 8}
	for step, rate := range learningRates(t, run) {
		if wanted, ok := want[step]; ok && math.Abs(rate-wanted) > 1e-9 {
			t.Errorf("step %d: the learning rate is %v; expected %v", step, rate, wanted)
		}
	}
	// A run with another peak keeps what was lowered.
	p.Train.Steps, p.Optimizer.LearningRate, p.Optimizer.EndLearningRate = 14, 2*peak, 0
	mustTrain(t, p, run)
	if got := learningRates(t, run)[14]; math.Abs(got-peak/4) > 1e-9 {
		t.Errorf("after another peak, the learning rate is %v; expected %v", got, peak/4)
	}
}

// learningRates returns those of a run's metrics.jsonl by step.
func learningRates(t *testing.T, run string) map[int64]float64 {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(run, runfolder.Metrics))
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[int64]float64)
	for line := range bytes.Lines(content) {
		var l metricsLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		if l.Phase == "train" {
			out[l.Step] = l.Outputs["learning_rate"]
		}
	}
	return out
}

func plateauParams(t *testing.T) params.Params {
	p := testParams(t)
	p.Train.Steps, p.Train.EvalInterval, p.Data.Eval = 12, 2, params.Splits{"dev", "train"}
	p.Optimizer.Schedule, p.Optimizer.WarmupRatio, p.Optimizer.EndLearningRate = runner.OnPlateau, 0, p.Optimizer.LearningRate/8
	p.Optimizer.Plateau = params.Plateau{Metric: "train/loss", Factor: 0.5, Patience: 1, MinDelta: 1000, Cooldown: 1}
	return p
}

func TestPlateauRefused(t *testing.T) {
	for want, change := range map[string]func(*params.Params){
		`optimizer.plateau.metric is "train/los"; expected one of `:                 func(p *params.Params) { p.Optimizer.Plateau.Metric = "train/los" },
		`optimizer.plateau.metric is "train/loss" and optimizer.schedule is linear`: func(p *params.Params) { p.Optimizer.Schedule = runner.Linear },
		"optimizer.schedule is plateau and train.eval_interval is -1":               func(p *params.Params) { p.Train.EvalInterval = -1 },
		"optimizer.plateau.metric and checkpoint.best are empty":                    func(p *params.Params) { p.Optimizer.Plateau.Metric, p.Checkpoint.Best = "", "" },
		"optimizer.plateau.factor is 1; expected more than 0 and less than 1":       func(p *params.Params) { p.Optimizer.Plateau.Factor = 1 },
		"end learning rate is 1; expected at most the peak":                         func(p *params.Params) { p.Optimizer.EndLearningRate = 1 },
	} {
		p := plateauParams(t)
		change(&p)
		_, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "run"), quiet())
		if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; expected a usage error with %q", err, want)
		}
	}
}
