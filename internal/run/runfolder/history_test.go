package runfolder_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/graphs"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/train/params"
	"github.com/gorbit-ml/gorbit/train/task"
)

func TestChanges(t *testing.T) {
	classifier := task.New(&graphs.Contract{Task: task.Classification, Best: graphs.Best{Metric: "accuracy", Better: graphs.Higher}}, nil)
	before := params.Defaults()
	before.Optimizer.Hyperparameters = map[string]float64{"beta_1": 0.8, "epsilon": 1e-6}
	after := params.Defaults()
	after.Eval.BatchSize = before.Train.BatchSize // a line that the old file had elsewhere
	after.Graph = "g"
	after.Optimizer.Hyperparameters = map[string]float64{"beta_1": 0.7, "beta_2": 0.9}
	const want = `eval.batch_size was 64 and is 32; graph was "" and is "g"; optimizer.hyperparameters.beta_1 was 0.8 and is 0.7; ` +
		`optimizer.hyperparameters.beta_2 is now 0.9; optimizer.hyperparameters.epsilon was 0.000001`
	got, err := runfolder.Differences(classifier, before, after, 3)
	if err != nil || runfolder.ListChanges(got) != want {
		t.Errorf("got %s, %v, want %s", runfolder.ListChanges(got), err, want)
	}
	for _, c := range got {
		if c.Step != 3 {
			t.Errorf("%v is of step %d, want 3", c, c.Step)
		}
	}
	// The direction of a metric said and not said is the same.
	after = before
	after.Checkpoint.BestMode = "max"
	if got, err := runfolder.Differences(classifier, before, after, 3); got != nil || err != nil {
		t.Errorf("got %v, %v of equal params", got, err)
	}
}

// Where a run falls back to a checkpoint from before a change, the change comes earlier
// than it was recorded.
func TestHistoryOfLostSteps(t *testing.T) {
	h := runfolder.Changes{
		{Step: 4, Param: "a", Old: json.RawMessage("1"), New: json.RawMessage("2")},
		{Step: 8, Param: "a", Old: json.RawMessage("2"), New: json.RawMessage("3")},
		{Step: 8, Param: "b", New: json.RawMessage("5")},
	}
	now := runfolder.Values{"a": "3", "b": "5", "c": "7"}
	for _, test := range []struct {
		step int64
		want runfolder.Values
	}{
		{9, now}, {8, now},
		{7, runfolder.Values{"a": "2", "c": "7"}},
		{4, runfolder.Values{"a": "2", "c": "7"}},
		{3, runfolder.Values{"a": "1", "c": "7"}},
	} {
		if got := h.At(test.step, now); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("step %d: got %v, want %v", test.step, got, test.want)
		}
	}
	// After it went back to step 6 with what it had at the end, that holds from 6 on.
	again := append(h, h.At(6, now).Changes(now, 6)...)
	if len(again) != 5 || fmt.Sprint(again.At(7, now)) != fmt.Sprint(now) || again.At(5, now)["a"] != "2" {
		t.Errorf("%v", again)
	}
}

func TestNewestOnly(t *testing.T) {
	got := runfolder.NewestOnly([]string{"checkpoints/checkpoint", "checkpoints/ckpt-5.data-00000-of-00001", "checkpoints/ckpt-5.index",
		"checkpoints/ckpt-10.data-00000-of-00001", "checkpoints/ckpt-10.index", "checkpoints/ckpt-15.data-00000-of-00001",
		"params.yaml", "train/events.out.tfevents.1.host.1.0.v2", "variables/variables.index", "model-00001-of-00002.safetensors"})
	want := []string{"checkpoints/checkpoint", "checkpoints/ckpt-10.data-00000-of-00001", "checkpoints/ckpt-10.index", "params.yaml",
		"variables/variables.index", "model-00001-of-00002.safetensors"}
	if !slices.Equal(got, want) {
		t.Errorf("chosen are %q, expected %q", got, want)
	}
}
