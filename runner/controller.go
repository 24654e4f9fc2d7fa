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

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Config configures a Controller.
type Config struct {
	Trainer     Trainer      // required to train
	Evaluator   Evaluator    // required to evaluate
	Checkpoints Checkpointer // nil: nothing is saved or restored

	// StepsPerLoop is the number of steps per loop, and so between two log lines.
	StepsPerLoop int64
	// LogFirstStep makes the first step a loop of its own, and so reports it.
	LogFirstStep bool
	// EvalAtStart makes TrainAndEvaluate evaluate before the first step, too.
	EvalAtStart bool
	// EvalSplits is the number of passes that the Evaluator makes, one for each split of data, of which
	// each has the steps that are asked for; 0 means 1.
	EvalSplits int
	// SaveInterval is the number of steps between checkpoints; 0 means only at the end of training,
	// where one is always saved.
	SaveInterval int64
	// SaveEvaluated saves a checkpoint after every evaluation, so that the best model is on disk.
	SaveEvaluated bool
	// SummaryInterval is the number of steps between training summaries; 0 means one per loop.
	// Every evaluation has a summary.
	SummaryInterval int64
	// MaxRollbacks is how often in the whole run training may go back to the last checkpoint when a
	// loss or gradient is not finite. The data does not go back: training continues after the batch
	// that failed, because the same batches with the same variables would fail again. Training
	// never goes back to a checkpoint that was saved because the run stopped, so that a run
	// proceeds the same way whether it was stopped or not.
	MaxRollbacks int64

	TrainActions []Action // run at the end of every loop
	EvalActions  []Action // run after every evaluation
	// Persist holds further states to save with the run, such as NewBestMetric and EarlyStopping.
	Persist map[string]Persistent

	TrainSummaries Summaries // nil: none
	EvalSummaries  Summaries // nil: none
	Out            io.Writer // receives the log lines, one Write per line; nil discards them
	Observer       Observer  // may be nil
}

// Validate returns an error that names the invalid field.
func (c Config) Validate() error {
	switch {
	case c.Trainer == nil && c.Evaluator == nil:
		return errors.New("controller: neither a trainer nor an evaluator; expected at least one")
	case c.Trainer != nil && c.StepsPerLoop < 1:
		return fmt.Errorf("controller: steps per loop are %d; expected 1 or more", c.StepsPerLoop)
	case c.SaveInterval < 0:
		return fmt.Errorf("controller: save interval is %d; expected 0 or more", c.SaveInterval)
	case c.SummaryInterval < 0:
		return fmt.Errorf("controller: summary interval is %d; expected 0 or more", c.SummaryInterval)
	case c.MaxRollbacks < 0:
		return fmt.Errorf("controller: maximum rollbacks are %d; expected 0 or more", c.MaxRollbacks)
	case c.MaxRollbacks > 0 && c.Checkpoints == nil:
		return errors.New("controller: rollbacks need checkpoints")
	}
	return nil
}

// Controller is the outer loop of training and evaluation. It is used by one
// goroutine at a time.
type Controller struct {
	cfg Config

	restoredStep int64 // the global step if there is no trainer
	saved        int64 // step of the last checkpoint, -1 if there is none
	saving       <-chan Saved
	regular      bool   // whether the last checkpoint was due and not saved because of a stop
	rollbackTo   string // path of the last checkpoint that was due
	evaluated    *Evaluation
	rollbacks    int64
	early        *EarlyStop

	times    Times     // times of this process
	reported Times     // times at the last report of a loop
	counted  time.Time // end of the time counted in times.Training
}

// NewController returns a controller at the trainer's step. To continue an earlier run, call
// Restore first.
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

// Step returns the global step.
func (c *Controller) Step() int64 {
	if c.cfg.Trainer != nil {
		return c.cfg.Trainer.Step()
	}
	return c.restoredStep
}

// Times returns how this process spent its training time, up to the last reported loop.
func (c *Controller) Times() Times { return c.reported }

// count adds the time since its last call to the training time.
func (c *Controller) count() {
	now := time.Now()
	c.times.Training += now.Sub(c.counted)
	c.counted = now
}

// Restore restores the newest undamaged checkpoint and returns its path, or "" if there is none.
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

// Train trains until the global step is steps or the data ends, and saves a checkpoint at the end.
// With UntilEnd it trains until the data ends.
func (c *Controller) Train(ctx context.Context, steps int64) error {
	if err := c.need("train", c.cfg.Trainer != nil, "trainer"); err != nil {
		return err
	}
	return c.run(ctx, c.plan(steps), 0)
}

// TrainAndEvaluate trains like Train and evaluates on evalSteps batches (UntilEnd: all) at every
// multiple of evalInterval (0: none) and at the end. It returns the outputs of the last evaluation.
func (c *Controller) TrainAndEvaluate(ctx context.Context, trainSteps, evalSteps, evalInterval int64) (Outputs, error) {
	if err := c.need("train and evaluate", c.cfg.Trainer != nil, "trainer"); err != nil {
		return nil, err
	}
	if err := c.need("train and evaluate", c.cfg.Evaluator != nil, "evaluator"); err != nil {
		return nil, err
	}
	if evalInterval < 0 {
		return nil, fmt.Errorf("controller: evaluation interval is %d; expected 0 or more", evalInterval)
	}
	p := c.plan(trainSteps)
	p.evaluates, p.eval = true, evalInterval
	err := c.run(ctx, p, evalSteps)
	if c.evaluated == nil {
		return nil, err
	}
	return c.evaluated.Outputs, err
}

// Evaluate evaluates the current model on the given number of batches (UntilEnd: all).
func (c *Controller) Evaluate(ctx context.Context, steps int64) (Outputs, error) {
	if err := c.need("evaluate", c.cfg.Evaluator != nil, "evaluator"); err != nil {
		return nil, err
	}
	out, err := c.evaluate(ctx, steps)
	if errors.Is(err, ErrStopTraining) {
		err = nil // there is no training to stop
	}
	return out, err
}

// Watch configures EvaluateContinuously.
type Watch struct {
	// Steps is the number of batches per evaluation; 0 or less means all.
	Steps int64
	// Timeout is how long to wait for the next checkpoint; 0 means no limit.
	Timeout time.Duration
	// Poll is the time between two checks for a checkpoint; 0 means one second.
	Poll time.Duration
	// LastStep ends the watch after the evaluation of a checkpoint of that step or later; 0 means
	// never.
	LastStep int64
}

// EvaluateContinuously evaluates checkpoints that another process saves, always the newest. It ends
// when no new one appears within w.Timeout, when w.LastStep was evaluated, or when an eval action
// returns ErrStopTraining. It returns the last outputs, or ErrNoCheckpoint if there never was a
// checkpoint. If the machine cannot read checkpoints for a time, it says so and looks again; it returns
// the error if that lasts until w.Timeout.
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

// awaitCheckpoint waits until the newest checkpoint differs from the last one, restores it, and
// returns its path.
func (c *Controller) awaitCheckpoint(ctx context.Context, last string, w Watch) (string, error) {
	var deadline time.Time
	if w.Timeout > 0 {
		deadline = time.Now().Add(w.Timeout)
	}
	for said, unread := false, false; ; {
		path, err := c.newer(ctx, last)
		switch {
		case err == nil && path != "":
			return path, nil
		case err != nil && !fault.OfMachine(err):
			return "", asStop(ctx, err)
		case err != nil && !unread:
			c.logf("warning: cannot read checkpoints now; looking again every %v: %v", w.Poll, err)
		}
		unread = err != nil
		if !said {
			c.logf("waiting for a new checkpoint...")
			said = true
		}
		wait := w.Poll
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				if err != nil {
					return "", err
				}
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

// newer restores the newest checkpoint and returns its path, or "" if that is the last one.
func (c *Controller) newer(ctx context.Context, last string) (string, error) {
	path, err := c.cfg.Checkpoints.Latest(ctx)
	if err != nil || path == "" || path == last {
		return "", err
	}
	c.logf("restoring model from %s...", path)
	restored, err := c.cfg.Checkpoints.Restore(ctx, path)
	if err == nil {
		err = c.adopt(restored, false)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // the trainer may have deleted it because a newer one exists
	}
	if err != nil {
		return "", err
	}
	c.logf("restored model from %s.", path)
	return path, nil
}

// Save saves a checkpoint of the current step and waits until it is complete. It is for callers who
// need one at another time than Train makes them, such as before they read it.
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
		first:     c.cfg.LogFirstStep,
		start:     c.cfg.EvalAtStart,
		save:      c.cfg.SaveInterval,
		saveEvals: c.cfg.SaveEvaluated,
		summary:   c.cfg.SummaryInterval,
		saves:     c.cfg.Checkpoints != nil,
	}
}

// run follows the plan until nothing is left to do.
func (c *Controller) run(ctx context.Context, p plan, evalSteps int64) (err error) {
	if c.early != nil && c.early.Total == p.total {
		c.logf("train | step: % 6d | already stopped early: %s", c.Step(), c.early.Reason)
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

// evaluateInRun evaluates between two loops. The evaluation counts as done when its actions have
// run.
func (c *Controller) evaluateInRun(ctx context.Context, steps int64) error {
	c.count()
	out, err := c.evaluate(ctx, steps)
	c.counted = time.Now()
	if err == nil || errors.Is(err, ErrStopTraining) {
		c.evaluated = &Evaluation{Step: c.Step(), Outputs: out}
		if c.saved == c.Step() {
			c.saved = -1 // that checkpoint records the evaluation as pending
		}
	}
	return err
}

// trainInRun runs a loop from a position and reports it, or rolls back if a loss was not finite. It
// returns whether the data ended, and whether an error may have left invalid variables, which must
// not be saved.
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

// betweenSteps reports whether an error of a Trainer occurred between two steps, so that the model
// is valid.
func betweenSteps(err error) bool {
	var input *InputError
	return errors.Is(err, ErrStopped) || errors.As(err, &input)
}

// timedLoop is a loop with its duration and whether the data ended in it.
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
		err = fmt.Errorf("the trainer is at step %d after %d steps from step %d; expected step %d", c.Step(), to-from, from, to)
	}
	return timed, asStop(ctx, err)
}

// reportLoop reports a completed loop: log line, summaries and actions.
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

// evaluate runs an evaluation and reports the result.
func (c *Controller) evaluate(ctx context.Context, steps int64) (Outputs, error) {
	if steps == 0 {
		return nil, errors.New("controller: evaluation steps are 0; expected 1 or more, or UntilEnd")
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
		perSecond := timedLoop{seconds: seconds}.perSecond(steps * int64(max(1, c.cfg.EvalSplits)))
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

// withRoom returns a copy of out that can be added to.
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

// rollBack goes back to the last checkpoint after a step whose loss or gradient was not finite. It
// returns an error if that is not allowed or fails.
func (c *Controller) rollBack(ctx context.Context, cause error, nonFinite *NonFiniteError) error {
	if c.rollbacks >= c.cfg.MaxRollbacks {
		return fmt.Errorf("%w; the run has already gone back %d times, the maximum", cause, c.rollbacks)
	}
	if err := c.finishSave(); err != nil {
		return errors.Join(cause, err)
	}
	if c.rollbackTo == "" {
		return fmt.Errorf("%w; no checkpoint to go back to yet", cause)
	}
	restored, err := c.cfg.Checkpoints.Restore(context.WithoutCancel(ctx), c.rollbackTo)
	if errors.Is(err, fs.ErrNotExist) { // deleted because newer ones exist
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

// adopt continues from a checkpoint whose variables have been restored.
func (c *Controller) adopt(restored Restored, keepInput bool) error {
	var state RunState
	if len(restored.State) > 0 {
		var err error
		if state, err = ParseRunState(restored.State); err != nil {
			return fmt.Errorf("checkpoint %s: %w", restored.Path, err)
		}
		if state.Step != restored.Step {
			return fmt.Errorf("checkpoint %s: run state is of step %d: %w", restored.Path, state.Step,
				&CountError{Got: restored.Step, Want: state.Step})
		}
	} else if c.cfg.Trainer != nil {
		c.logf("checkpoint %s has no run state; starting at the beginning of the data", restored.Path)
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

// saveBefore saves a checkpoint if the current step is not saved, and returns the cause. If saving
// fails, the error replaces an ErrStopped, which promises a checkpoint.
func (c *Controller) saveBefore(ctx context.Context, cause error) error {
	step := c.Step()
	var err error
	if c.cfg.Checkpoints != nil && (step > 0 || c.evaluated != nil) && step != c.saved {
		err = c.save(ctx, false)
	}
	if err == nil {
		err = c.finishSave()
	}
	if err != nil {
		return fmt.Errorf("%w (while saving because of: %v)", err, cause)
	}
	return cause
}

// save starts to save a checkpoint of the current step. regular means that one is due, not that the
// run stops.
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

// pollSave checks whether a save in the background is complete.
func (c *Controller) pollSave() error {
	select {
	case done := <-c.saving: // a nil channel is never ready
		return c.savedIs(done)
	default:
		return nil
	}
}

// finishSave waits until a save in the background is complete.
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

// state returns the RunState of the current step as JSON.
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

// logf writes one line. It ignores errors because a run must not end when its log cannot be written.
func logf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}
