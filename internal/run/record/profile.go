package record

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/vfs"
	"github.com/gorbit-ml/gorbit/internal/run/runfolder"
	"github.com/gorbit-ml/gorbit/runner"
	"github.com/gorbit-ml/gorbit/strategy"
	"github.com/gorbit-ml/gorbit/train/loop"
)

// Profile traces the updates from First to Last, and writes what ran in them: for Chrome and Perfetto to
// runfolder.ProfileFolder, for TensorBoard's profile plugin next to the event files of training, and the
// costliest operations to Out. The updates compute the same as without it.
type Profile struct {
	First, Last int64  // counted from 1
	Folder      string // of the run
	Out         io.Writer

	trace   *strategy.Trace // nil before the first update
	from    int64           // the first update that was traced, after First where a run goes on within the profile
	made    int64           // the last update that was traced
	spans   []span          // of this process
	waited  []span          // for batches since the last call
	began   time.Time       // of the call that is being made
	ended   time.Time       // of the last call
	written bool
}

var _ loop.Inspector = (*Profile)(nil)

// span is what this process did for a time.
type span struct {
	name         string
	began, ended time.Time
}

// Together implements loop.Inspector: a call has traced updates or others.
func (p *Profile) Together(first int64, n int) int {
	switch {
	case first < p.First:
		return int(min(int64(n), p.First-first))
	case first <= p.Last:
		return int(min(int64(n), p.Last-first+1))
	}
	return n
}

// tracing reports whether the next update, of the given number, is traced.
func (p *Profile) tracing(next int64) bool { return !p.written && p.First <= next && next <= p.Last }

// Before implements loop.Inspector.
func (p *Profile) Before(ctx context.Context, first int64, _ []strategy.StepInput) (context.Context, error) {
	waited := p.waited
	if p.waited = nil; !p.tracing(first) {
		return ctx, nil
	}
	p.began = time.Now()
	if p.trace == nil {
		p.trace, p.from = new(strategy.Trace), first
	} else {
		next := p.began
		if len(waited) > 0 {
			next = waited[0].began
		}
		p.spans = append(p.spans, span{"log, evaluate, save", p.ended, next})
	}
	p.spans = append(p.spans, waited...)
	return strategy.WithTrace(ctx, p.trace), nil
}

// After implements loop.Inspector. After the last update it writes the profile.
func (p *Profile) After(_ context.Context, first int64, results []strategy.Result) error {
	if !p.tracing(first) || p.trace == nil {
		return nil
	}
	p.ended = time.Now()
	name, last := fmt.Sprintf("step %d", first), first+int64(len(results))-1
	if last > first {
		name = fmt.Sprintf("steps %d to %d", first, last)
	}
	p.spans = append(p.spans, span{name, p.began, p.ended})
	for _, r := range results {
		if r.Applied {
			p.made = max(p.made, r.Iterations)
		}
	}
	if p.made < p.Last {
		return nil
	}
	return p.Close()
}

// Close writes what was traced if the training ends before the last update of the profile.
func (p *Profile) Close() error {
	if p.written || p.made == 0 {
		return nil
	}
	p.written = true
	t := timelineOf(p.trace.Calls(), p.spans)
	steps := fmt.Sprintf("%d-%d", p.from, p.made)
	content, err := t.chrome()
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	path := filepath.Join(p.Folder, runfolder.ProfileFolder, steps, "trace.json.gz")
	files := map[string][]byte{path: content}
	spaces, err := t.spaces()
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	for host, space := range spaces {
		files[filepath.Join(p.Folder, runfolder.TrainEvents, runfolder.PluginsFolder, "profile", "steps_"+steps, host+".xplane.pb")] = space
	}
	for name, content := range files {
		if err := vfs.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		if err := vfs.ReplaceFile(name, content); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
	}
	return t.table(p.Out, fmt.Sprintf("profile of steps %d to %d in %s; the costliest operations of %.3g s:", p.from, p.made, path, t.seconds()))
}

// Written reports whether there is a profile.
func (p *Profile) Written() bool { return p.written }

// Source returns a source of the same batches that notes how long they are waited for.
func (p *Profile) Source(of runner.Source[*loop.Batch]) runner.Source[*loop.Batch] {
	return &waitedSource{of, p}
}

type waitedSource struct {
	runner.Source[*loop.Batch]
	profile *Profile
}

// Next implements runner.BatchReader.
func (s *waitedSource) Next(ctx context.Context) (runner.Batch[*loop.Batch], error) {
	began := time.Now()
	b, err := s.Source.Next(ctx)
	if !s.profile.written {
		s.profile.waited = append(s.profile.waited, span{"input", began, time.Now()})
	}
	return b, err
}
