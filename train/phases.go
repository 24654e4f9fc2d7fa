package train

import (
	"context"
	"sync"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/words"
	"github.com/gorbit-ml/gorbit/internal/run/record"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// phases measures the stretches of training and the evaluations of a process, for the journal. An
// attempt after a lost worker is another stretch.
type phases struct {
	journal *journal
	fill    *loop.Filling
	model   *loop.Model
	done    func() runner.Done

	// Of the current stretch of training.
	begun  time.Time
	from   runner.Done
	filled [2]int64
	memory record.MemoryUse

	// total is that of this process, of which an attempt is a part.
	total *runfolder.Spent

	mu      sync.Mutex
	pending []runfolder.Phase
}

// firstLoop is an action that ends the stretch of the process's first loop, which is slower than
// those after it.
func (p *phases) firstLoop(_ context.Context, step int64, _ runner.Outputs) error {
	if *p.total == (runfolder.Spent{}) {
		p.trained(step)
	}
	return nil
}

// train begins a stretch of training.
func (p *phases) train() {
	p.begun, p.from, p.memory, p.filled = time.Now(), p.done(), record.MemoryNow(), p.fill.Read()
}

// trained ends a stretch of training at a step. A stretch without an update continues.
func (p *phases) trained(step int64) {
	did := p.done().Since(p.from)
	if did.Steps <= 0 { // as after going back to a checkpoint
		return
	}
	filled := p.fill.Read()
	phase := p.end(runfolder.Training, step, p.begun, p.memory)
	phase.Steps, phase.Examples, phase.Tokens, phase.FLOPs = did.Steps, did.Examples, did.Tokens, did.FLOPs
	if tokens, cells := filled[0]-p.filled[0], filled[1]-p.filled[1]; cells > 0 {
		phase.Padding = words.Rounded(1-float64(tokens)/float64(cells), 4)
	}
	phase.Accumulate = p.model.Accumulated()
	p.add(phase)
	p.total.Add(phase)
	p.train()
}

// end returns the phase of a kind that ends now.
func (p *phases) end(kind runfolder.Kind, step int64, begun time.Time, before record.MemoryUse) runfolder.Phase {
	now := time.Now()
	return runfolder.Phase{Process: p.journal.process, Kind: kind, Step: step, Seconds: words.Rounded(now.Sub(begun).Seconds(), 3),
		Elapsed: words.Rounded(now.Sub(p.journal.began).Seconds(), 3), Memory: record.MemoryNow().Since(before)}
}

func (p *phases) add(phase runfolder.Phase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, phase)
}

// take returns the phases since it was last called.
func (p *phases) take() []runfolder.Phase {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.pending
	p.pending = nil
	return out
}

// measuredEvaluator is an evaluator whose evaluations are phases of a training.
type measuredEvaluator struct {
	splitEvaluators
	of   *phases
	step func() int64
	// ended is called after an evaluation.
	ended func()
}

// Evaluate implements runner.Evaluator.
func (e measuredEvaluator) Evaluate(ctx context.Context, steps int64) (runner.Outputs, error) {
	p, step := e.of, e.step()
	p.trained(step)
	begun, before := time.Now(), record.MemoryNow()
	out, err := e.splitEvaluators.Evaluate(ctx, steps)
	if err != nil {
		return out, err
	}
	phase := p.end(runfolder.Evaluating, step, begun, before)
	for _, of := range e.splitEvaluators {
		phase.Steps += of.data.Read
		phase.Examples += of.data.Examples
	}
	p.add(phase)
	e.ended()
	p.train()
	return out, nil
}

// measuredSaves is the Checkpointer of a training, whose saves are phases. After each save it brings
// trainer_state.json up to date.
type measuredSaves struct {
	*loop.Checkpoints
	of *phases
	// state is trainer_state.json, and tellState is called with the state of the run's newest checkpoint.
	state     *runfolder.GrowingTrainerState
	tellState func(runner.RunState)
	// saved, if not nil, is called after each save.
	saved func(step int64, path string)
	// restored is the run's state in the checkpoint that was restored last.
	restored []byte
}

// Save implements runner.Checkpointer.
func (s *measuredSaves) Save(ctx context.Context, step int64, state []byte) (<-chan runner.Saved, error) {
	begun, before := time.Now(), record.MemoryNow()
	saving, err := s.Checkpoints.Save(ctx, step, state)
	if err != nil {
		return nil, err
	}
	done := make(chan runner.Saved, 1)
	go func() {
		saved := <-saving
		if saved.Err == nil {
			s.of.add(s.of.end(runfolder.Saving, step, begun, before))
			s.tell(state)
			if s.saved != nil {
				s.saved(step, saved.Path)
			}
		}
		done <- saved
	}()
	return done, nil
}

// Restore implements runner.Checkpointer.
func (s *measuredSaves) Restore(ctx context.Context, path string) (runner.Restored, error) {
	restored, err := s.Checkpoints.Restore(ctx, path)
	s.restored = restored.State
	s.state.Forget()
	return restored, err
}

// DiscardAfter implements runner.Checkpointer.
func (s *measuredSaves) DiscardAfter(ctx context.Context, step int64) error {
	err := s.Checkpoints.DiscardAfter(ctx, step)
	if err == nil {
		s.tell(s.restored)
	}
	return err
}

// tell brings trainer_state.json to a state of the run.
func (s *measuredSaves) tell(state []byte) {
	if parsed, err := runner.ParseRunState(state); err == nil { // there is none in another program's checkpoint
		s.tellState(parsed)
	}
}
