package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"
)

// Config configures a Controller.
type Config struct {
	Trainer     Trainer      // needed to train
	Evaluator   Evaluator    // needed to evaluate
	Checkpoints Checkpointer // nil: nothing is saved or restored

	// StepsPerLoop is the number of steps between two looks of the Controller,
	// and between two log lines.
	StepsPerLoop int64
	// SaveInterval is the number of steps between checkpoints; 0 means one at
	// the end of training only. That one is always saved.
	SaveInterval int64
	// SaveEvaluated saves a checkpoint after every evaluation, too, so that the
	// best model that was seen is on the disk.
	SaveEvaluated bool
	// SummaryInterval is the number of steps between training summaries; 0
	// means one for every loop. Evaluations are always summarized.
	SummaryInterval int64
	// MaxRollbacks is how often in the whole run training goes back to the last
	// checkpoint when a loss or gradient is not finite. The data does not go
	// back: training continues behind the batch that failed, since the same
	// batches on the same variables would fail again. A checkpoint that was
	// saved because the run stopped is no place to go back to, so that a run
	// goes the same way whether it was ever stopped or not.
	MaxRollbacks int64

	TrainActions []Action // run at the end of every loop
	EvalActions  []Action // run after every evaluation
	// Persist names what is saved with the run besides: NewBestMetric,
	// EarlyStopping and the like.
	Persist map[string]Persistent

	TrainSummaries Summaries // nil: none
	EvalSummaries  Summaries // nil: none
	Out            io.Writer // takes the log lines, one Write each; nil discards them
	Observer       Observer  // may be nil
}

// Validate reports what makes no sense.
func (c Config) Validate() error {
	switch {
	case c.Trainer == nil && c.Evaluator == nil:
		return errors.New("controller: neither a trainer nor an evaluator")
	case c.Trainer != nil && c.StepsPerLoop < 1:
		return fmt.Errorf("controller: %d steps per loop: want 1 or more", c.StepsPerLoop)
	case c.SaveInterval < 0:
		return fmt.Errorf("controller: save interval %d: want 0 or more", c.SaveInterval)
	case c.SummaryInterval < 0:
		return fmt.Errorf("controller: summary interval %d: want 0 or more", c.SummaryInterval)
	case c.MaxRollbacks < 0:
		return fmt.Errorf("controller: at most %d rollbacks: want 0 or more", c.MaxRollbacks)
	case c.MaxRollbacks > 0 && c.Checkpoints == nil:
		return errors.New("controller: rollbacks need checkpoints")
	}
	return nil
}

// Controller is the outer loop of training and evaluation. It is used by one
// goroutine at a time.
type Controller struct {
	cfg Config

	restoredStep int64 // the global step where there is no trainer
	saved        int64 // step of the last checkpoint, -1 where there is none
	saving       <-chan Saved
	regular      bool   // whether the plan asked for the last checkpoint, not a stop
	rollbackTo   string // path of the last checkpoint that the plan asked for
	evaluated    *Evaluation
	rollbacks    int64
	early        *EarlyStop

	times    Times     // of this process
	reported Times     // times when the last loop was reported
	counted  time.Time // up to when times.Training counts
}

// NewController returns a controller at the trainer's step. To continue an
// earlier run, call Restore before anything else.
func NewController(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Out == nil {
		cfg.Out = io.Discard
	}
	if cfg.Observer == nil {
		cfg.Observer = noObserver{}
	}
	return &Controller{cfg: cfg, saved: -1}, nil
}

// Step is the global step.
func (c *Controller) Step() int64 {
	if c.cfg.Trainer != nil {
		return c.cfg.Trainer.Step()
	}
	return c.restoredStep
}

// Times says where the time of training went in this process, up to the last loop
// that was reported.
func (c *Controller) Times() Times { return c.reported }

// count adds the time since it was last called to the time of training.
func (c *Controller) count() {
	now := time.Now()
	c.times.Training += now.Sub(c.counted)
	c.counted = now
}

// Restore restores the newest whole checkpoint and returns its path, "" where
// there is none.
func (c *Controller) Restore(ctx context.Context) (string, error) {
	if c.cfg.Checkpoints == nil {
		return "", errors.New("controller: no checkpoints to restore from")
	}
	c.logf("restoring or initializing model...")
	restored, err := c.cfg.Checkpoints.Restore(ctx, "")
	if err != nil || restored.Path == "" {
		return "", asStop(ctx, err)
	}
	if err := c.adopt(restored, false); err != nil {
		return "", err
	}
	c.logf("restored from checkpoint: %s", restored.Path)
	return restored.Path, nil
}

// Train trains until the global step is steps, or with UntilEnd until the data
// ends, and saves a checkpoint at the end. When the data ends before, that is
// the end.
func (c *Controller) Train(ctx context.Context, steps int64) error {
	if err := c.need("train", c.cfg.Trainer != nil, "trainer"); err != nil {
		return err
	}
	return c.run(ctx, c.plan(steps), 0)
}

// TrainAndEvaluate trains like Train and evaluates on evalSteps batches
// (UntilEnd: all) at every multiple of evalInterval (0: none) and at the end.
// It returns the last evaluation's outputs.
func (c *Controller) TrainAndEvaluate(ctx context.Context, trainSteps, evalSteps, evalInterval int64) (Outputs, error) {
	if err := c.need("train and evaluate", c.cfg.Trainer != nil, "trainer"); err != nil {
		return nil, err
	}
	if err := c.need("train and evaluate", c.cfg.Evaluator != nil, "evaluator"); err != nil {
		return nil, err
	}
	if evalInterval < 0 {
		return nil, fmt.Errorf("controller: evaluation interval %d: want 0 or more", evalInterval)
	}
	p := c.plan(trainSteps)
	p.evaluates, p.eval = true, evalInterval
	err := c.run(ctx, p, evalSteps)
	if c.evaluated == nil {
		return nil, err
	}
	return c.evaluated.Outputs, err
}

// Evaluate evaluates the model as it is on the given number of batches
// (UntilEnd: all).
func (c *Controller) Evaluate(ctx context.Context, steps int64) (Outputs, error) {
	if err := c.need("evaluate", c.cfg.Evaluator != nil, "evaluator"); err != nil {
		return nil, err
	}
	out, err := c.evaluate(ctx, steps)
	if errors.Is(err, ErrStopTraining) {
		err = nil // nothing here is being trained
	}
	return out, err
}

// Watch says how EvaluateContinuously waits.
type Watch struct {
	// Steps is the number of batches per evaluation; below 0 all, and 0 means
	// all as well.
	Steps int64
	// Timeout is how long to wait for the next checkpoint; 0 waits for ever.
	Timeout time.Duration
	// Poll is the time between two looks; 0 means one second.
	Poll time.Duration
	// LastStep ends the watch after a checkpoint of that step or a later one
	// was evaluated; 0 means never.
	LastStep int64
}

// EvaluateContinuously evaluates checkpoints that another process saves, each
// time the newest, until none appeared for w.Timeout, w.LastStep was evaluated
// or an eval action says so (ErrStopTraining). It returns the last outputs, and
// ErrNoCheckpoint where there was never any.
func (c *Controller) EvaluateContinuously(ctx context.Context, w Watch) (Outputs, error) {
	if err := c.need("evaluate continuously", c.cfg.Evaluator != nil, "evaluator"); err != nil {
		return nil, err
	}
	if err := c.need("evaluate continuously", c.cfg.Checkpoints != nil, "checkpoints"); err != nil {
		return nil, err
	}
	w.Poll = cmp.Or(w.Poll, time.Second)
	w.Steps = cmp.Or(w.Steps, UntilEnd)
	var out Outputs
	for last := ""; ; {
		path, err := c.awaitCheckpoint(ctx, last, w)
		switch {
		case errors.Is(err, ErrNoCheckpoint) && last != "":
			c.logf("timed out waiting %v for a new checkpoint", w.Timeout)
			return out, nil
		case err != nil:
			return out, err
		}
		last = path
		if out, err = c.evaluate(ctx, w.Steps); err != nil {
			if errors.Is(err, ErrStopTraining) {
				err = nil
			}
			return out, err
		}
		if w.LastStep > 0 && c.Step() >= w.LastStep {
			return out, nil
		}
	}
}

// awaitCheckpoint restores the newest checkpoint as soon as it is another than
// the last one, and returns its path.
func (c *Controller) awaitCheckpoint(ctx context.Context, last string, w Watch) (string, error) {
	var deadline time.Time
	if w.Timeout > 0 {
		deadline = time.Now().Add(w.Timeout)
	}
	for said := false; ; {
		path, err := c.cfg.Checkpoints.Latest(ctx)
		if err != nil {
			return "", asStop(ctx, err)
		}
		if path != "" && path != last {
			c.logf("restoring model from %s...", path)
			restored, err := c.cfg.Checkpoints.Restore(ctx, path)
			if err == nil {
				err = c.adopt(restored, false)
			}
			if err == nil {
				c.logf("restored model from %s.", path)
				return path, nil
			}
			// The trainer may have deleted it as one too many: a newer one exists.
			if !errors.Is(err, fs.ErrNotExist) {
				return "", asStop(ctx, err)
			}
		}
		if !said {
			c.logf("waiting for a new checkpoint...")
			said = true
		}
		wait := w.Poll
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				return "", fmt.Errorf("%w appeared in %v", ErrNoCheckpoint, w.Timeout)
			}
			wait = min(wait, left)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return "", stopError(ctx)
		case <-timer.C:
		}
	}
}

// Save saves a checkpoint of the present step and waits until it is complete.
func (c *Controller) Save(ctx context.Context) error {
	if err := c.need("save", c.cfg.Checkpoints != nil, "checkpoints"); err != nil {
		return err
	}
	if err := c.save(ctx, false); err != nil {
		return err
	}
	return c.finishSave()
}

func (c *Controller) need(method string, have bool, what string) error {
	if !have {
		return fmt.Errorf("controller: cannot %s without %s", method, what)
	}
	return nil
}

func (c *Controller) plan(total int64) plan {
	return plan{
		total:     max(total, UntilEnd),
		loop:      c.cfg.StepsPerLoop,
		save:      c.cfg.SaveInterval,
		saveEvals: c.cfg.SaveEvaluated,
		summary:   c.cfg.SummaryInterval,
		saves:     c.cfg.Checkpoints != nil,
	}
}

// run does what the plan says until there is nothing left to do.
func (c *Controller) run(ctx context.Context, p plan, evalSteps int64) (err error) {
	if c.early != nil && c.early.Total == p.total {
		c.logf("train | step: % 6d | stopped early before: %s", c.Step(), c.early.Reason)
		return nil
	}
	c.early = nil
	until := fmt.Sprintf("until step %d", p.total)
	if p.total < 0 {
		until = "until the data ends"
	}
	c.logf("train | step: % 6d | training %s...", c.Step(), until)
	c.cfg.Observer.Begin(PhaseTrain, c.Step(), p.total)
	defer c.cfg.Observer.End()
	defer func() {
		if failed := c.finishSave(); failed != nil {
			err = errors.Join(err, failed)
		}
	}()

	c.counted = time.Now()
	dataEnded := false
	for {
		if err := c.pollSave(); err != nil {
			return err
		}
		at := position{step: c.Step(), evaluated: -1, saved: c.saved, ended: dataEnded || c.early != nil}
		if c.evaluated != nil {
			at.evaluated = c.evaluated.Step
		}
		next := p.next(at)
		if next == workTrain || next == workEvaluate {
			if err := stopError(ctx); err != nil {
				return c.saveBefore(ctx, err)
			}
		}
		var err error
		switch next {
		case workDone:
			return nil
		case workSave:
			if err := c.save(ctx, true); err != nil {
				return err
			}
		case workEvaluate:
			err = c.evaluateInRun(ctx, evalSteps)
		case workTrain:
			var lost bool
			if dataEnded, lost, err = c.trainInRun(ctx, p, at); lost {
				return err
			}
		}
		switch {
		case errors.Is(err, ErrStopTraining):
			c.early = &EarlyStop{Reason: err.Error(), Total: p.total}
			c.logf("train | step: % 6d | %v", c.Step(), err)
		case err != nil:
			return c.saveBefore(ctx, err)
		}
	}
}

// evaluateInRun evaluates between two loops. The evaluation counts as done once its actions
// have run.
func (c *Controller) evaluateInRun(ctx context.Context, steps int64) error {
	c.count()
	out, err := c.evaluate(ctx, steps)
	c.counted = time.Now()
	if err == nil || errors.Is(err, ErrStopTraining) {
		c.evaluated = &Evaluation{Step: c.Step(), Outputs: out}
		if c.saved == c.Step() {
			c.saved = -1 // with this evaluation still to be done
		}
	}
	return err
}

// trainInRun runs a loop from a position and reports it, or goes back where its loss was not
// finite. It says whether the data ended, and whether an error leaves variables that may be no
// good, so that the last checkpoint has to stay the last.
func (c *Controller) trainInRun(ctx context.Context, p plan, at position) (dataEnded, lost bool, err error) {
	loop, err := c.train(ctx, p)
	var nonFinite *NonFiniteError
	switch {
	case errors.As(err, &nonFinite) && c.cfg.MaxRollbacks > 0:
		err = c.rollBack(ctx, err, nonFinite)
		return false, err != nil, err
	case err != nil && !betweenSteps(err):
		return false, true, err
	}
	if err == nil && (loop.Steps > 0 || loop.Outputs != nil) {
		at.step, at.ended = c.Step(), loop.ended
		err = c.reportLoop(ctx, loop, p.summarizes(at))
	}
	return loop.ended, false, err
}

// betweenSteps reports whether an error of a Trainer left the model as it was
// after a whole step.
func betweenSteps(err error) bool {
	var input *InputError
	return errors.Is(err, ErrStopped) || errors.As(err, &input)
}

// timedLoop is a loop, the time it took, and whether the data ended in it.
type timedLoop struct {
	Loop
	seconds float64
	ended   bool
}

func (l timedLoop) perSecond(n int64) float64 {
	if l.seconds <= 0 {
		return 0
	}
	return float64(n) / l.seconds
}

// train runs one loop.
func (c *Controller) train(ctx context.Context, p plan) (timedLoop, error) {
	from := c.Step()
	to := p.loopEnd(from)
	start := time.Now()
	loop, err := c.cfg.Trainer.Train(ctx, to-from)
	elapsed := time.Since(start)
	c.times.InLoops += elapsed
	c.times.InModel += loop.InModel
	timed := timedLoop{Loop: loop, seconds: elapsed.Seconds()}
	if errors.Is(err, ErrEndOfData) {
		if c.Step() == 0 {
			return timed, errors.New("the data ended before the first step")
		}
		timed.ended = true
		return timed, nil
	}
	if err == nil && c.Step() != to {
		err = fmt.Errorf("the trainer is at step %d after %d steps from step %d", c.Step(), to-from, from)
	}
	return timed, asStop(ctx, err)
}

// reportLoop tells of a loop that ended: line, summaries, actions.
func (c *Controller) reportLoop(ctx context.Context, loop timedLoop, summarize bool) error {
	c.count()
	since := Times{Training: c.times.Training - c.reported.Training, InModel: c.times.InModel - c.reported.InModel}
	c.reported = c.times
	step, out := c.Step(), loop.Outputs
	c.logf("train | step: % 6d | steps/sec: % 6.1f | output: %v", step, loop.perSecond(loop.Steps), out)
	if summarize && c.cfg.TrainSummaries != nil {
		out := withRoom(out)
		out["steps_per_second"] = loop.perSecond(loop.Steps)
		out["examples_per_second"] = loop.perSecond(loop.Examples)
		if loop.Tokens > 0 {
			out["tokens_per_second"] = loop.perSecond(loop.Tokens)
		}
		if since.InModel > 0 {
			out["loop_overhead_percent"] = 100 * since.Overhead()
		}
		if err := summarizeOutputs(c.cfg.TrainSummaries, step, out); err != nil {
			return fmt.Errorf("training summaries: %w", err)
		}
	}
	return runActions(ctx, c.cfg.TrainActions, step, out)
}

// evaluate evaluates the model as it is and tells of it.
func (c *Controller) evaluate(ctx context.Context, steps int64) (Outputs, error) {
	if steps == 0 {
		return nil, errors.New("controller: 0 steps of evaluation")
	}
	step := c.Step()
	if steps < 0 {
		c.logf(" eval | step: % 6d | running complete evaluation...", step)
	} else {
		c.logf(" eval | step: % 6d | running %d steps of evaluation...", step, steps)
	}
	start := time.Now()
	out, err := c.cfg.Evaluator.Evaluate(ctx, steps)
	if err != nil {
		return nil, fmt.Errorf("evaluation at step %d: %w", step, asStop(ctx, err))
	}
	seconds := time.Since(start).Seconds()
	timed := withRoom(out)
	rate := ""
	if steps > 0 {
		perSecond := timedLoop{seconds: seconds}.perSecond(steps)
		rate = fmt.Sprintf("steps/sec: % 6.1f | ", perSecond)
		timed["steps_per_second"] = perSecond
	}
	c.logf(" eval | step: % 6d | %seval time: % 6.1f sec | output: %v", step, rate, seconds, out)
	if c.cfg.EvalSummaries != nil {
		if err := summarizeOutputs(c.cfg.EvalSummaries, step, timed); err != nil {
			return nil, fmt.Errorf("evaluation summaries: %w", err)
		}
	}
	return out, runActions(ctx, c.cfg.EvalActions, step, out)
}

// withRoom is a copy of out to add to.
func withRoom(out Outputs) Outputs {
	if out == nil {
		return Outputs{}
	}
	return maps.Clone(out)
}

func summarizeOutputs(s Summaries, step int64, out Outputs) error {
	for _, tag := range slices.Sorted(maps.Keys(out)) {
		s.Scalar(tag, step, out[tag])
	}
	return s.Flush()
}

// rollBack goes back to the last checkpoint after a step whose loss or gradient
// was not finite, or returns the error where that may not be.
func (c *Controller) rollBack(ctx context.Context, cause error, nonFinite *NonFiniteError) error {
	if c.rollbacks >= c.cfg.MaxRollbacks {
		return fmt.Errorf("%w; the run has gone back %d times before", cause, c.rollbacks)
	}
	if err := c.finishSave(); err != nil {
		return errors.Join(cause, err)
	}
	if c.rollbackTo == "" {
		return fmt.Errorf("%w; there is no checkpoint yet to go back to", cause)
	}
	restored, err := c.cfg.Checkpoints.Restore(context.WithoutCancel(ctx), c.rollbackTo)
	if errors.Is(err, fs.ErrNotExist) { // deleted as one too many
		restored, err = c.cfg.Checkpoints.Restore(context.WithoutCancel(ctx), "")
	}
	if err == nil && restored.Path == "" {
		err = ErrNoCheckpoint
	}
	if err != nil {
		return fmt.Errorf("%w; going back to %s: %w", cause, c.rollbackTo, err)
	}
	rollbacks := c.rollbacks + 1
	if err := c.adopt(restored, true); err != nil {
		return fmt.Errorf("%w; going back to %s: %w", cause, restored.Path, err)
	}
	if err := c.cfg.Checkpoints.DiscardAfter(context.WithoutCancel(ctx), restored.Step); err != nil {
		return fmt.Errorf("%w; going back to %s: %w", cause, restored.Path, err)
	}
	for _, s := range []Summaries{c.cfg.TrainSummaries, c.cfg.EvalSummaries} {
		if s != nil {
			s.Restart(restored.Step + 1)
		}
	}
	c.rollbacks = rollbacks
	c.logf("train | step: % 6d | %s: going back to step %d (%d of at most %d)",
		nonFinite.Step, nonFinite.detail(), restored.Step, rollbacks, c.cfg.MaxRollbacks)
	c.logf("restored from checkpoint: %s", restored.Path)
	return nil
}

// adopt continues from a checkpoint whose variables the model holds.
func (c *Controller) adopt(restored Restored, keepInput bool) error {
	var state RunState
	if len(restored.State) > 0 {
		var err error
		if state, err = ParseRunState(restored.State); err != nil {
			return fmt.Errorf("checkpoint %s: %w", restored.Path, err)
		}
		if state.Step != restored.Step {
			return fmt.Errorf("checkpoint %s: run state of step %d: %w", restored.Path, state.Step,
				&CountError{Got: restored.Step, Want: state.Step})
		}
	} else if c.cfg.Trainer != nil {
		c.logf("checkpoint %s holds no run state: the data starts at its beginning", restored.Path)
	}
	if c.cfg.Trainer != nil {
		if err := c.cfg.Trainer.Restore(restored.Step, state.Trainer, keepInput); err != nil {
			return fmt.Errorf("checkpoint %s: %w", restored.Path, err)
		}
		for name, p := range c.cfg.Persist {
			if err := p.Restore(state.Persistent[name]); err != nil {
				return fmt.Errorf("checkpoint %s: %s: %w", restored.Path, name, err)
			}
		}
	}
	c.rollbackTo = restored.Path
	if state.Interrupted != nil {
		c.rollbackTo = state.Interrupted.RollbackTo
	}
	c.restoredStep, c.saved = restored.Step, restored.Step
	c.evaluated, c.rollbacks, c.early = state.Evaluated, state.Rollbacks, state.StoppedEarly
	return nil
}

// saveBefore saves, where anything is unsaved, and then returns the cause. A
// save that fails takes the place of an ErrStopped, which promises one.
func (c *Controller) saveBefore(ctx context.Context, cause error) error {
	step := c.Step()
	var err error
	if c.cfg.Checkpoints != nil && step > 0 && step != c.saved {
		err = c.save(ctx, false)
	}
	if err == nil {
		err = c.finishSave()
	}
	if err != nil {
		return fmt.Errorf("%w (saving because of: %v)", err, cause)
	}
	return cause
}

// save begins to save a checkpoint of the present step; regular where it is the
// plan that asks for it.
func (c *Controller) save(ctx context.Context, regular bool) error {
	if err := c.finishSave(); err != nil {
		return err
	}
	step := c.Step()
	c.regular = regular
	state, err := c.state()
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", step, err)
	}
	c.saving, err = c.cfg.Checkpoints.Save(context.WithoutCancel(ctx), step, state)
	if err != nil {
		c.saving = nil
		return fmt.Errorf("checkpoint of step %d: %w", step, err)
	}
	c.saved = step
	return c.pollSave()
}

// pollSave looks whether a save in the background is complete.
func (c *Controller) pollSave() error {
	select {
	case done := <-c.saving: // never, where there is no save
		return c.savedIs(done)
	default:
		return nil
	}
}

// finishSave waits for a save in the background.
func (c *Controller) finishSave() error {
	if c.saving == nil {
		return nil
	}
	return c.savedIs(<-c.saving)
}

func (c *Controller) savedIs(done Saved) error {
	c.saving = nil
	if done.Err != nil {
		step := c.saved
		c.saved = -1
		return fmt.Errorf("checkpoint of step %d: %w", step, done.Err)
	}
	if c.regular {
		c.rollbackTo = done.Path
	}
	c.logf("saved checkpoint to %s.", done.Path)
	return nil
}

// state is the RunState of the present step.
func (c *Controller) state() ([]byte, error) {
	state := RunState{
		Version:      stateVersion,
		Step:         c.Step(),
		Evaluated:    c.evaluated,
		Rollbacks:    c.rollbacks,
		StoppedEarly: c.early,
	}
	if !c.regular {
		state.Interrupted = &Interrupted{RollbackTo: c.rollbackTo}
	}
	if c.cfg.Trainer != nil {
		var err error
		if state.Trainer, err = c.cfg.Trainer.State(); err != nil {
			return nil, err
		}
	}
	for name, p := range c.cfg.Persist {
		s, err := p.State()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if state.Persistent == nil {
			state.Persistent = make(map[string]json.RawMessage)
		}
		state.Persistent[name] = s
	}
	return json.Marshal(state)
}

func (c *Controller) logf(format string, args ...any) { logf(c.cfg.Out, format, args...) }

// logf writes one line. A run does not end because nobody reads its log, so
// errors are ignored.
func logf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}
