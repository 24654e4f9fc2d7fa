package train

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/evaluation"
)

// TestFollowInBucket evaluates the checkpoints of a run in a bucket as they appear there.
func TestFollowInBucket(t *testing.T) {
	p := testParams(t)
	p.Train.Steps, p.Train.Epochs = 6, 0
	run := filepath.Join(t.TempDir(), "run")
	mustTrain(t, p, run)
	want := make(map[int64]runner.Outputs)
	for _, step := range []int64{3, 6} {
		r, err := OpenRun(t.Context(), run, nil, quiet())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Load(t.Context(), r.checkpoints.Prefix(step)[strings.LastIndex(r.checkpoints.Prefix(step), "ckpt-"):]); err != nil {
			t.Fatal(err)
		}
		if want[step], err = r.Evaluate(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		r.Close()
	}

	// The bucket has the run as it was after step 3.
	server := bucket(t)
	early := filepath.Join(t.TempDir(), "early")
	copyFolder(t, early, run)
	without := func(step string) {
		files, err := filepath.Glob(filepath.Join(early, runfolder.Checkpoints, "ckpt-"+step+".*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no checkpoint %s: %v", step, err)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	without("6")
	r, err := OpenRun(t.Context(), upload(t, server, early, "run"), nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var steps []int64
	err = r.EvaluateContinuously(t.Context(), "", time.Minute, func(e *evaluation.Evaluation) error {
		step, out := e.Step, e.Metrics
		if steps = append(steps, step); step == 6 {
			return runner.ErrStopTraining
		}
		for name, v := range want[step] {
			if out[name] != v {
				t.Errorf("%s of step %d is %v, expected %v", name, step, out[name], v)
			}
		}
		upload(t, server, run, "run")
		return nil
	})
	if err != nil || !slices.Equal(steps, []int64{3, 6}) {
		t.Errorf("evaluated %v, error %v; expected steps 3 and 6", steps, err)
	}
	for _, c := range server.History() {
		if strings.Contains(c.What, "eval-") {
			t.Errorf("the bucket got %s", c.What)
		}
	}
}
