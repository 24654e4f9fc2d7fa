package runfolder

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/runner"
)

// TestGrowingTrainerState saves a run of 40 steps that goes back once, and compares each file with the
// one that is made of the whole folder. In between, the file must grow: neither it nor what was read for
// it before may be touched again.
//
// Long: a run in a few helpers, and its course.
func TestGrowingTrainerState(t *testing.T) {
	grown, whole := t.TempDir(), t.TempDir()
	g := &GrowingTrainerState{Folder: grown}
	course := Course{MaxSteps: 40, Data: perEpoch(7), LogEvery: 2, EvalEvery: 4, SaveEvery: 4, BatchSize: 8, Evaluates: true}
	read := func(dir, name string) []byte {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	var metrics, journal strings.Builder
	journal.WriteString(`{"event":"start","process":7,"step":0,"steps":40}` + "\n")
	evaluated := func(step int64) {
		fmt.Fprintf(&journal, `{"event":"phase","process":7,"phase":"eval","step":%d,"seconds":%d,"examples":9,"steps":3}`+"\n", step, step)
	}
	log := func(step int64) {
		fmt.Fprintf(&metrics, `{"phase":"train","step":%d,"outputs":{"loss":%g,"note":"NaN"}}`+"\n", step, 1/float64(step))
		if step%4 == 0 {
			if step != 16 {
				evaluated(step)
			}
			fmt.Fprintf(&metrics, `{"phase":"eval","step":%d,"outputs":{"accuracy":0.5}}`+"\n", step)
		}
	}
	var written os.FileInfo
	save := func(step int64, size int, anew bool) {
		t.Helper()
		text, _ := json.Marshal(runner.TrainerState{Done: runner.Done{Steps: step, Tokens: 1000 - step, FLOPs: 1e7 * float64(step)}})
		length, _ := json.Marshal(size)
		state := runner.RunState{Version: 1, Step: step, Trainer: text, Evaluated: &runner.Evaluation{Step: step},
			Persistent: map[string]json.RawMessage{"metrics": length}}
		if step > 8 {
			state.Persistent["best"] = json.RawMessage(`{"value":0.5,"step":8,"metric":"accuracy"}`)
		}
		fill(t, whole, map[string]string{Metrics: metrics.String(), Journal: journal.String()})
		fill(t, grown, map[string]string{Journal: journal.String(), Metrics: metrics.String()})
		if !anew { // what was read is not read again
			fill(t, grown, map[string]string{Metrics: strings.Repeat(" ", int(g.metrics)) + metrics.String()[g.metrics:],
				Journal: strings.Repeat(" ", int(g.journal)) + journal.String()[g.journal:]})
		}
		if err := g.Write(course, state); err != nil {
			t.Fatal(err)
		}
		if err := WriteTrainerState(whole, course, state); err != nil {
			t.Fatal(err)
		}
		var got, want TrainerState
		if err := json.Unmarshal(read(grown, Trainer), &got); err != nil {
			t.Fatalf("step %d: %v in\n%s", step, err, read(grown, Trainer))
		}
		if err := json.Unmarshal(read(whole, Trainer), &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d: the file has\n%+v\nexpected\n%+v", step, got, want)
		}
		now, err := os.Stat(filepath.Join(grown, Trainer))
		if err != nil || written != nil && os.SameFile(now, written) == anew {
			t.Errorf("step %d: the file was written anew: %v, %v; expected %v", step, !anew, err, anew)
		}
		written = now
	}
	at := map[int64]int{}
	for step := int64(2); step < 30; step += 2 {
		log(step)
		if at[step] = metrics.Len(); step%4 == 0 {
			if step == 12 {
				evaluated(16) // before the file has the metrics of its step
			}
			save(step, at[step], step == 4)
		}
	}
	// Back to step 16, whose metrics are made again with other values.
	back := metrics.String()[:at[16]]
	metrics.Reset()
	metrics.WriteString(back)
	g.Forget()
	save(16, at[16], true)
	for step := int64(18); step <= 40; step += 2 {
		log(step)
		if step%4 == 0 {
			save(step, metrics.Len(), step == 40)
		}
	}
	if string(read(grown, Trainer)) != string(read(whole, Trainer)) {
		t.Errorf("at the end the file has\n%s\nexpected\n%s", read(grown, Trainer), read(whole, Trainer))
	}
}
