package train

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
)

// TestIntervalsAsShares logs, evaluates and saves at shares of all steps as at the numbers of steps.
func TestIntervalsAsShares(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.Steps, p.Train.StepsPerLoop, p.Train.EvalInterval, p.Checkpoint.Interval = 12, 3, 6, 4
	steps, shares := filepath.Join(t.TempDir(), "steps"), filepath.Join(t.TempDir(), "shares")
	mustTrain(t, p, steps)
	p.Train.StepsPerLoop, p.Train.EvalInterval, p.Checkpoint.Interval = 0.25, 0.5, 0.3 // of 12 steps: 3, 6, and 3.6 up
	mustTrain(t, p, shares)
	sameRuns(t, shares, steps)
}

// TestSavedAtTheEnd saves no checkpoint before the end, and logs each epoch.
func TestSavedAtTheEnd(t *testing.T) {
	long(t)
	p := testParams(t)
	p.Train.Epochs, p.Train.StepsPerLoop, p.Train.EvalInterval = 2, 0, params.NoEval
	p.Checkpoint.Interval, p.Checkpoint.Best, p.Checkpoint.MaxToKeep = params.NoSave, "", 0
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	_, records := opened(t, p)
	epoch := records.BatchesPerEpoch()
	found, err := filepath.Glob(filepath.Join(run, runfolder.Checkpoints, "*.index"))
	if err != nil || len(found) != 1 {
		t.Errorf("checkpoints %v, %v; expected one", found, err)
	}
	content, err := os.ReadFile(filepath.Join(run, runfolder.Metrics))
	if err != nil || bytes.Count(content, []byte("\n")) != 2 {
		t.Errorf("%s, %v; expected a line for each of 2 epochs", content, err)
	}
	if got := slices.Sorted(maps.Keys(learningRates(t, run))); !slices.Equal(got, []int64{epoch, 2 * epoch}) {
		t.Errorf("logged steps %v; expected %d and %d", got, epoch, 2*epoch)
	}
}
