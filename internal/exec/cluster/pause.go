package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pauses records when this process did not run because it was stopped by a signal or the machine
// slept. Silence of others during that time does not mean that they are lost.
type pauses struct {
	every time.Duration
	now   func() time.Duration // since the machine's start, including sleep

	mu    sync.Mutex
	seen  time.Duration // when this process last ran
	total time.Duration
	last  time.Duration // length of the last pause
	ended time.Duration // end of the last pause
}

func newPauses(every time.Duration, now func() time.Duration) *pauses {
	return &pauses{every: every, now: now, seen: now()}
}

// boottime includes the time that the machine sleeps, unlike Go's own clock.
func boottime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // no pauses are recorded
	}
	return time.Duration(t.Nano())
}

// watch records pauses until the context ends.
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

// note records that the process runs now, and returns the total of all pauses. A busy machine also
// makes ticks late, but by less than two ticks.
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

// recent returns the length of the last pause if it ended within the given time, else 0.
func (p *pauses) recent(within time.Duration) time.Duration {
	p.note()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == 0 || p.now()-p.ended > within {
		return 0
	}
	return p.last
}

// await reads a message of a peer that may be silent for the timeout, not counting pauses of this
// process: after a pause, messages that the peer sent in the meantime are read first.
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

// afterPause is how long after a pause of the chief a failure is attributed to it.
const afterPause = 10 * time.Second

// PausedError means that a session ended because the chief itself did not run and sent no messages
// to the workers. A new session may work.
type PausedError struct {
	Paused, Timeout time.Duration
	Err             error // the failure that followed
}

func (e *PausedError) Error() string {
	return fmt.Sprintf("the chief itself did not run for %v: it was stopped, or its machine slept; workers end a session without messages after %v, the worker timeout (the chief then got: %v)",
		e.Paused.Round(10*time.Millisecond), e.Timeout, e.Err)
}

// blame returns err, or a *PausedError if the chief was paused for so long that the workers gave it
// up.
func (c *Cluster) blame(err error) error {
	if paused := c.pauses.recent(afterPause); paused > c.config.Timeout-2*c.pauses.every {
		return &PausedError{Paused: paused, Timeout: c.config.Timeout, Err: err}
	}
	return err
}
