package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests run the real Controller, trainer and evaluator in a scripted world:
// a disk that survives processes, and a model of one variable whose numbers
// depend on everything that a resumed run must get right (data position, step,
// learning rate, seed, history). Time is testing/synctest's.

const (
	stepTime = 5 * time.Second
	evalTime = 600 * time.Millisecond // per batch
)

// worldConfig is what stays the same from process to process.
type worldConfig struct {
	loop, save, summary, eval int64
	total, evalSteps          int64
	batches                   int64 // of the training data; 0: endless, -1: none
	perEpoch, epochs          int64
	evalBatches               int64
	skip, rollbacks           int64
	seed                      int64
	lr                        float64
	schedule                  string
	background                bool    // saves are written in the background
	guard                     bool    // the graph does not apply updates that are not finite
	nan, inf                  []int64 // batches that give such a loss
	limit                     float64 // of a gradient that is scaled by the loss scale; 0: not scaled
	grow                      int64   // steps until the loss scale is doubled
	bad                       []int64 // batches that cannot be read
	best                      string
	patience                  int64
	diskFull                  int64 // number of the save that fails, from 1
	miscount                  int64 // step that the graph counts twice
	preempted                 int64 // step from which the machine says it is going
	call                      int64 // steps per call of the model; 0: one
	first                     bool  // the first step is logged by itself
	atStart                   bool  // the model is evaluated before the first step
	short                     bool  // the model ends calls early at times
}

func defaultWorld() worldConfig {
	return worldConfig{
		loop: 5, total: 20, evalSteps: UntilEnd, perEpoch: 7, evalBatches: 2,
		lr: 0.1, schedule: Linear, guard: true,
	}
}

// world is what survives a process.
type world struct {
	worldConfig
	mu        sync.Mutex
	disk      []savedState
	saves     int64
	log       []string // every line ever written
	summaries []string // every scalar ever flushed
}

type savedState struct {
	path         string
	step         int64
	weight       float64
	state        []byte
	lines, flush int // lengths of log and summaries when the save began
}

// errKilled is the panic of a process that is killed.
var errKilled = errors.New("killed")

// process is one process in a world.
type process struct {
	*world
	cancel     context.CancelCauseFunc
	ctx        context.Context
	events     int // calls from the loop to the world outside so far
	killAt     int // event at which the process is killed; 0: never
	stopAt     int // event at which the process is told to stop; 0: never
	stopStep   int64
	dead       bool
	model      fakeModel
	controller *Controller
	best       *NewBestMetric
	bestSteps  []int64
}

// event counts a call to the world outside, and ends the process there where
// the test says so.
func (p *process) event() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events++
	if p.events == p.stopAt {
		p.cancel(errors.New("terminated"))
	}
	if p.events == p.killAt || p.dead {
		p.dead = true
		panic(errKilled)
	}
}

func (w *world) start(t testing.TB) *process {
	t.Helper()
	p := &process{world: w}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.model.process = p
	schedule := ScheduleConfig{Name: w.schedule, PeakLearningRate: w.lr, WarmupSteps: 3, TotalSteps: max(w.total, 30)}
	var scale *LossScaleConfig
	if w.limit > 0 {
		scale = &LossScaleConfig{Initial: 64, GrowthSteps: w.grow}
	}
	trainer, err := NewStandardTrainer[int64](&p.model, &fakeSource{process: p}, TrainerConfig{
		Schedule: schedule, Seed: w.seed, MaxSkipped: w.skip, MaxEpochs: w.epochs, LossScale: scale, StepsPerCall: int(w.call), Out: (*fakeLog)(p),
	})
	if err != nil {
		t.Fatal(err)
	}
	evaluator := NewStandardEvaluator[int64](&p.model, func(context.Context) (BatchReader[int64], error) {
		return &fakeEvalReader{process: p}, nil
	}, EvaluatorConfig{})
	cfg := Config{
		Trainer:         trainer,
		Evaluator:       evaluator,
		Checkpoints:     (*fakeDisk)(p),
		StepsPerLoop:    w.loop,
		LogFirstStep:    w.first,
		EvalAtStart:     w.atStart,
		SaveInterval:    w.save,
		SummaryInterval: w.summary,
		MaxRollbacks:    w.rollbacks,
		TrainSummaries:  &fakeSummaries{process: p, dir: "train"},
		EvalSummaries:   &fakeSummaries{process: p, dir: "eval"},
		Out:             (*fakeLog)(p),
		Persist:         map[string]Persistent{},
	}
	if w.best != "" {
		p.best = NewBest(w.best, LowerIsBetter)
		cfg.Persist["best"] = p.best
		cfg.EvalActions = append(cfg.EvalActions, When(p.best.Test, func(_ context.Context, step int64, _ Outputs) error {
			p.event()
			p.bestSteps = append(p.bestSteps, step)
			return nil
		}, p.best.Commit))
	}
	if w.patience > 0 {
		early, err := NewEarlyStopping("loss", LowerIsBetter, w.patience, 0)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Persist["early_stopping"] = early
		cfg.EvalActions = append(cfg.EvalActions, early.Check)
	}
	if w.preempted > 0 {
		cfg.TrainActions = append(cfg.TrainActions, StopIf(func(context.Context) (string, bool) {
			return "the machine is going", p.controller.Step() == w.preempted
		}))
	}
	if p.controller, err = NewController(cfg); err != nil {
		t.Fatal(err)
	}
	return p
}

// run restores and trains, as one process does. It returns errKilled where the
// process was killed.
func (p *process) run() (out Outputs, err error) {
	defer func() {
		if r := recover(); r != nil {
			if r != error(errKilled) {
				panic(r)
			}
			err = errKilled
		}
	}()
	if _, err := p.controller.Restore(p.ctx); err != nil {
		return nil, err
	}
	return p.controller.TrainAndEvaluate(p.ctx, p.total, p.evalSteps, p.eval)
}

// fakeSource gives batch numbers.
type fakeSource struct {
	*process
	next int64
}

func (s *fakeSource) Next(ctx context.Context) (Batch[int64], error) {
	s.event()
	if err := ctx.Err(); err != nil {
		return Batch[int64]{}, err
	}
	id := s.next
	if slices.Contains(s.bad, id) {
		return Batch[int64]{}, fmt.Errorf("train.tfrecord:%d: bad checksum", id)
	}
	if s.batches != 0 && id >= s.batches {
		return Batch[int64]{}, io.EOF
	}
	s.next++
	return Batch[int64]{
		Payload:  id,
		Examples: 4,
		Tokens:   100,
		Epoch:    id / s.perEpoch,
		Position: map[string]int64{"batch": id + 1},
		Records:  func() []string { return []string{fmt.Sprintf("train.tfrecord:%d", id)} },
	}, nil
}

func (s *fakeSource) Seek(position json.RawMessage) error {
	var at struct{ Batch int64 }
	if position != nil {
		if err := json.Unmarshal(position, &at); err != nil {
			return err
		}
	}
	s.next = at.Batch
	return nil
}

// fakeModel has one variable and a counter.
type fakeModel struct {
	*process
	weight float64
	count  int64
	calls  []int // number of batches of each call
}

func (m *fakeModel) Step(ctx context.Context, id int64, h Hyper) (StepResult, error) {
	time.Sleep(stepTime)
	m.event()
	if err := ctx.Err(); err != nil {
		return StepResult{}, fmt.Errorf("step saw the cancellation: %w", err)
	}
	if m.stopStep > 0 && h.Step+1 == m.stopStep {
		m.cancel(errors.New("terminated"))
	}
	noise := math.Sin(float64(h.Seed)*7 + float64(h.Step)*3)
	target := math.Cos(float64(id)) + 0.1*noise
	gradient := 2 * (m.weight - target)
	loss := (m.weight - target) * (m.weight - target)
	applied := true
	switch {
	case slices.Contains(m.nan, id):
		loss, gradient, applied = math.NaN(), math.NaN(), !m.guard
	case slices.Contains(m.inf, id):
		gradient, applied = math.Inf(1), !m.guard
	case m.limit > 0 && h.LossScale*float64(1+id%3) > m.limit:
		gradient, applied = math.Inf(1), false
	}
	if applied {
		m.weight -= h.LearningRate * gradient
		m.count++
		if m.count == m.miscount {
			m.count++
		}
	}
	weight := 1 + float64(id%3)/3
	return StepResult{
		Sums:         Sums{LossSum: {loss * weight}, WeightSum: {weight}},
		GradientNorm: math.Abs(gradient),
		Step:         m.count,
		Applied:      applied,
	}, nil
}

// Steps makes the steps of a call, and ends it after one that was not applied.
func (m *fakeModel) Steps(ctx context.Context, ids []int64, hypers []Hyper) ([]StepResult, error) {
	var results []StepResult
	for i, id := range ids {
		r, err := m.Step(ctx, id, hypers[i])
		if err != nil {
			return results, err
		}
		results = append(results, r)
		if !r.Applied || m.short && (m.count+id)%3 == 0 {
			break
		}
	}
	if m.calls = append(m.calls, len(ids)); len(hypers) != len(ids) {
		return nil, fmt.Errorf("%d hyperparameters for %d batches", len(hypers), len(ids))
	}
	return results, nil
}

func (m *fakeModel) Evaluate(ctx context.Context, id int64) (Sums, error) {
	time.Sleep(evalTime)
	m.event()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("evaluation saw the cancellation: %w", err)
	}
	d := m.weight - 0.1*float64(id)
	return Sums{LossSum: {d * d}, WeightSum: {1}, "accuracy_sum": {float64(id % 2)}}, nil
}

type fakeEvalReader struct {
	*process
	next int64
}

func (r *fakeEvalReader) Next(context.Context) (Batch[int64], error) {
	r.event()
	if r.next >= r.evalBatches {
		return Batch[int64]{}, io.EOF
	}
	r.next++
	return Batch[int64]{Payload: r.next - 1, Examples: 4}, nil
}

// fakeDisk is the Checkpointer.
type fakeDisk process

func (d *fakeDisk) Save(ctx context.Context, step int64, state []byte) (<-chan Saved, error) {
	p := (*process)(d)
	p.mu.Lock()
	lines, flush := len(p.log), len(p.summaries)
	p.saves++
	full := p.saves == p.diskFull
	p.mu.Unlock()
	p.event()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("save saw the cancellation: %w", err)
	}
	s := savedState{
		path: fmt.Sprintf("run/ckpt-%d", step), step: p.model.count, weight: p.model.weight,
		state: bytes.Clone(state), lines: lines, flush: flush,
	}
	if n := len(p.disk); n > 0 && p.disk[n-1].step > step {
		return nil, fmt.Errorf("%s is newer than step %d", p.disk[n-1].path, step)
	}
	finish := func() Saved {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.dead {
			return Saved{}
		}
		if full {
			return Saved{Err: fmt.Errorf("%s: no space left on device", s.path)}
		}
		p.disk = append(p.disk, s)
		return Saved{Path: s.path}
	}
	if p.background {
		ch := make(chan Saved, 1)
		go func() {
			time.Sleep(3*stepTime + time.Second)
			ch <- finish()
		}()
		return ch, nil
	}
	done := finish()
	p.event()
	return SavedNow(done.Path, done.Err), nil
}

func (d *fakeDisk) Latest(context.Context) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.disk) == 0 {
		return "", nil
	}
	return d.disk[len(d.disk)-1].path, nil
}

func (d *fakeDisk) Restore(_ context.Context, path string) (Restored, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range slices.Backward(d.disk) {
		if path == "" || path == s.path {
			d.model.weight, d.model.count = s.weight, s.step
			return Restored{Path: s.path, Step: s.step, State: s.state}, nil
		}
	}
	if path == "" {
		return Restored{}, nil
	}
	return Restored{}, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
}

func (d *fakeDisk) DiscardAfter(_ context.Context, step int64) error {
	p := (*process)(d)
	p.event()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disk = slices.DeleteFunc(p.disk, func(s savedState) bool { return s.step > step })
	return nil
}

// fakeLog takes the log lines.
type fakeLog process

func (l *fakeLog) Write(b []byte) (int, error) {
	p := (*process)(l)
	p.event()
	if !bytes.HasSuffix(b, []byte("\n")) || bytes.Count(b, []byte("\n")) != 1 {
		return 0, fmt.Errorf("write %q is not one line", b)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

type fakeSummaries struct {
	*process
	dir     string
	pending []string
}

func (s *fakeSummaries) Scalar(tag string, step int64, v float64) {
	s.pending = append(s.pending, fmt.Sprintf("%s/%s %d %v", s.dir, tag, step, v))
}

func (s *fakeSummaries) Restart(step int64) {
	s.event()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.summaries = append(s.summaries, fmt.Sprintf("%s restarts at %d", s.dir, step))
}

func (s *fakeSummaries) Flush() error {
	s.event()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.summaries = append(s.summaries, s.pending...)
	s.pending = nil
	return nil
}
