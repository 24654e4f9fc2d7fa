package train

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/gorbit-ml/gorbit/train/evaluation"
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
	a := &attempt{training: &training{setup: &setup{env: quiet()}, folder: run}}
	if err := a.forgetEvaluations(1); err != nil {
		t.Fatal(err)
	}
	all, err := evaluation.List(run)
	if err != nil || len(all) != 2 || all[0].Step != 1 || all[1].Step != 3 {
		t.Errorf("left are %v, %v; expected steps 1 and 3", all, err)
	}
}
