package emulator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// Fault is something that goes wrong on purpose, for tests: a kind, and for some kinds when and
// how long, as in "preempt@5:10s". Without @N it goes wrong when the TPU is configured; with it,
// in the N-th call that runs a replicated computation, counted from the start of the emulator.
type Fault string

// Kinds of faults.
const (
	// None is a TPU that works.
	None Fault = ""
	// Hang does not answer.
	Hang Fault = "hang"
	// Forget does not know the session any more, as a server that was started again: its
	// configuration and all variables are gone.
	Forget Fault = "forget"
	// Fail answers with an error. The call has not run.
	Fail Fault = "fail"
	// Mismatch configures the topology of another TPU, which has one core. It has no @N.
	Mismatch Fault = "mismatch"
	// Slow makes each call take longer, from the N-th on: by 1 second, or the time after it.
	Slow Fault = "slow"
	// Preempt cuts and refuses all connections, for 10 seconds or the time after it, and
	// then does as Forget.
	Preempt Fault = "preempt"
	// OOM has no memory for the program, from the N-th call on, or from the first.
	OOM Fault = "oom"
	// Cut closes the connection in the middle of the answer. The call has run.
	Cut Fault = "cut"
)

// Faults are the kinds of faults but None.
func Faults() []Fault {
	return []Fault{Hang, Forget, Fail, Mismatch, Slow, Preempt, OOM, Cut}
}

// plan is a fault that was parsed.
type plan struct {
	kind  Fault
	at    int64 // call; 0 is the configuration
	lasts time.Duration
}

// plan parses a fault.
func (f Fault) plan() (plan, error) {
	text, lasts, timed := strings.Cut(string(f), ":")
	text, at, counted := strings.Cut(text, "@")
	p := plan{kind: Fault(text)}
	if p.kind == None && f == None {
		return p, nil
	}
	if !slices.Contains(Faults(), p.kind) {
		return p, fault.Usagef("fault %q: expected one of %v, such as fail@5 or preempt@5:10s", f, Faults())
	}
	switch p.kind {
	case Slow:
		p.at, p.lasts = 1, time.Second
	case OOM:
		p.at = 1
	case Preempt:
		p.lasts = 10 * time.Second
	}
	if counted {
		n, err := strconv.ParseInt(at, 10, 64)
		if err != nil || n < 1 || p.kind == Mismatch {
			return p, fault.Usagef("fault %q: @%s is not the number of a call; expected 1 or more, and none for %s", f, at, Mismatch)
		}
		p.at = n
	}
	if timed {
		d, err := time.ParseDuration(lasts)
		if err != nil || d <= 0 || p.lasts == 0 {
			return p, fault.Usagef("fault %q: :%s is not a time; expected one such as 10s, for %s and %s only", f, lasts, Slow, Preempt)
		}
		p.lasts = d
	}
	return p, nil
}

// in reports whether the fault is to happen in a call.
func (p plan) in(call int64) bool {
	switch p.kind {
	case None, Mismatch:
		return false
	case Slow, OOM:
		return call >= p.at
	}
	return call == p.at
}

// String returns the fault as it is written.
func (p plan) String() string {
	out := string(p.kind)
	if p.at > 0 {
		out += fmt.Sprintf("@%d", p.at)
	}
	if p.lasts > 0 {
		out += ":" + p.lasts.String()
	}
	return out
}
