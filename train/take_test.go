package train

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// TestSomeExamples trains and evaluates on a part of the examples, and ends the same if it is stopped.
func TestSomeExamples(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Data.TrainExamples, p.Eval.Examples, p.Train.Epochs = 40, 9, 2 // of 16 a batch: 3 steps an epoch
	run, _ := stoppedEndsAsAnother(t, p, 4)
	if _, step := final(t, run); step != 6 {
		t.Errorf("%d steps; expected 6", step)
	}
	e, err := evaluation.Read(evaluation.Path(run, "dev", 6))
	if err != nil || e.Records != 9 {
		t.Errorf("%+v, %v; expected an evaluation of 9 records", e, err)
	}
	p.Data.TrainExamples, p.Train.Epochs = 41, 4
	if _, err := Train(t.Context(), p, run, quiet()); err == nil || !strings.Contains(err.Error(), "data.train_examples was 40 and is 41") {
		t.Errorf("%v; expected that a run keeps its examples", err)
	}
	p.Data.TrainExamples = -1
	if _, err := Train(t.Context(), p, filepath.Join(t.TempDir(), "no"), quiet()); !errors.Is(err, fault.Usage) {
		t.Errorf("%v; expected that -1 examples are refused", err)
	}
}
