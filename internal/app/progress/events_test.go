package progress

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/gorbit-ml/gorbit/runner"
)

// TestEventsOfATraining writes the events of a training with an evaluation in it.
func TestEventsOfATraining(t *testing.T) {
	var out bytes.Buffer
	e := NewEvents(&out)
	e.Step(runner.StepInfo{Step: 1}) // of no phase
	e.Begin(runner.PhaseTrain, 1, 2)
	e.Step(runner.StepInfo{Step: 2, Examples: 8, Loss: math.NaN()})
	if err := e.Metrics("train")(t.Context(), 2, runner.Outputs{"loss": 0.5, "norm": math.Inf(1)}); err != nil {
		t.Fatal(err)
	}
	if err := e.Metrics("eval")(t.Context(), 2, nil); err != nil { // an evaluation without a metric
		t.Fatal(err)
	}
	e.Begin(runner.PhaseEval, 0, -1)
	e.End()
	e.Saved(2, "run/checkpoints/ckpt-2")
	e.End()
	e.End() // of no phase
	want := `{"event":"begin","phase":"train","step":1,"total":2}
{"epoch":0,"event":"step","examples":8,"loss":"NaN","phase":"train","step":2}
{"event":"metrics","metrics":{"loss":0.5,"norm":"Infinity"},"phase":"train","step":2}
{"event":"begin","phase":"eval","step":0,"total":-1}
{"event":"finish","phase":"eval"}
{"event":"save","path":"run/checkpoints/ckpt-2","step":2}
{"event":"finish","phase":"train"}
`
	if got := out.String(); got != want {
		t.Errorf("the events are\n%sexpected\n%s", got, want)
	}
}

// TestEventsOfManySteps leaves out steps that come at once, but not the last one.
func TestEventsOfManySteps(t *testing.T) {
	var out bytes.Buffer
	e := NewEvents(&out)
	e.Begin(runner.PhaseTrain, 0, 100000)
	for step := range int64(100000) {
		e.Step(runner.StepInfo{Step: step + 1, Examples: 2})
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) > 50000 {
		t.Errorf("%d lines for 100000 steps that come at once", len(lines))
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, `"examples":200000`) || !strings.Contains(last, `"step":100000}`) {
		t.Errorf("the last line is %s", last)
	}
}
