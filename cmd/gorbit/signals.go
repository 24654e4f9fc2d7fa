package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/gorbit-ml/gorbit/internal/base/fault"
)

// stopContext returns a context that the first SIGINT, SIGTERM or SIGHUP cancels, with the
// signal's name as the cause. A second signal of any of these ends the process at once, whatever
// it is doing. A signal that was ignored when the process started, as SIGHUP is under nohup, stays
// ignored in this process and in its children.
func stopContext(args []string) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	heeded := slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	if len(heeded) == 0 { // signal.Notify takes an empty list for all signals
		return ctx, func() { cancel(nil) }
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, heeded...)
	calls := new(atomic.Int64)
	ctx = context.WithValue(ctx, callsKey{}, calls)
	doing := func() string { return "stopping" }
	if len(args) > 0 && args[0] == "train" {
		doing = func() string { return stopsTraining(calls.Load()) }
	}
	if len(args) > 0 && args[0] == "watch" {
		doing = func() string { return "the run goes on; watching ends" }
	}
	go stopOn(signals, doing, os.Stderr, cancel, os.Exit)
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// callsKey is the key of the number of steps in a call of the devices, which stopContext's message
// names, in its context.
type callsKey struct{}

// tellCalls makes the message of a signal name the steps in a call.
func tellCalls(ctx context.Context, steps int) {
	if calls, ok := ctx.Value(callsKey{}).(*atomic.Int64); ok {
		calls.Store(int64(steps))
	}
}

// stopsTraining says when a training stops whose calls have so many steps; 0 means that it is not
// known yet.
func stopsTraining(steps int64) string {
	if steps > 1 {
		return fmt.Sprintf("saving and stopping within a call of %d steps", steps)
	}
	return "saving and stopping within a step"
}

// stopOn cancels at the first signal and exits at the second.
func stopOn(signals <-chan os.Signal, doing func() string, log io.Writer, cancel context.CancelCauseFunc, exit func(int)) {
	s := <-signals
	fmt.Fprintf(log, "gorbit: %v: %s; a second signal stops at once\n", s, doing())
	cancel(&fault.Error{Class: fault.Stopped, Err: errors.New(s.String())})
	<-signals
	exit(fault.ExitFailed)
}
