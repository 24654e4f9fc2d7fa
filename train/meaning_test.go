package train

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Labels of one number and another order are told apart wherever a run and data meet.
func TestLabelsMeet(t *testing.T) {
	p := testParams(t)
	p.Data.Dir, p.Data.RowLength = describedData(t, whole), 0
	p.Train.Steps, p.Train.EvalInterval = 2, params.NoEval
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	kept := read(t, run, runfolder.Data)
	turned := describedData(t, func(m *convert.Manifest) { m.Labels = []string{"with", "without"} })
	refused := func(what string, err error) {
		t.Helper()
		for _, want := range []string{`label 0 is "without" there and "with" here`, "convert the data with --labels without,with"} {
			if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, fault.Usage) {
				t.Errorf("%s: got %v, want a usage error with %q", what, err, want)
			}
		}
	}

	on := p
	on.Data.Dir, on.Train.Steps = turned, 4
	_, err := Train(t.Context(), on, run, quiet())
	refused("train on", err)
	if read(t, run, runfolder.Data) != kept {
		t.Error("the run has other names than it was trained with")
	}
	from := quiet()
	from.ResumeFrom = filepath.Join(run, runfolder.Checkpoints, "ckpt-2")
	_, err = Train(t.Context(), on, filepath.Join(t.TempDir(), "new"), from)
	refused("train on from its checkpoint", err)
	_, err = DrawBatch(t.Context(), run, 1, []string{"data.dir=" + turned}, quiet())
	refused("draw a batch", err)
	on.Init = run
	_, err = Train(t.Context(), on, filepath.Join(t.TempDir(), "new"), quiet())
	refused("init", err)
	on.InitPartial = true
	mustTrain(t, on, filepath.Join(t.TempDir(), "new"))

	r, err := OpenRun(t.Context(), run, []string{"data.dir=" + turned}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Load(t.Context(), "latest"); err != nil {
		t.Fatal(err)
	}
	_, err = r.Evaluate(t.Context(), "")
	refused("evaluate", err)
	refused("predict a split", r.PredictSplit(t.Context(), "dev", func(predict.Answer) error { return nil }))
}

// A run that does not say what its labels are called takes the names of the data, and says so.
func TestLabelsOfOlderRun(t *testing.T) {
	p := testParams(t)
	p.Data.RowLength = 0
	run := filepath.Join(t.TempDir(), "run")
	p.Data.Dir = describedData(t, whole)
	log, err := preflightParams(t, p, run, &past{params: p})
	if err != nil || !strings.Contains(log, `names="labels without, with"`) {
		t.Errorf("got %v and the log %s", err, log)
	}
}
