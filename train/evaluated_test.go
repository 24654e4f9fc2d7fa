package train

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/evaluation"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// TestEvaluationFiles shows that a training keeps what it evaluated, in the run and for TensorBoard,
// and that the same evaluation afterwards gives the same.
func TestEvaluationFiles(t *testing.T) {
	r := openTrained(t, quiet())
	all, err := evaluation.List(r.Folder)
	if err != nil || len(all) != 1 {
		t.Fatalf("the run has %d evaluations, %v; expected 1", len(all), err)
	}
	kept := all[0]
	again, err := r.Evaluation(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if kept.By != evaluation.ByTrain || kept.Step != 1 || kept.Split != "dev" || kept.Examples != 50 || kept.Records != 50 {
		t.Errorf("the training kept %+v; expected 50 examples of dev at step 1", kept)
	}
	if !reflect.DeepEqual(kept.Metrics, again.Metrics) || !reflect.DeepEqual(kept.Detail, again.Detail) || again.Checkpoint != "ckpt-1" {
		t.Errorf("the training kept %+v; evaluated again %+v", kept, again)
	}
	total := 0.0
	for _, row := range kept.Confusion.Counts {
		for _, v := range row {
			total += v
		}
	}
	if total != 50 || kept.Classes.Averages[0].F1 != kept.Metrics["accuracy"] {
		t.Errorf("%v and %v; expected 50 examples, and the accuracy as the micro average", kept.Confusion, kept.Classes.Averages)
	}
	events, err := filepath.Glob(filepath.Join(r.Folder, "eval", "*"))
	if err != nil || len(events) != 1 {
		t.Fatal(events, err)
	}
	content, err := os.ReadFile(events[0])
	for _, tag := range []string{"eval_class/" + kept.Classes.Each[0].Name + "/f1", "eval_class/confusion"} {
		if err != nil || !bytes.Contains(content, []byte(tag)) {
			t.Errorf("%s has no %s, %v", events[0], tag, err)
		}
	}
}

// TestForgetEvaluations shows that a run that goes back to a checkpoint removes what it evaluated
// after it, and no evaluation that the user asked for.
func TestForgetEvaluations(t *testing.T) {
	run := t.TempDir()
	for step, by := range map[int64]string{1: evaluation.ByTrain, 2: evaluation.ByTrain, 3: evaluation.ByEvaluate} {
		if _, err := evaluation.Write(run, &evaluation.Evaluation{By: by, Split: "dev", Step: step}); err != nil {
			t.Fatal(err)
		}
	}
	a := &attempt{training: &training{Setup: &prepare.Setup{Env: quiet().prepare()}, folder: run}}
	if err := a.forgetEvaluations(1); err != nil {
		t.Fatal(err)
	}
	all, err := evaluation.List(run)
	if err != nil || len(all) != 2 || all[0].Step != 1 || all[1].Step != 3 {
		t.Errorf("left are %v, %v; expected steps 1 and 3", all, err)
	}
}

// checkExamples evaluates the 50 examples of dev one by one. Each must be there once, in order, and
// the mean of their losses must be that of the evaluation.
func checkExamples(t *testing.T, r *Run, of runner.Outputs) (rows []evaluation.Row) {
	t.Helper()
	var loss, weight float64
	err := r.EvaluateExamples(t.Context(), "", func(row evaluation.Row) error {
		if want := fmt.Sprintf("dev-00000-of-00001.tfrecord:%d", len(rows)); row.Record != want {
			t.Errorf("example %d is of record %s, expected %s", len(rows), row.Record, want)
		}
		rows = append(rows, row)
		if row.Weight > 0 {
			loss, weight = loss+row.Weight*float64(row.Loss), weight+row.Weight
		}
		return nil
	})
	if err != nil || len(rows) != 50 {
		t.Errorf("%d examples, %v; expected 50", len(rows), err)
	}
	if want := of["loss"]; !(math.Abs(loss/weight-want) <= 1e-4*max(1, want)) {
		t.Errorf("the mean of the examples' losses is %v, expected %v", loss/weight, want)
	}
	return rows
}

// TestEvaluateExamples compares the examples of a classifier with its evaluation, on one device and on
// several, and losses by the formula with the graph's own.
func TestEvaluateExamples(t *testing.T) {
	for _, setting := range []string{"strategy.devices=cpu:1", "strategy.devices=cpu:2"} {
		r := openTrained(t, quiet(), setting)
		e, err := r.Evaluation(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		rows := checkExamples(t, r, e.Metrics)
		counts := map[[2]any]float64{}
		for i, row := range rows {
			counts[[2]any{row.Label, row.Prediction}]++
			p := row.Probabilities[row.Label.(string)]
			if len(row.Probabilities) != len(e.Confusion.Labels) || !(math.Abs(-math.Log(p)-float64(row.Loss)) < 1e-4) {
				t.Errorf("example %d has loss %v and probabilities %v of label %v", i, row.Loss, row.Probabilities, row.Label)
			}
		}
		for i, label := range e.Confusion.Labels {
			for j, prediction := range e.Confusion.Labels {
				if got := counts[[2]any{label, prediction}]; got != e.Confusion.Counts[i][j] {
					t.Errorf("%s: %v examples of %s are predicted as %s; the confusion matrix has %v", setting, got, label, prediction, e.Confusion.Counts[i][j])
				}
			}
		}
		x, err := r.openExamples(t.Context(), "dev")
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range rows {
			b, err := x.data.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			own, err := x.loss(t.Context(), b, 0, false)
			if err != nil || math.Abs(float64(own-row.Loss)) > 1e-4 {
				t.Errorf("example %d has loss %v; the graph says %v, %v", i, row.Loss, own, err)
			}
		}
		if err := x.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWrongFormula shows that a formula that does not give the graph's loss is not used.
func TestWrongFormula(t *testing.T) {
	r := openTrained(t, quiet())
	x, err := r.openExamples(t.Context(), "dev")
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	for i := range 2 * probes {
		b, err := x.data.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := x.loss(t.Context(), b, 1000, true); err != nil || got == 1000 {
			t.Errorf("example %d has loss %v, %v; expected the graph's", i, got, err)
		}
	}
}

// TestPartsAreEvaluatedSideBySide adds up what the parts of a batch give, each reduced by itself.
func TestPartsAreEvaluatedSideBySide(t *testing.T) {
	on := &counter{sum: []float32{1}}
	m := loop.NewModel(on, nil, nil)
	m.Reduce = func(part []strategy.Feature, sums runner.Sums) error {
		if len(part[0].Int32) == 0 {
			return errors.New("an empty part")
		}
		sums["tokens"] = []float64{float64(len(part[0].Int32))}
		return nil
	}
	b := &loop.Batch{}
	var want float64
	for i := range 8 {
		part := []strategy.Feature{{Name: "input_ids", Int32: make([]int32, 1+i)}}
		b.Micro, want = append(b.Micro, part), want+float64(digest(part))
	}
	sums, err := m.Evaluate(t.Context(), b)
	if err != nil || sums[runner.WeightSum][0] != 8 || sums["tokens"][0] != 36 || math.Abs(sums[runner.LossSum][0]-want) > 1e-6 {
		t.Errorf("got %v, %v; expected 8 parts of 36 tokens together, with the loss %v", sums, err, want)
	}
	b.Micro[3][0].Int32 = nil
	if _, err := m.Evaluate(t.Context(), b); err == nil || err.Error() != "an empty part" {
		t.Errorf("got %v; expected the error of a part", err)
	}
}
