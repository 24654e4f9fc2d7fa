package runner

import (
	"math/rand/v2"
	"testing"
)

func TestPlanLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	interval := func() int64 { return int64(r.IntN(9)) }
	for range 2000 {
		p := plan{
			total: 1 + int64(r.IntN(40)), loop: 1 + interval(), save: interval(), summary: interval(), eval: interval(),
			first: r.IntN(3) == 0, saves: r.IntN(4) > 0, evaluates: r.IntN(4) > 0, saveEvals: r.IntN(2) > 0,
		}
		ends := map[int64]bool{}
		for step := int64(0); step < p.total; step = p.loopEnd(step) {
			ends[p.loopEnd(step)] = true
		}
		for step := range p.total {
			end := p.loopEnd(step)
			// From wherever a run begins, it meets the same ends of loops.
			if end <= step || end > p.total || !ends[end] {
				t.Fatalf("%+v: loop from %d ends at %d, which a whole run does not", p, step, end)
			}
			for between := step + 1; between < end; between++ {
				if ends[between] {
					t.Fatalf("%+v: loop from %d to %d runs over %d", p, step, end, between)
				}
			}
		}
		for step := int64(1); step <= p.total; step++ {
			last := step == p.total
			if (last || p.first && step == 1 || multiple(step, p.eval) || multiple(step, p.save) || multiple(step, p.summary) || multiple(step, p.loop)) != ends[step] {
				t.Fatalf("%+v: step %d is an end: %v", p, step, ends[step])
			}
			// All that is done at a step, in order: evaluate, save, continue.
			at := position{step: step, evaluated: -1, saved: -1}
			evaluates := p.evaluates && (last || multiple(step, p.eval))
			if got := p.next(at); evaluates != (got == workEvaluate) {
				t.Fatalf("%+v at %+v: %v", p, at, got)
			}
			at.evaluated = step
			saves := p.saves && (last || multiple(step, p.save) || p.saveEvals && evaluates)
			if got := p.next(at); saves != (got == workSave) {
				t.Fatalf("%+v at %+v: %v", p, at, got)
			}
			at.saved = step
			want := workTrain
			if last {
				want = workDone
			}
			if got := p.next(at); got != want {
				t.Fatalf("%+v at %+v: %v", p, at, got)
			}
			at.ended = true
			if got := p.next(at); got != workDone {
				t.Fatalf("%+v at %+v: %v", p, at, got)
			}
		}
	}
}

func TestPlanUntilTheDataEnds(t *testing.T) {
	p := plan{total: UntilEnd, loop: 5, saves: true, evaluates: true}
	at := position{step: 1_000_000, evaluated: -1, saved: -1}
	if got := p.next(at); got != workTrain {
		t.Errorf("before the end of the data: %v", got)
	}
	if got := p.loopEnd(at.step); got != 1_000_005 {
		t.Errorf("loop ends at %d", got)
	}
	at.ended = true
	if got := p.next(at); got != workEvaluate {
		t.Errorf("at the end of the data: %v", got)
	}
}

// Nothing is evaluated or saved before the first step, unless that is asked for.
func TestPlanAtStepZero(t *testing.T) {
	p := plan{total: 0, loop: 5, save: 1, eval: 1, saves: true, evaluates: true}
	if got := p.next(position{evaluated: -1, saved: -1}); got != workDone {
		t.Errorf("a run of no steps begins with %v", got)
	}
	p = plan{total: 5, loop: 5, start: true, saves: true, evaluates: true, saveEvals: true}
	at, want := position{evaluated: -1, saved: -1}, []work{workEvaluate, workSave, workTrain}
	for _, w := range want {
		if got := p.next(at); got != w {
			t.Errorf("a run that is evaluated at its start at %+v: %v, want %v", at, got, w)
		}
		if w == workEvaluate {
			at.evaluated = 0
		} else {
			at.saved = 0
		}
	}
}
