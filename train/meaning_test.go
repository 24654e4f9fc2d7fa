package train

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/convert"
	"github.com/gorbit-ml/gorbit/internal/base/fault"
	"github.com/gorbit-ml/gorbit/internal/run/prepare"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/predict"
)

// Labels, and vocabularies, of one size and another order are told apart wherever a run and data meet.
func TestDataMeetRun(t *testing.T) {
	p := testParams(t)
	p.Data.Dir, p.Data.RowLength = describedData(t, whole), 0
	p.Train.Steps, p.Train.EvalInterval = 2, params.NoEval
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	turned := describedData(t, func(m *convert.Manifest) { m.Labels = []string{"with", "without"} })
	meet(t, p, run, turned, `label 0 is "without" there and "with" here`, "convert the data with --labels without,with")
	other := p
	other.Data.Dir, other.Init, other.InitPartial = turned, run, true
	mustTrain(t, other, filepath.Join(t.TempDir(), "new"))

	shuffled := describedData(t, func(m *convert.Manifest) {
		path := filepath.Join(t.TempDir(), runfolder.Vocab)
		writeVocab(t, path, 1)
		sum, err := prepare.VocabSum(path)
		if err != nil {
			t.Fatal(err)
		}
		m.Vocab.SHA256 = sum
	})
	writeVocab(t, filepath.Join(shuffled, runfolder.Vocab), 1)
	const want = `token 5 is "w0" there and "w1" here`
	r := meet(t, p, run, shuffled, want)
	if _, err := r.Tokenizer(filepath.Join(shuffled, runfolder.Vocab), nil); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, fault.Usage) {
		t.Errorf("predict with --vocab: %v", err)
	}
	if _, err := r.Tokenizer(filepath.Join(p.Data.Dir, runfolder.Vocab), nil); err != nil {
		t.Errorf("the run's own vocabulary: %v", err)
	}
}

// meet wants other data to be refused, with some words, by everything that a run of 2 steps does with
// data. It returns the run, opened with them.
func meet(t *testing.T, p params.Params, run, data string, wants ...string) *Run {
	t.Helper()
	refused := func(what string, err error) {
		t.Helper()
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, fault.Usage) {
				t.Errorf("%s: got %v, want a usage error with %q", what, err, want)
			}
		}
	}
	kept := read(t, run, runfolder.Data)
	p.Data.Dir, p.Train.Steps = data, 4
	_, err := Train(t.Context(), p, run, quiet())
	refused("train on", err)
	if read(t, run, runfolder.Data) != kept {
		t.Error("the run has other names than it was trained with")
	}
	checkpoint := filepath.Join(run, runfolder.Checkpoints, "ckpt-2")
	_, err = trainFrom(t, p, filepath.Join(t.TempDir(), "new"), from(checkpoint))
	refused("train on from its checkpoint", err)
	for _, p.Init = range []string{run, filepath.Dir(checkpoint), checkpoint} {
		_, err = Train(t.Context(), p, filepath.Join(t.TempDir(), "new"), quiet())
		refused("init "+p.Init, err)
	}
	_, err = DrawBatch(t.Context(), run, 1, []string{"data.dir=" + data}, quiet())
	refused("draw a batch", err)
	r := loaded(t, run, quiet(), "data.dir="+data)
	_, err = r.Evaluate(t.Context(), "")
	refused("evaluate", err)
	refused("predict a split", r.PredictSplit(t.Context(), "dev", func(predict.Answer) error { return nil }))
	return r
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
