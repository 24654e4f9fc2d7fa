package receipt

import (
	"slices"
	"testing"

	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
)

// TestProcesses finds who made the steps of an interval: a run was continued at step 40, went back to 20, and was
// continued at 50.
func TestProcesses(t *testing.T) {
	run := new(runfolder.Run)
	for i, step := range []int64{0, 40, 20, 50} {
		run.Processes = append(run.Processes, runfolder.Process{Start: runfolder.Start{Process: i, Step: step}})
	}
	for _, c := range []struct {
		from, to int64
		want     []int
	}{{0, 20, []int{0}}, {20, 40, []int{2}}, {20, 60, []int{2, 3}}, {30, 50, []int{2}}, {50, 60, []int{3}}} {
		var got []int
		for _, s := range processesOf(run, c.from, c.to) {
			got = append(got, s.Process)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("steps %d to %d: processes %v; expected %v", c.from, c.to, got, c.want)
		}
	}
	run.Processes = run.Processes[1:2]
	if got := processesOf(run, 0, 60); got != nil {
		t.Errorf("%v made steps before it began", got)
	}
}
