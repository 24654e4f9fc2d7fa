package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestSeveralSplits evaluates on two splits: the first has the metrics that it has alone, the second
// those of an evaluation of the checkpoint, and it chooses the best one. A stopped run ends the same.
func TestSeveralSplits(t *testing.T) {
	long(t)
	ctx := context.Background()
	p := testParams(t)
	p.Train.Steps, p.Train.EvalInterval, p.Checkpoint.MaxToKeep, p.Train.Patience = 12, 2, 0, 20
	alone := filepath.Join(t.TempDir(), "alone")
	mustTrain(t, p, alone)
	p.Data.Eval, p.Checkpoint.Best = params.Splits{"dev", "train"}, "train/loss"
	run, _ := stoppedEndsAsAnother(t, p, 5)

	single, both := evaluations(t, alone), evaluations(t, run)
	if len(single) != 6 || len(both) != 6 {
		t.Fatalf("%d and %d evaluations; expected 6", len(single), len(both))
	}
	lowest, best := math.Inf(1), int64(0)
	r, err := OpenRun(ctx, run, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i, e := range both {
		first, second := map[string]float64{}, map[string]float64{}
		for name, v := range e.Outputs {
			if plain, ok := strings.CutPrefix(name, "train/"); ok {
				second[plain] = v
			} else {
				first[name] = v
			}
		}
		if !reflect.DeepEqual(first, single[i].Outputs) {
			t.Errorf("step %d: %v on dev; expected %v, as without a second split", e.Step, first, single[i].Outputs)
		}
		if reflect.DeepEqual(first, second) {
			t.Errorf("step %d: both splits have the same metrics", e.Step)
		}
		if second["loss"] < lowest {
			lowest, best = second["loss"], e.Step
		}
		if _, err := r.Load(ctx, fmt.Sprint(e.Step)); err != nil {
			t.Fatal(err)
		}
		want, err := r.Evaluate(ctx, "train")
		if err != nil || !reflect.DeepEqual(second, map[string]float64(want)) {
			t.Errorf("step %d: %v on train; an evaluation of the checkpoint has %v, %v", e.Step, second, want, err)
		}
		for split, metrics := range map[string]map[string]float64{"dev": first, "train": second} {
			file, err := evaluation.Read(evaluation.Path(run, split, e.Step))
			if err != nil || !reflect.DeepEqual(map[string]float64(file.Metrics), metrics) || file.Split != split {
				t.Errorf("step %d: the file of %s is %+v, %v; expected %v", e.Step, split, file, err, metrics)
			}
		}
	}
	if step, err := r.Load(ctx, params.Best); err != nil || step != best {
		t.Errorf("the best checkpoint is of step %d, %v; the lowest train/loss was at step %d", step, err, best)
	}
	said, err := runfolder.Read(run, false, time.Now())
	if err != nil || said.Best.Metric != "train/loss" || said.Best.Step != best || said.Best.Value != lowest {
		t.Errorf("the run says %+v, %v; expected train/loss %v at step %d", said.Best, err, lowest, best)
	}
	if split, plain := said.EvalSplits().Cut("train/loss"); split != "train" || plain != "loss" {
		t.Errorf("train/loss is %s of %s", plain, split)
	}
}

// TestSplitsBeforeAndAfter continues a run of one split with two.
func TestSplitsBeforeAndAfter(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.Steps, p.Train.EvalInterval = 4, 2
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	p.Train.Steps, p.Data.Eval = 8, params.Splits{"dev", "train"}
	mustTrain(t, p, run)
	all := evaluations(t, run)
	if len(all) != 4 {
		t.Fatalf("%d evaluations; expected 4", len(all))
	}
	for _, e := range all {
		if _, second := e.Outputs["train/loss"]; second != (e.Step > 4) {
			t.Errorf("step %d: %v; expected train/loss after step 4 alone", e.Step, e.Outputs)
		}
	}
}

func TestSplitsRefused(t *testing.T) {
	for _, c := range []struct {
		name, best string
		splits     params.Splits
		want       string
	}{
		{"a metric of no split", "test/loss", params.Splits{"dev", "train"}, `checkpoint.best is "test/loss"; expected one of `},
		{"a metric that is not there", "train/los", params.Splits{"dev", "train"}, `did you mean train/loss?`},
		{"the wrong direction", "train/loss", params.Splits{"dev", "train"}, "checkpoint.best_mode is max; for train/loss expected min"},
		{"a split that is not there", "loss", params.Splits{"dev", "hard"}, `has no split "hard"; expected one of dev, train`},
		{"a text for a list", "loss", params.Splits{"dev,train"}, "; several splits are a list, as in --set 'data.eval=[dev, test]'"},
		{"a split twice", "loss", params.Splits{"dev", "dev"}, `data.eval has the split "dev" twice; leave out one`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testParams(t)
			p.Data.Eval, p.Checkpoint.Best = c.splits, c.best
			if c.best == "train/loss" {
				p.Checkpoint.BestMode = params.ModeMax
			}
			_, err := Train(context.Background(), p, filepath.Join(t.TempDir(), "run"), quiet())
			if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; expected a usage error with %q", err, c.want)
			}
		})
	}
}
