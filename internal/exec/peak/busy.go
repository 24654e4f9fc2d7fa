package peak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// mostWaiting is the share of a call's time in threads that they may wait for a core.
	mostWaiting = 0.1
	// patience is how many times as long is measured on a busy machine.
	patience = 4
	// leastCalls is how many calls are measured at least.
	leastCalls = 2
)

// BusyError says that a peak could not be measured, because threads waited for a core during every
// call.
type BusyError struct {
	// Waiting is the share of the time in threads, from 0 to 1, of the call that waited least.
	Waiting float64
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("other processes use the cores: threads waited for one in %.0f %% of the time; expected %.0f %% or less: %s",
		100*e.Waiting, 100*mostWaiting, Again)
}

// Again says what to do where a peak was measured wrongly.
const Again = "measure again while the machine does nothing else, with gorbit doctor --measure"

// usage is how long the threads of the process have run, and waited for a core while they could have
// run, since they were started.
type usage struct{ ran, waited time.Duration }

// threads returns the usage of the process, or zeros if the system does not report it. The format is
// that of /proc/PID/schedstat in Linux's Documentation/scheduler/sched-stats.rst.
func threads() (u usage) {
	files, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil {
		return usage{}
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		var ran, waited time.Duration
		if _, err := fmt.Sscan(string(content), &ran, &waited); err == nil {
			u.ran, u.waited = u.ran+ran, u.waited+waited
		}
	}
	return u
}

// since returns the share of the time in threads that they waited since a usage.
func (u usage) since(before usage) float64 {
	ran, waited := u.ran-before.ran, u.waited-before.waited
	if waited <= 0 || ran+waited <= 0 {
		return 0
	}
	return float64(waited) / float64(ran+waited)
}

// meter times calls.
type meter struct {
	now     func() time.Time
	threads func() usage
}

// fastest returns the time of the fastest of the calls that are made for long. If threads waited for a
// core during each of them, it continues for a while, and returns a BusyError if that was no
// better.
func (m meter) fastest(ctx context.Context, call func() error, long time.Duration) (time.Duration, error) {
	best, waiting := time.Duration(0), 1.0
	begun := m.now()
	for calls := 0; ; calls++ {
		spent := m.now().Sub(begun)
		enough := calls >= leastCalls && spent >= long && best > 0
		if enough && waiting <= mostWaiting {
			return best, nil
		}
		if enough && spent >= patience*long {
			return 0, &BusyError{waiting}
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		before, start := m.threads(), m.now()
		if err := call(); err != nil {
			return 0, err
		}
		took := m.now().Sub(start)
		if took > 0 && (best == 0 || took < best) {
			best = took
		}
		waiting = min(waiting, m.threads().since(before))
	}
}
