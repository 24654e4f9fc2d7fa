package runner

// plan is the pure core of the Controller: it decides what to do next. Its decisions depend only on
// the absolute step and on what was done at that step, so a run that was killed and resumed goes
// through the same loops as one that was not.
type plan struct {
	total     int64 // the last step; below 0: until the data ends
	loop      int64 // steps per loop, above 0
	save      int64 // steps between checkpoints; 0: only at the end
	summary   int64 // steps between summaries; 0: at the end of every loop
	eval      int64 // steps between evaluations; 0: only at the end
	first     bool  // whether the first step is a loop of its own
	start     bool  // whether to evaluate before the first step, too
	evaluates bool  // whether to evaluate at all
	saves     bool  // whether to save checkpoints at all
	saveEvals bool  // whether every evaluation is followed by a checkpoint
}

// position is the progress of a run.
type position struct {
	step      int64
	evaluated int64 // step of the last evaluation, -1 before the first
	saved     int64 // step of the last checkpoint, -1 before the first
	ended     bool  // the data ended, or an action ended training
}

// work is the next thing to do.
type work int

const (
	workDone work = iota
	workTrain
	workEvaluate
	workSave
)

// over reports whether training is over.
func (p plan) over(at position) bool {
	return at.ended || p.total >= 0 && at.step >= p.total
}

// next returns what to do at a position. Saving is the last thing to do at a step.
func (p plan) next(at position) work {
	over := p.over(at)
	if at.step == 0 && p.start && p.evaluates {
		switch {
		case at.evaluated < 0:
			return workEvaluate
		case p.saves && p.saveEvals && at.saved < 0:
			return workSave
		}
	}
	if at.step > 0 {
		if p.evaluates && at.evaluated != at.step && (over || multiple(at.step, p.eval)) {
			return workEvaluate
		}
		due := over || multiple(at.step, p.save) || p.saveEvals && p.evaluates && multiple(at.step, p.eval)
		if p.saves && at.saved != at.step && due {
			return workSave
		}
	}
	if over {
		return workDone
	}
	return workTrain
}

// loopEnd returns the step at which the loop that contains step+1 ends.
func (p plan) loopEnd(step int64) int64 {
	if p.first && step == 0 {
		return 1
	}
	end := after(step, p.loop)
	for _, interval := range []int64{p.save, p.summary, p.eval} {
		if interval > 0 {
			end = min(end, after(step, interval))
		}
	}
	if p.total >= 0 {
		end = min(end, p.total)
	}
	return end
}

// summarizes reports whether to write summaries of the loop that ended at a position.
func (p plan) summarizes(at position) bool {
	return p.summary == 0 || multiple(at.step, p.summary) || p.over(at) || p.first && at.step == 1
}

// multiple reports whether step is a multiple of interval. It returns false if interval is 0.
func multiple(step, interval int64) bool { return interval > 0 && step%interval == 0 }

// after returns the first multiple of interval above step.
func after(step, interval int64) int64 { return step - step%interval + interval }
