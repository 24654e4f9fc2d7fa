package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// Batch is a global batch with the metadata that the loop needs. P is the type of the model's input.
type Batch[P any] struct {
	Payload          P
	Examples, Tokens int
	// FLOPs is the cost of an update with the batch in floating point operations; 0 if unknown.
	FLOPs float64
	Epoch int64
	// Position is the position after this batch, for Source.Seek. It is encoded as JSON when a
	// checkpoint is saved, and must not change when more batches are read.
	Position any
	// Records returns the names of the records in the batch. It is called only for error messages
	// and may be nil.
	Records func() []string
}

func (b *Batch[P]) records() []string {
	if b.Records == nil {
		return nil
	}
	return b.Records()
}

// A BatchReader reads batches.
type BatchReader[P any] interface {
	// Next returns the next batch. After the last one it returns io.EOF itself; an error that
	// wraps io.EOF, such as that of a truncated file, is not the end of the data. A call that
	// returns an error has consumed no batch.
	Next(ctx context.Context) (Batch[P], error)
}

// A Source is a BatchReader that can be positioned.
type Source[P any] interface {
	BatchReader[P]
	// Seek continues after the batch with the given Position, or at the beginning of the data if
	// it is nil.
	Seek(position json.RawMessage) error
}

// Hyper holds the values that the loop sets for each step. Hyperparameters that do not change
// during a run belong to the Model.
type Hyper struct {
	Step         int64 // updates applied before this one
	LearningRate float64
	Seed         int64 // the run's seed; random numbers are derived from (Seed, Step)
	// LossScale is the factor by which the model multiplies its loss and then divides its
	// gradient; 0 if TrainerConfig.LossScale is nil.
	LossScale float64
}

// StepResult is the result of one step of the graph.
type StepResult struct {
	// Sums has at least loss_sum and weight_sum.
	Sums Sums
	// GradientNorm is the global norm of the gradient of the mean loss, before
	// clipping.
	GradientNorm float64
	// Step is the graph's counter of updates after the step.
	Step int64
	// Applied is false if the graph left variables, slots and counter unchanged because the loss or
	// the gradient was not finite. A graph without such a check always returns true.
	Applied bool
	// InSession is the part of the step's time for which the graph ran; 0 means all of it.
	InSession time.Duration
	// FLOPs is what the update cost in addition to the batch's FLOPs, which do not know the step.
	FLOPs float64
}

// A Model runs one optimizer update.
type Model[P any] interface {
	Step(ctx context.Context, batch P, hyper Hyper) (StepResult, error)
}

// A StepsModel is a Model that can run several updates in one call, such as a loop on the device.
type StepsModel[P any] interface {
	Model[P]
	// Steps runs an update for each batch, in order, with the Hyper of the same index, and returns
	// the results. It ends after the first update that was not applied, because the Hypers after it
	// are no longer right, and may end before for reasons of its own, after one update or more:
	// fewer results than batches and no error mean that the other updates have not run. With an
	// error, the results are those of the updates before the one that failed.
	Steps(ctx context.Context, batches []P, hypers []Hyper) ([]StepResult, error)
}

// TrainerConfig configures a StandardTrainer.
type TrainerConfig struct {
	Schedule ScheduleConfig
	// Plateau lowers the peak of the schedule plateau, which needs it; other schedules have none.
	Plateau *Plateau
	// OwnSchedule says that the model multiplies the learning rate by a schedule of its own, so that the
	// outputs of a loop have none.
	OwnSchedule bool
	Seed        int64
	// MaxSkipped is the number of batches that may be skipped in the whole run because their loss
	// or gradient is not finite; the next one is an error. It needs a graph that does not apply
	// such updates (StepResult.Applied).
	MaxSkipped int64
	// LossScale enables loss scaling; nil disables it. A batch whose gradient overflows is skipped
	// and does not count for MaxSkipped. It needs a graph that does not apply such updates.
	LossScale *LossScaleConfig
	// Explain looks for the reason after an update whose loss or gradient is not finite, which was not
	// applied and is not due to LossScale. Step is the number of updates applied before it. What it
	// returns becomes NonFiniteError.Cause. nil looks for none.
	Explain func(ctx context.Context, step int64) string
	// MaxEpochs ends the data before the first batch of that Epoch (counted from 0); 0 means no
	// limit.
	MaxEpochs int64
	// StepsPerCall is the maximum number of updates in one call of the model; 0 means 1. More than
	// one needs a StepsModel. Results do not depend on it. A call never goes beyond the end of a
	// loop.
	StepsPerCall int
	// Metrics computes a loop's outputs; nil means Metrics.
	Metrics MetricsFunc
	// Out receives a line for each skipped batch; nil discards them.
	Out io.Writer
	// Observer may be nil.
	Observer Observer
}

// Validate returns an error that names the invalid field.
func (c TrainerConfig) Validate() error {
	if c.MaxSkipped < 0 {
		return fmt.Errorf("trainer: maximum skipped updates are %d; expected 0 or more", c.MaxSkipped)
	}
	if c.MaxEpochs < 0 {
		return fmt.Errorf("trainer: maximum epochs are %d; expected 0 or more", c.MaxEpochs)
	}
	if c.StepsPerCall < 0 {
		return fmt.Errorf("trainer: steps per call are %d; expected 0 (one) or more", c.StepsPerCall)
	}
	if c.LossScale != nil {
		if err := c.LossScale.Validate(); err != nil {
			return fmt.Errorf("trainer: %w", err)
		}
	}
	if (c.Schedule.Name == OnPlateau) != (c.Plateau != nil) {
		return fmt.Errorf("trainer: the schedule is %s, and Plateau is set: %t; expected both or none", c.Schedule.Name, c.Plateau != nil)
	}
	return c.Schedule.Validate()
}

// TrainerState is the state that a StandardTrainer saves with each checkpoint.
type TrainerState struct {
	Epoch    int64           `json:"epoch"`
	Position json.RawMessage `json:"position,omitempty"` // Position of the last batch used
	Seed     int64           `json:"seed"`
	Schedule ScheduleConfig  `json:"schedule"`
	Skipped  int64           `json:"skipped,omitempty"`
	// LossScale is nil if the loss is not scaled.
	LossScale *LossScaleState `json:"loss_scale,omitempty"`
	Open      *OpenLoop       `json:"open_loop,omitempty"` // set if a loop was interrupted
	Done      Done            `json:"done,omitzero"`
}

// Done is what a run has trained on so far, in updates that were applied.
type Done struct {
	// Steps is the number of the updates that are counted. It is below the global step if the run
	// was begun by a version that did not count.
	Steps    int64 `json:"steps"`
	Examples int64 `json:"examples"`
	Tokens   int64 `json:"tokens"`
	// FLOPs is the sum of the FLOPs of batches and steps.
	FLOPs float64 `json:"flops,omitempty"`
}

// Since returns what was done after an earlier point of the same run.
func (d Done) Since(then Done) Done {
	return Done{d.Steps - then.Steps, d.Examples - then.Examples, d.Tokens - then.Tokens, d.FLOPs - then.FLOPs}
}

// OpenLoop is a loop that has begun and has not been reported yet.
type OpenLoop struct {
	Steps        int64   `json:"steps"`
	Sums         Sums    `json:"sums"`
	LearningRate float64 `json:"learning_rate"`
	GradientNorm float64 `json:"gradient_norm"`
}

// StandardTrainer is a Trainer for a Model and a Source. For each step it reads a batch, runs the
// model with the learning rate of the schedule, checks the result and adds up the sums.
type StandardTrainer[P any] struct {
	model Model[P]
	data  *lookahead[P]
	cfg   TrainerConfig

	step     int64
	epoch    int64
	position any // Position of the last batch used; json.RawMessage after a restore
	skipped  int64
	scaler   *LossScaler // nil if the loss is not scaled
	open     OpenLoop
	done     Done
	inModel  time.Duration // time for which the graph ran so far
}

// NewStandardTrainer returns a trainer at step 0 and at the beginning of the data.
func NewStandardTrainer[P any](model Model[P], data Source[P], cfg TrainerConfig) (*StandardTrainer[P], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Metrics == nil {
		cfg.Metrics = Metrics
	}
	if cfg.Out == nil {
		cfg.Out = io.Discard
	}
	if cfg.Observer == nil {
		cfg.Observer = noObserver{}
	}
	if _, several := model.(StepsModel[P]); cfg.StepsPerCall > 1 && !several {
		return nil, fmt.Errorf("trainer: steps per call are %d; expected 1 for a model without the method Steps", cfg.StepsPerCall)
	}
	cfg.StepsPerCall = max(1, cfg.StepsPerCall)
	t := &StandardTrainer[P]{model: model, data: &lookahead[P]{source: data, maxEpochs: cfg.MaxEpochs}, cfg: cfg}
	return t, t.newScaler()
}

// newScaler sets the loss scaler to its state at the beginning of a run.
func (t *StandardTrainer[P]) newScaler() (err error) {
	if t.cfg.LossScale != nil {
		t.scaler, err = NewLossScaler(*t.cfg.LossScale)
	}
	return err
}

// Step returns the global step.
func (t *StandardTrainer[P]) Step() int64 { return t.step }

// Done returns what the run has trained on so far.
func (t *StandardTrainer[P]) Done() Done { return t.done }

// Train implements Trainer. Its outputs are the metrics of the loop, and the learning_rate and
// gradient_norm of its last step. If the loss is scaled, they include the loss_scale and
// skipped_steps, the number of batches skipped so far because of an overflow.
func (t *StandardTrainer[P]) Train(ctx context.Context, steps int64) (Loop, error) {
	inModel := t.inModel
	loop, err := t.train(ctx, steps)
	loop.InModel = t.inModel - inModel
	return loop, err
}

// train implements Train, except for Loop.InModel.
func (t *StandardTrainer[P]) train(ctx context.Context, steps int64) (Loop, error) {
	var loop Loop
	for loop.Steps < steps {
		if err := stopError(ctx); err != nil {
			return loop, err
		}
		batches, err := t.data.take(ctx, int(min(steps-loop.Steps, int64(t.cfg.StepsPerCall))))
		if err == io.EOF {
			if loop.Outputs, err = t.close(); err == nil {
				err = ErrEndOfData
			}
			return loop, err
		}
		if err != nil {
			if !errors.Is(err, ErrStopped) {
				err = &InputError{Step: t.step, Err: err}
			}
			return loop, err
		}
		if err := t.call(ctx, batches, &loop); err != nil {
			return loop, err
		}
	}
	var err error
	loop.Outputs, err = t.close()
	return loop, err
}

// call runs the model on batches, one update each, and adds the applied updates to the loop. Batches
// that the model has not run are used by the next call.
func (t *StandardTrainer[P]) call(ctx context.Context, batches []Batch[P], loop *Loop) error {
	hypers := t.hypers(len(batches))
	results, failed := t.run(context.WithoutCancel(ctx), batches, hypers)
	used := 0
	defer func() { t.data.putBack(batches[used:]) }()
	for i, result := range results {
		used++
		applied, err := t.finish(ctx, &batches[i], hypers[i], result)
		if err != nil {
			return err
		}
		if applied {
			loop.Steps++
			loop.Examples += int64(batches[i].Examples)
			loop.Tokens += int64(batches[i].Tokens)
		} else if i+1 < len(results) {
			return fmt.Errorf("step %d: the model ran %d updates after one that was not applied; expected the call to end", t.step+1, len(results)-i-1)
		}
	}
	if failed == nil {
		return nil
	}
	rest := batches[used:]
	used++ // A batch whose update failed is not used again.
	if len(rest) == 1 {
		return fmt.Errorf("step %d on %s: %w", t.step+1, recordList(rest[0].records()), failed)
	}
	var records []string
	for i := range rest {
		records = append(records, rest[i].records()...)
	}
	return fmt.Errorf("steps %d to %d, in one call, on %s: %w", t.step+1, t.step+int64(len(rest)), recordList(records), failed)
}

// hypers returns the values of the next n steps, if all of them are applied.
func (t *StandardTrainer[P]) hypers(n int) []Hyper {
	out := make([]Hyper, n)
	var scaler LossScaler
	if t.scaler != nil {
		scaler = *t.scaler
	}
	schedule := t.cfg.Schedule
	if t.cfg.Plateau != nil {
		schedule.PeakLearningRate = t.cfg.Plateau.LearningRate()
	}
	for i := range out {
		step := t.step + int64(i)
		out[i] = Hyper{Step: step, LearningRate: schedule.At(step), Seed: t.cfg.Seed}
		if t.scaler != nil {
			out[i].LossScale = scaler.Scale()
			scaler.Applied()
		}
	}
	return out
}

// run calls the model, and counts the time for which the graph ran. Without an error there is a
// result at least, and not more than batches.
func (t *StandardTrainer[P]) run(ctx context.Context, batches []Batch[P], hypers []Hyper) (results []StepResult, err error) {
	start := time.Now()
	if t.cfg.StepsPerCall == 1 {
		var result StepResult
		if result, err = t.model.Step(ctx, batches[0].Payload, hypers[0]); err == nil {
			results = []StepResult{result}
		}
	} else {
		payloads := make([]P, len(batches))
		for i := range batches {
			payloads[i] = batches[i].Payload
		}
		// NewStandardTrainer has checked the type.
		results, err = t.model.(StepsModel[P]).Steps(ctx, payloads, hypers)
	}
	elapsed := time.Since(start)
	if n := len(results); n > len(batches) || err == nil && n == 0 {
		return nil, fmt.Errorf("the model returned %d results for %d batches; expected 1 to %[2]d", n, len(batches))
	}
	var inSession time.Duration
	for _, r := range results {
		inSession += r.InSession
	}
	t.inModel += cmp.Or(inSession, elapsed)
	return results, err
}

// finish checks the result of a step, and counts it. It reports whether the step was applied.
func (t *StandardTrainer[P]) finish(ctx context.Context, batch *Batch[P], hyper Hyper, result StepResult) (bool, error) {
	want := t.step
	if result.Applied {
		want++
	}
	if result.Step != want {
		return false, fmt.Errorf("step %d: %w", t.step+1, &CountError{Got: result.Step, Want: want})
	}
	loss, err := result.Sums.scalar(LossSum)
	if err != nil {
		return false, fmt.Errorf("step %d: %w", t.step+1, err)
	}
	weight, err := result.Sums.scalar(WeightSum)
	if err != nil {
		return false, fmt.Errorf("step %d: %w", t.step+1, err)
	}
	t.position, t.epoch = batch.Position, batch.Epoch
	if !result.Applied || !finite(loss) || !finite(weight) || !finite(result.GradientNorm) {
		nonFinite := &NonFiniteError{
			Step:         t.step + 1,
			Loss:         loss / weight,
			GradientNorm: result.GradientNorm,
			Records:      batch.records(),
		}
		// Scaling does not cause a loss that is not finite, nor a batch without weight.
		if t.scaler != nil && !result.Applied && finite(loss) && weight > 0 && finite(weight) && t.scaler.Overflowed() {
			state := t.scaler.State()
			logf(t.cfg.Out, "train | step: % 6d | %s: batch skipped, loss scale lowered from %v to %v (%d so far)",
				nonFinite.Step, nonFinite.detail(), hyper.LossScale, state.Scale, state.Skipped)
			return false, nil
		}
		if t.cfg.Explain != nil && !result.Applied {
			nonFinite.Cause = t.cfg.Explain(context.WithoutCancel(ctx), hyper.Step)
		}
		return false, t.skip(nonFinite, result.Applied)
	}
	if t.open.Sums == nil {
		t.open.Sums = Sums{}
	}
	if err := t.open.Sums.Add(result.Sums); err != nil {
		return false, fmt.Errorf("step %d: %w", t.step+1, err)
	}
	t.open.Steps++
	t.done.Steps++
	t.done.Examples += int64(batch.Examples)
	t.done.Tokens += int64(batch.Tokens)
	t.done.FLOPs += batch.FLOPs + result.FLOPs
	t.open.LearningRate = hyper.LearningRate
	t.open.GradientNorm = result.GradientNorm
	t.step = want
	if t.scaler != nil {
		t.scaler.Applied()
	}
	t.cfg.Observer.Step(StepInfo{
		Step:     t.step,
		Epoch:    t.epoch,
		Examples: batch.Examples,
		Tokens:   batch.Tokens,
		Loss:     t.open.Sums[LossSum][0] / t.open.Sums[WeightSum][0],
	})
	return true, nil
}

// skip counts a batch that was not applied. It returns an error if the batch may not be skipped.
func (t *StandardTrainer[P]) skip(nonFinite *NonFiniteError, applied bool) error {
	switch {
	case t.cfg.MaxSkipped == 0:
		return nonFinite
	case applied:
		return fmt.Errorf("%w; the graph applied the update anyway, so it cannot be skipped", nonFinite)
	case t.skipped >= t.cfg.MaxSkipped:
		return fmt.Errorf("%w; %d updates were already skipped, the maximum", nonFinite, t.skipped)
	}
	t.skipped++
	logf(t.cfg.Out, "train | step: % 6d | %s: update skipped (%d of at most %d)",
		nonFinite.Step, nonFinite.detail(), t.skipped, t.cfg.MaxSkipped)
	return nil
}

// close ends the open loop and returns its outputs.
func (t *StandardTrainer[P]) close() (Outputs, error) {
	if t.open.Steps == 0 {
		return nil, nil
	}
	out, err := t.cfg.Metrics(t.open.Sums)
	if err != nil {
		return nil, fmt.Errorf("metrics of step %d: %w", t.step, err)
	}
	out = withRoom(out)
	if !t.cfg.OwnSchedule {
		out["learning_rate"] = t.open.LearningRate
	}
	out["gradient_norm"] = t.open.GradientNorm
	if t.scaler != nil {
		state := t.scaler.State()
		out["loss_scale"], out["skipped_steps"] = state.Scale, float64(state.Skipped)
	}
	t.open = OpenLoop{}
	return out, nil
}

// State implements Trainer. It returns a TrainerState.
func (t *StandardTrainer[P]) State() (json.RawMessage, error) {
	state := TrainerState{
		Epoch:    t.epoch,
		Seed:     t.cfg.Seed,
		Schedule: t.cfg.Schedule,
		Skipped:  t.skipped,
		Done:     t.done,
	}
	if t.position != nil {
		position, err := json.Marshal(t.position)
		if err != nil {
			return nil, fmt.Errorf("data position: %w", err)
		}
		state.Position = position
	}
	if t.open.Steps > 0 {
		state.Open = &t.open
	}
	if t.scaler != nil {
		scale := t.scaler.State()
		state.LossScale = &scale
	}
	return json.Marshal(state)
}

// Restore implements Trainer. If the seed or the schedule differs from the saved one, it logs that
// and uses the new one, because extending a run changes its schedule.
func (t *StandardTrainer[P]) Restore(step int64, raw json.RawMessage, keepInput bool) error {
	state := TrainerState{Seed: t.cfg.Seed, Schedule: t.cfg.Schedule}
	if raw != nil {
		state = TrainerState{}
		if err := json.Unmarshal(raw, &state); err != nil {
			return fmt.Errorf("trainer state: %w", err)
		}
	}
	if !keepInput {
		if err := t.data.seek(state.Position); err != nil {
			return fmt.Errorf("data position: %w", err)
		}
		t.position, t.epoch, t.skipped = nil, state.Epoch, 0
		if state.Position != nil {
			t.position = state.Position
		}
		if err := t.newScaler(); err != nil {
			return err
		}
		if t.scaler != nil && state.LossScale != nil {
			if err := t.scaler.Restore(*state.LossScale); err != nil {
				return fmt.Errorf("trainer state: %w", err)
			}
		}
	}
	t.step, t.done = step, state.Done
	t.skipped = max(t.skipped, state.Skipped)
	t.open = OpenLoop{}
	if state.Open != nil {
		t.open = *state.Open
	}
	if state.Seed != t.cfg.Seed {
		logf(t.cfg.Out, "train | step: % 6d | the seed was %d and is now %d", step, state.Seed, t.cfg.Seed)
	}
	if state.Schedule.String() != t.cfg.Schedule.String() {
		logf(t.cfg.Out, "train | step: % 6d | the learning-rate schedule was %v and is now %v", step, state.Schedule, t.cfg.Schedule)
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
