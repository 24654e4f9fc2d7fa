package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pauses notes when this process did not run: it was stopped by a signal, or the machine
// slept. Others' silence during that time says nothing of them.
type pauses struct {
	every time.Duration
	now   func() time.Duration // since the machine's start, with the time that it slept

	mu    sync.Mutex
	seen  time.Duration // when this process ran last
	total time.Duration
	last  time.Duration // how long the last pause was
	ended time.Duration // and when it ended
}

func newPauses(every time.Duration, now func() time.Duration) *pauses {
	return &pauses{every: every, now: now, seen: now()}
}

// boottime goes on while the machine sleeps, unlike Go's own clock.
func boottime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // no pause is ever noted
	}
	return time.Duration(t.Nano())
}

// watch notes pauses until the context ends.
func (p *pauses) watch(ctx context.Context) {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.note()
		case <-ctx.Done():
			return
		}
	}
}

// note says that the process runs now, and returns how long it has not in all. A
// processor that others use makes ticks late, too, but by less than two.
func (p *pauses) note() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if gap := now - p.seen; gap > 2*p.every {
		p.last, p.ended = gap, now
		p.total += gap
	}
	p.seen = now
	return p.total
}

// recent returns how long the last pause was, if it ended within the time given.
func (p *pauses) recent(within time.Duration) time.Duration {
	p.note()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == 0 || p.now()-p.ended > within {
		return 0
	}
	return p.last
}

// await reads a message of a peer that may be silent for the timeout, while this process
// runs: after a pause, what the peer sent meanwhile is still to be read.
func (l *link) await(timeout time.Duration, p *pauses) (message, error) {
	for {
		before := p.note()
		m, err := l.read(time.Now().Add(timeout))
		if isTimeout(err) && p.note() > before {
			continue
		}
		return m, err
	}
}

// afterPause is how long after a pause of the chief a failure is put down to it.
const afterPause = 10 * time.Second

// PausedError says that a session ended since the chief itself did not run: the workers
// heard nothing of it. A new session may go on.
type PausedError struct {
	Paused, Timeout time.Duration
	Err             error // what came of it
}

func (e *PausedError) Error() string {
	return fmt.Sprintf("the chief itself did not run for %v: it was stopped, or its machine slept; workers end a session in which they hear nothing for %v, the worker timeout (what the chief saw then: %v)",
		e.Paused.Round(10*time.Millisecond), e.Timeout, e.Err)
}

// blame returns the error of a failure: a *PausedError where the chief was paused for so
// long that the workers have given it up.
func (c *Cluster) blame(err error) error {
	if paused := c.pauses.recent(afterPause); paused > c.config.Timeout-2*c.pauses.every {
		return &PausedError{Paused: paused, Timeout: c.config.Timeout, Err: err}
	}
	return err
}
